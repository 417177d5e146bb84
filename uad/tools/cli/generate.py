"""`uad generate`: one answer, streamed to the terminal; guesses are underlined, in the colour of their drafter."""

from __future__ import annotations

import codecs
import logging
import queue
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from uad.base.common.files import check_text, decode_text, is_there, path_of, read_text
from uad.base.config import Config
from uad.base.config.argv import Parser, add_flags, give
from uad.base.console import legend, note, painted
from uad.base.errors import ConfigError
from uad.base.events import Delta, Done, Event, Failed
from uad.base.types import Request
from uad.tools.cli.models import MODEL_GROUPS, configured, has_template, runtime

if TYPE_CHECKING:
    import argparse

    from uad.runtime.runtime import Runtime

_DESCRIPTION = "Answer one prompt. The text goes to stdout, numbers to stderr."
_EPILOG = "example: uad generate target.gguf 'Tell me a story.' --draft draft.gguf --color on"


def main(argv: Sequence[str]) -> int:
    """Generate one answer. Raises UadError."""
    parser = _parser()
    add_flags(parser, MODEL_GROUPS)
    args = parser.parse(argv, most_words=2)
    _take_words(args)
    text = "" if args.file == "-" else _prompt(args.prompt, args.file)  # stdin waits until the rest is right
    config = configured(args, logging.WARNING, has_hints=True)  # the numbers are printed below
    text = text or _prompt(None, "-")
    check_text(args.prefill, "--prefill")
    config = replace(config, n_parallel=1)
    with runtime(config, quiet=not sys.stderr.isatty()) as opened:
        for line in opened.info.notes:
            note(line)
        color = args.color == "on" or (args.color == "auto" and sys.stdout.isatty())
        done = stream(
            opened, request(opened, config, text, args.chat, args.prefill), TerminalWriter(opened, sys.stdout, color)
        )
    if color and sys.stderr.isatty() and done.timings.draft.n_drafted:
        note(legend())
    note(summary(done))
    return 0


def _take_words(args: argparse.Namespace) -> None:
    """Words without a flag: the target's file, the prompt, or both in this order. Raises ConfigError."""
    has_prompt = args.prompt is not None or args.file is not None
    target, prompt = (*args.words, None, None)[:2]
    if target is not None and prompt is None and not has_prompt and not _is_model(target):
        target, prompt = None, target
    if prompt is not None and (has_prompt or _is_model(prompt)):
        draft = f"a draft model is given with --draft {prompt}" if _is_model(prompt) else "the prompt is given twice"
        raise ConfigError(f"unexpected argument {prompt!r}; {draft}")
    if prompt is not None:
        args.prompt = prompt
    if target is not None:
        give(args, "--target", target)


def _is_model(word: str) -> bool:
    return word.lower().endswith(".gguf") or is_there(path_of(word))


def _parser() -> Parser:
    parser = Parser("uad generate", _DESCRIPTION, _EPILOG, "[TARGET] [PROMPT]")
    prompt = parser.add_argument_group("prompt").add_mutually_exclusive_group()
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt")
    prompt.add_argument("-f", "--file", metavar="FILE", help="file with the prompt; - is stdin")
    chat = parser.add_argument_group("output")
    chat.add_argument(
        "--chat",
        action="store_true",
        default=None,
        help="the prompt is a user's message (default: if the model has a template)",
    )
    chat.add_argument("--no-chat", dest="chat", action="store_false", help="the prompt is text to go on from")
    chat.add_argument(
        "--prefill", metavar="TEXT", default="", help="the beginning of a chat's answer, which goes on after it"
    )
    chat.add_argument(
        "--color",
        choices=("auto", "on", "off"),
        default="auto",
        help="underline accepted guesses, in the colour of who made them (default: auto)",
    )
    return parser


def _prompt(text: str | None, file: str | None) -> str:
    if text is None and file is None:
        raise ConfigError("no prompt; give one with -p TEXT or -f FILE")
    if text is not None:
        check_text(text, "-p")
    prompt = text if text is not None else _stdin() if file == "-" else read_text(path_of(str(file)))
    if not prompt:
        raise ConfigError("the prompt is empty")
    return prompt


def _stdin() -> str:
    """UTF-8 whatever the console's encoding is, as in a file; what is typed is in that encoding."""
    return sys.stdin.read() if sys.stdin.isatty() else decode_text(sys.stdin.buffer.read(), "-f -: stdin")


def request(opened: Runtime, config: Config, text: str, chat: bool | None, prefill: str = "") -> Request:
    """The request for one prompt; `chat` None asks the model whether it has a template. Raises ConfigError for a
    prefill without a chat.
    """
    if chat or (chat is None and has_template(opened)):
        prompt = opened.text.chat([{"role": "user", "content": text}], {}, prefill=prefill)
    elif prefill:
        raise ConfigError(
            "--prefill begins the answer of a chat, and this prompt is not one; put it at the end of the prompt, or "
            "give --chat"
        )
    else:
        opened.text.check_length(text)
        prompt = opened.text.tokenize(text, add_special=True)
    return Request(
        prompt=tuple(prompt),
        sampling=config.sampling,
        speculative=config.drafting.defaults,
        max_tokens=config.n_predict if config.n_predict >= 0 else None,
        constraint=config.constraint,
    )


def stream(opened: Runtime, asked: Request, writer: TerminalWriter) -> Done:
    """Write the answer as it comes. An interrupt cancels the request; Failed events are raised as what they carry."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    id_ = opened.submit(asked, events.put)
    try:
        while True:
            match events.get():
                case Delta() as delta:
                    writer.write(delta)
                case Failed(error=error):
                    raise error
                case Done() as done:
                    writer.finish(done.text)
                    return done
    except BaseException:
        opened.cancel(id_, "interrupted")
        raise


class TerminalWriter:
    """Writes pieces of an answer. In colour it goes by ids, whose bytes may end inside a character; the decoder waits
    for the rest.
    """

    def __init__(self, opened: Runtime, out: TextIO, color: bool) -> None:
        self._runtime, self._out, self._color = opened, out, color
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, delta: Delta) -> None:
        """One event's worth."""
        if self._color:
            for id_, origin in zip(delta.ids, delta.origins, strict=True):
                if not self._runtime.text.is_special(id_):  # those are no text
                    text = self._decoder.decode(self._runtime.text.piece(id_))
                    self._out.write(painted(text, origin) if text else "")
        else:
            self._out.write(delta.text)
        self._out.flush()

    def finish(self, rest: str) -> None:
        """The end: what was held back, and a line break."""
        self._out.write(self._decoder.decode(b"", final=True) if self._color else rest)
        self._out.write("\n")
        self._out.flush()


def summary(done: Done) -> str:
    """The line of numbers after an answer."""
    timings, draft = done.timings, done.timings.draft
    line = f"{done.usage.n_predicted} tokens, {timings.predicted_per_second:.1f} tokens/s"
    if not draft.n_drafted:
        return f"{line}, nothing drafted"
    guesses = f"{draft.n_accepted} of {draft.n_drafted} guesses accepted ({draft.accept_rate:.0%})"
    if not draft.n_rounds:
        return f"{line}, {guesses}"
    return f"{line}, {guesses}, {done.usage.n_predicted / draft.n_rounds:.1f} tokens per target pass"
