"""Members of requests that are known, and are left out: the one table of all APIs but Google's, which has its own.
docs/apis.md shows it, and a test compares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from uad.base.errors import InvalidRequestError
from uad.http.requests.left_out import account_for

_CACHED = "prompts are cached without being asked"
_CITED = "what was cited is in the text"
_BILLS = "it is for bills and statistics"
_ONE_MACHINE = "all requests are answered by this machine, in one way"
_NOTHING_KEPT = "this server keeps no answers"
_NOTHING_RUNS = "nothing runs here; send tools that the client runs"
_NO_PLACE = "no template has a place for it"
_SAID = "what it says stands in the message's other members, too"
_SEEN_WHOLE = "the model's projector decides how a picture is seen"

NO_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(("user", "safety_identifier", "metadata", "end_user_id", "session_id", "chat_id"), _BILLS),
    **dict.fromkeys(("service_tier", "speed", "inference_geo", "provider", "models", "route", "plugins"), _ONE_MACHINE),
    **dict.fromkeys(("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "cache_control"), _CACHED),
    **dict.fromkeys(("store", "background"), _NOTHING_KEPT),
    **dict.fromkeys(("mcp_servers", "container", "web_search_options", "max_tool_calls"), _NOTHING_RUNS),
    "anthropic_version": "all versions from 2023-06-01 on are answered alike",
    "anthropic_beta": "what is new in a version of Anthropic's API is there without being asked for, or not at all",
    "context_management": "nothing is dropped from a conversation; one that is too long is refused",
    "moderation": "nothing is judged here",
    "verbosity": _NO_PLACE,
    **dict.fromkeys(("prompt", "messages", "input"), "what this route answers stands in another member"),
    "reasoning.summary": "thoughts are given whole",
    "text.verbosity": _NO_PLACE,
    "messages.reasoning_details": _SAID,
    "messages.thinking_blocks": _SAID,
    "messages.provider_specific_fields": _SAID,
    **dict.fromkeys((f"{parent}.parsed" for parent in ("messages", "content")), _SAID),
    **dict.fromkeys((f"{parent}.parsed_arguments" for parent in ("function", "input")), _SAID),
    "content.parsed_output": _SAID,
    **dict.fromkeys((f"{parent}.annotations" for parent in ("messages", "content")), _CITED),
    **dict.fromkeys((f"messages.{name}" for name in ("id", "object", "model", "status", "created_at")), _NO_PLACE),
    **dict.fromkeys((f"messages.{name}" for name in ("createdAt", "timestamp", "metadata", "usage")), _NO_PLACE),
    **dict.fromkeys((f"messages.{name}" for name in ("stop_reason", "stop_details", "phase")), _NO_PLACE),
    **dict.fromkeys((f"input.{name}" for name in ("id", "status", "phase", "namespace", "created_by")), _NO_PLACE),
    **dict.fromkeys(
        (f"{parent}.cache_control" for parent in ("messages", "content", "system", "tools", "function", "tool_calls")),
        _CACHED,
    ),
    **dict.fromkeys((f"{parent}.prompt_cache_breakpoint" for parent in ("content", "output", "input")), _CACHED),
    **dict.fromkeys((f"{parent}.citations" for parent in ("content", "system")), _CITED),
    **dict.fromkeys((f"{parent}.logprobs" for parent in ("messages", "content")), _NO_PLACE),
    **dict.fromkeys((f"{parent}.detail" for parent in ("image_url", "content", "output")), _SEEN_WHOLE),
    **dict.fromkeys((f"{parent}.id" for parent in ("content", "output", "summary")), _NO_PLACE),
    "source.media_type": "the data says what it is",
    "content.caller": _NOTHING_RUNS,
    "content.thought_signature": _NO_PLACE,
    "tool_calls.extra_content": _NO_PLACE,
    "tool_calls.caller": _NOTHING_RUNS,
    "tool_calls.index": _NO_PLACE,
    "function.index": _NO_PLACE,
    "input.caller": _NOTHING_RUNS,
    "tools.allowed_callers": _NOTHING_RUNS,
    "tools.input_examples": _NO_PLACE,
    "tools.eager_input_streaming": "arguments are streamed as they are written",
    "tools.output_schema": _NO_PLACE,
    "function.output_schema": _NO_PLACE,
    **dict.fromkeys((f"tools.display_{name}" for name in ("width_px", "height_px", "number")), _NO_PLACE),
    "tools.max_characters": "the client cuts what its tool reads",
    "json_schema.name": "the schema says what the answer is",
    "json_schema.description": _NO_PLACE,
    "format.name": "the schema says what the answer is",
    "format.description": _NO_PLACE,
    "output_format.name": "the schema says what the answer is",
    "schema.format": "schemas have it for a note; dates, times, addresses, URIs and UUIDs are kept to",
    "schema.nullable": 'schemas have no such word; send a type such as ["string", "null"]',
    "schema.required": "a member is required by the list of its object; true says nothing",
    **dict.fromkeys((f"schema.content{word}" for word in ("Encoding", "MediaType", "Schema")), "texts are not decoded"),
}
"""From `parent.member`, or `member` at the top, to why it has no effect."""
CONTENT = frozenset(
    (
        *("documents", "document", "files", "file", "file_ids", "attachments", "images", "image", "image_data"),
        *("audio", "videos", "video", "context", "system", "instructions", "inputs", "examples", "history"),
        *("conversation", "previous_response_id", "system_prompt", "query", "knowledge"),
    )
)
"""Names of members at the top that hold what is to be answered, in some API."""
_LONGEST_WORD = 256  # characters of a name or an id


def account_for_top(given: Mapping[str, object], read: Collection[str]) -> None:
    """Account for the members of a request that are not `read`. Settings of other servers are left out with a line in
    the log. Raises InvalidRequestError for what holds content, and would be lost.
    """
    for name, value in given.items():
        if name not in read and name not in NO_EFFECT and value and (name in CONTENT or _holds_text(value)):
            raise InvalidRequestError.at(name[:64], "is not read by this server, and would be lost; leave it out")
    rest = {name: True for name, value in given.items() if name not in read and value not in (None, "", [], {}, False)}
    account_for(rest, read, NO_EFFECT, "a request")


def _holds_text(value: object) -> bool:
    """Whether there is a text in it that is no mere name or number."""
    if isinstance(value, str):
        return len(value) > _LONGEST_WORD or len(value.split()) > 1
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_holds_text, inner))
