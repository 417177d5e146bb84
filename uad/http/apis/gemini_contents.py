"""The turns of Google's Gemini API, of which the messages of a chat are made; and what requests hold that is left out
knowingly.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, AliasGenerator, BeforeValidator, ConfigDict, Field, StrictBool, StrictStr
from pydantic.alias_generators import to_camel

from uad.base.checkpoint import checkpoint
from uad.base.common.json_out import dumps
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.http.apis.dialect import validated
from uad.http.apis.messages import CallIds, Dialogue, Picture, Piece, unsealed
from uad.http.requests.left_out import account_for_body, leave_out
from uad.http.requests.message_fields import MAX_NAME, MAX_PARTS, Body

ROUTE = "generateContent"
CONFIG = "generationConfig"
_NOTHING_RUNS = "nothing runs here; send functionDeclarations, which the client runs"
LEFT_OUT = {
    name: why
    for why, names in {
        "nothing is filtered here": "safetySettings modelArmorConfig",
        "nothing is billed here": "labels serviceTier",
        "no conversation is kept": "store",
        "answers are text": f"{CONFIG}.speechConfig {CONFIG}.imageConfig {CONFIG}.enableAffectiveDialog",
        "no sound is read": f"{CONFIG}.audioTimestamp {CONFIG}.audioTranscriptionConfig",
        "there is one model, without knowledge of its own": " ".join(
            f"{CONFIG}.{name}" for name in ("routingConfig", "modelSelectionConfig", "enableEnhancedCivicAnswers")
        ),
        "the model's projector decides how much it sees": f"{CONFIG}.mediaResolution parts.mediaResolution",
        "of files only pictures are read": "parts.videoMetadata parts.mediaProcessing parts.audioMetadata",
        "it is the client's note": "parts.partMetadata inlineData.displayName fileData.displayName",
        "templates have no place for it": "functionDeclarations.response functionDeclarations.responseJsonSchema",
        "calls wait for their results": "functionDeclarations.behavior functionResponse.scheduling",
        "calls and results are sent whole": (
            "functionCall.willContinue functionResponse.willContinue functionCallingConfig.streamFunctionCallArguments"
        ),
        "code and its output stand one after the other": "executableCode.id codeExecutionResult.id",
        _NOTHING_RUNS: "toolConfig.retrievalConfig toolConfig.includeServerSideToolInvocations tools.googleSearch "
        "tools.googleSearchRetrieval tools.googleMaps tools.enterpriseWebSearch tools.urlContext tools.retrieval "
        "tools.fileSearch tools.codeExecution tools.computerUse tools.mcpServers tools.exaAiSearch "
        "tools.parallelAiSearch",
    }.items()
    for name in names.split()
}
"""Members that are left out knowingly, each with its parent, and why. Any other that may hold content is refused."""
_B = TypeVar("_B", bound=Body)


class GeminiBody(Body):
    """Base of the bodies here, whose fields go by two names."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(to_camel(name), name))
    )


def as_list(value: object) -> object:
    """One object is a list of it, as in Google's own examples."""
    return [value] if isinstance(value, dict) else value


class ContentBody(GeminiBody):
    """One of `contents`."""

    role: StrictStr = "user"
    parts: Annotated[list[Any], Field(max_length=MAX_PARTS), BeforeValidator(as_list)] = Field([])


class BlobField(GeminiBody):
    """A file in base64."""

    mime_type: StrictStr = ""
    data: StrictStr


class FileField(GeminiBody):
    """The address of a file."""

    mime_type: StrictStr = ""
    file_uri: StrictStr


class NamedBlob(BlobField):
    """The same in a result, which may speak of it by its name."""

    display_name: StrictStr = ""


class NamedFile(FileField):
    """The address of a file in a result."""

    display_name: StrictStr = ""


class ResultPart(GeminiBody):
    """One of the parts of a result."""

    inline_data: NamedBlob | None = None
    file_data: NamedFile | None = None


