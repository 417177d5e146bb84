"""`uad bench`, `uad bench scale` and `uad bench translate`: hand over to uad.bench, which measures and writes models."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from uad.cli.console import progress, set_up_logging
from uad.config.argv import Parser

_DESCRIPTION = "Measure plain against drafted decoding in one process. The last line of output is JSON."
_EPILOG = (
    "`uad bench scale SRC OUT` writes a target that costs as much as a large model; "
    "`uad bench translate` measures the crossing between vocabularies: see their --help."
)
_TRANSLATE = """Measure the crossing between two vocabularies: cost per round at several context lengths, and what is lost.

Losses are those of an ideal drafter, which proposes exactly the bytes that the target will write, cut into 8 of its own tokens.
The naive method beside it encodes the draft's bytes alone, and the whole context in every round. The last line is JSON."""
_SCALE = """Write a target that computes the same function as SRC at the cost of a larger model.

Width is padded with zeros and layers are added that change nothing, so that speed can be measured without large weights.
The text is SRC's: what such a model shows is cost, not quality."""


def main(argv: Sequence[str]) -> int:
    """Run the bench, or write a scaled model. Raises UadError."""
    if argv and argv[0] == "scale":
        return _scale(argv[1:])
    if argv and argv[0] == "translate":
        return _translate(argv[1:])
    from uad.bench import run

    parser = Parser("uad bench", _DESCRIPTION, _EPILOG)
    run.add_arguments(parser)
    set_up_logging(logging.WARNING)
    return run.main(parser.parse(argv))


def _scale(argv: Sequence[str]) -> int:
    parser = Parser("uad bench scale", _SCALE, positional="SRC OUT")
    parser.add_argument("src", metavar="SRC", type=Path, help="GGUF file to start from")
    parser.add_argument("out", metavar="OUT", type=Path, help="GGUF file to write; replaced if it exists")
    parser.add_argument("--params", default="1b", metavar="N", help="size to reach, such as 600m or 1b (default: %(default)s)")
    parser.add_argument("--type", default="bf16", metavar="TYPE", help="weight type, such as bf16, f16 or q8_0 (default: %(default)s)")
    args = parser.parse(argv)

    from uad.bench.scale import scale, sentence

    with progress(sys.stderr) as report:
        scaled = scale(
            args.src, args.out, args.params, args.type, lambda written, total: report("writing weights", written / max(total, 1))
        )
    print(sentence(scaled))
    return 0


def _translate(argv: Sequence[str]) -> int:
    from uad.bench import translate

    parser = Parser("uad bench translate", _TRANSLATE)
    translate.add_arguments(parser)
    set_up_logging(logging.WARNING)
    return translate.main(parser.parse(argv))
