"""`uad trim`: a smaller draft, with the part of the vocabulary that a corpus uses."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uad.common.files import path_of, size_text
from uad.config.argv import Parser
from uad.console import progress, set_up_logging
from uad.errors import ConfigError

if TYPE_CHECKING:
    from uad.commands.trimming import Trimmed

_DESCRIPTION = """Write a smaller draft: it keeps the tokens that a corpus uses most, and what these are made of.

A draft's vocabulary need not match the target's. Text of the kept tokens is cut into the same tokens as before, and
they get the same logits. What other text is made of is spelled in shorter tokens, at worst in bytes, so the draft is of
little use in languages that the corpus lacks. Texts of your own make the best corpus: what you ask and what is
answered, in your languages, and your code.

Without --corpus it is Python's library and uad's own source (English and code), with words and sentences of 15
languages."""
_EPILOG = """examples: uad trim DRAFT.gguf -o SMALL.gguf
          uad trim DRAFT.gguf -o SMALL.gguf --type q4_0
          uad trim DRAFT.gguf -o SMALL.gguf --corpus notes/ src/ answers.txt --keep 12000"""
_LEAST, _MOST = 1, 10_000_000


def main(argv: Sequence[str]) -> int:
    """Count, cut, write and say what became of it. Raises UadError."""
    parser = _parser()
    args = parser.parse(argv)
    keep = None if args.keep is None else _whole(args.keep)
    set_up_logging(logging.WARNING)

    from uad.commands.trimming import trim

    with progress(sys.stderr) as report:
        trimmed = trim(args.draft, args.output, args.corpus or (), keep, report, args.type)
    print("\n".join(summary(trimmed)))
    return 0


def _parser() -> Parser:
    parser = Parser("uad trim", _DESCRIPTION, _EPILOG, "DRAFT -o OUT")
    parser.add_argument("draft", metavar="DRAFT", type=path_of, help="GGUF file of the draft model")
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=path_of, required=True, help="GGUF file to write; replaced if it exists"
    )
    parser.add_argument(
        "--corpus",
        metavar="FILE",
        nargs="+",
        type=path_of,
        action="extend",
        help="text files, or folders of them, that say which tokens are needed; your own texts make it better",
    )
    parser.add_argument(
        "--keep", metavar="N", help="keep at most N tokens, bytes and specials included (default: 16384)"
    )
    parser.add_argument(
        "--type",
        metavar="TYPE",
        help="also write the weights in q4_0, q8_0 or bf16: on CPUs q4_0 is mostly the fastest (default: as they are)",
    )
    return parser


def _whole(text: str) -> int:
    value = int(text) if text.strip().isascii() and text.strip().isdigit() and len(text) < 20 else 0
    if not _LEAST <= value <= _MOST:
        raise ConfigError(f"--keep: {text!r} is not a whole number from {_LEAST} to {_MOST}")
    return value


def summary(trimmed: Trimmed) -> list[str]:
    """What was written, for people."""
    before, after = trimmed.tokens
    lines = [
        f"{trimmed.path}: {after:,} of {before:,} tokens of {trimmed.source.name}, "
        f"which are {100 * trimmed.share:.1f} % of the tokens of the corpus"
    ]
    rows = [("file", trimmed.file), *((tensor.name, tensor) for tensor in trimmed.tensors)]
    width = max(len(name) for name, _ in rows)
    return lines + [
        f"  {name:<{width}}  {size_text(sizes.before):>10} -> {size_text(sizes.after)}" for name, sizes in rows
    ]