class CodeField(GeminiBody):
    """Code that the model wrote for Google's servers."""

    language: StrictStr = ""
    code: StrictStr


class CodeOutputField(GeminiBody):
    """Output of such code on Google's servers."""

    outcome: StrictStr = ""
    output: StrictStr = ""


class CallField(GeminiBody):
    """A call of an earlier answer."""

    id: StrictStr | None = None
    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    args: dict[StrictStr, Any] = Field({})


class ResponseField(GeminiBody):
    """The result of a call."""

    id: StrictStr | None = None
    name: StrictStr = Field(max_length=MAX_NAME)
    response: dict[StrictStr, Any] = Field({})
    parts: Annotated[list[Any], Field(max_length=MAX_PARTS), BeforeValidator(as_list)] = Field([])


class PartBody(GeminiBody):
    """One of the parts of a content. Of its kinds of data it has one."""

    thought: StrictBool = False
    thought_signature: StrictStr | None = None
    text: StrictStr | None = None
    inline_data: BlobField | None = None
    file_data: FileField | None = None
    function_call: CallField | None = None
    function_response: ResponseField | None = None
    executable_code: CodeField | None = None
    code_execution_result: CodeOutputField | None = None

    @property
    def kinds(self) -> list[str]:
        """Which kinds of data it has, in the API's words; an empty text says nothing beside another."""
        names = [name for name in list(PartBody.model_fields)[2:] if getattr(self, name) is not None]
        return [to_camel(name) for name in names if name != "text" or self.text or len(names) == 1]


def conversation(system: object, contents: Iterable[object]) -> Dialogue:
    """The chat's messages with their pictures."""
    talk = _PartsDialogue()
    if system is not None:
        where = "systemInstruction"
        pieces = [_piece(at, part) for at, part in _parts(read_body(ContentBody, system, where), where)]
        if pieces:
            talk.dialogue.say("system", pieces)
    for i, content in enumerate(contents):
        checkpoint()
        where = f"contents.{i}"
        turn = read_body(ContentBody, content, where)
        match turn.role:
            case "model":
                _model_turn(talk, _parts(turn, where))
            case "user" | "function" | "tool" | "":
                talk.settle()
                _user_turn(talk, _parts(turn, where))
            case other:
                raise InvalidRequestError.at(f"{where}.role", f"must be user or model, not {other[:64]!r}")
    talk.settle()
    return talk.dialogue


def read_body(kind: type[_B], value: object, where: str) -> _B:
    """An object inside of a request, of which nothing gets lost."""
    body = validated(kind, value, where)
    account_for_body(value if isinstance(value, dict) else {}, body, LEFT_OUT, ROUTE, where, to_camel)
    return body


class _PartsDialogue:
    """A conversation that grows by parts. The model's words in a row are one text: clients send back each piece of a
    stream as a part, or as a content.
    """

    def __init__(self) -> None:
        self.dialogue = Dialogue()
        self.ids = CallIds()
        self._texts: list[str] = []
        self._are_thoughts = False

    def add(self, text: str, is_thought: bool) -> None:
        """Words of the model's."""
        if is_thought != self._are_thoughts:
            self.settle()
        self._are_thoughts = is_thought
        self._texts.append(text)

    def settle(self) -> None:
        """Add to the dialogue what the model said or thought, once it is whole."""
        text, self._texts = "".join(self._texts), []
        if text and self._are_thoughts:
            self.dialogue.think(text)
        elif text:
            self.dialogue.say("assistant", [text])


def _parts(turn: ContentBody, where: str) -> Iterator[tuple[str, PartBody]]:
    for k, given in enumerate(turn.parts):
        at = f"{where}.parts.{k}"
        part = read_body(PartBody, given, at)
        if len(part.kinds) > 1:
            raise InvalidRequestError.at(at, f"holds {' and '.join(part.kinds)}; send a part for each")
        yield at, part


def _model_turn(talk: _PartsDialogue, parts: Iterable[tuple[str, PartBody]]) -> None:
    for at, part in parts:
        if thoughts := _sealed_thoughts(part.thought_signature):
            talk.add(thoughts, is_thought=True)
        if part.function_call is not None:
            talk.settle()
            call = part.function_call
            talk.dialogue.call(talk.ids.of_call(call.id, call.name), call.name, call.args)
        elif part.executable_code is not None:
            language = part.executable_code.language.lower().removeprefix("language_unspecified")
            talk.add(f"\n```{language}\n{part.executable_code.code}\n```\n", is_thought=False)
        elif part.code_execution_result is not None:
            talk.add(f"\n```\n{part.code_execution_result.output}\n```\n", is_thought=False)
        elif part.text is not None:
            talk.add(part.text, part.thought)
        elif part.kinds:
            raise NotSupportedError.at(at, f"the model's turns are text and calls here; leave {part.kinds[0]} out")


def _user_turn(talk: _PartsDialogue, parts: Iterable[tuple[str, PartBody]]) -> None:
    """Results first, wherever they stand: they answer the calls before them. Turns in a row are one."""
    pieces: list[Piece] = []
    is_empty = True
    for at, part in parts:
        is_empty = False
        result = part.function_response
        if result is None:
            pieces.append(_piece(at, part))
        else:
            id_ = talk.ids.of_result(result.id, result.name) or ""
            talk.dialogue.result(id_, [*_result(result, f"{at}.functionResponse")], result.name)
    if pieces or is_empty:
        talk.dialogue.go_on("user", pieces)


def _result(result: ResponseField, where: str) -> Iterator[Piece]:
    """The one text in `output`, or in `result`, where Google's own clients put it; else the object. Then its pictures,
    each after the name by which the object speaks of it.
    """
    texts = [
        value for name, value in result.response.items() if name in ("output", "result") and isinstance(value, str)
    ]
    if result.response or not result.parts:
        yield texts[0] if len(texts) == len(result.response) == 1 else dumps(result.response)
    for k, given in enumerate(result.parts):
        at = f"{where}.parts.{k}"
        part = read_body(ResultPart, given, at)
        files = [file for file in (part.inline_data, part.file_data) if file is not None]
        if len(files) != 1:
            raise InvalidRequestError.at(at, "must hold inlineData or fileData")
        if files[0].display_name:
            yield f"{files[0].display_name}:"
        yield _picture(at, part.inline_data, part.file_data)


def _piece(where: str, part: PartBody) -> Piece:
    """A text or a picture."""
    if part.thought_signature:
        leave_out(ROUTE, "'parts.thoughtSignature' of a user", "only the model has thoughts")
    if part.text is not None and part.kinds == ["text"]:
        return part.text
    if part.inline_data is None and part.file_data is None:
        raise NotSupportedError.at(where, "parts are text, inlineData, fileData, functionCall or functionResponse here")
    return _picture(where, part.inline_data, part.file_data)


def _picture(where: str, data: BlobField | None, file: FileField | None) -> Picture:
    """A file that is a picture, by its bytes or its address."""
    at = f"{where}.{'fileData' if data is None else 'inlineData'}"
    mime_type = data.mime_type if data is not None else file.mime_type if file is not None else ""
    if mime_type and not mime_type.lower().startswith("image/"):
        raise NotSupportedError.at(
            f"{at}.mimeType", f"this server reads text and images only, not {mime_type[:64]!r}; send its text"
        )
    return Picture.of_base64(data.data, at) if data is not None else Picture(file.file_uri if file else "", at)


def _sealed_thoughts(signature: str | None) -> str:
    """Thoughts that an answer did not show; empty for a signature of another server."""
    try:
        data = base64.b64decode((signature or "").replace("-", "+").replace("_", "/"), validate=True)
        thoughts = unsealed(data.decode("utf-8"))
    except ValueError:
        thoughts = ""
    if signature and not thoughts:
        leave_out(ROUTE, "'parts.thoughtSignature' of another server", "only that server can read it")
    return thoughts
