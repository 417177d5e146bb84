"""`uad bench` with its parts scale, translate, drafters and requests: hand over to uad.bench, which measures and writes models."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from uad.cli.console import progress, set_up_logging
from uad.common.files import path_of
from uad.config.argv import Parser
from uad.errors import ConfigError

_PARAMS, _TYPE = "1b", "bf16"
_DESCRIPTION = "Measure plain against drafted decoding in one process. The last line of output is JSON."
_EPILOG = (
    "`uad bench scale SRC OUT` writes a target that costs as much as a large model; "
    "`uad bench translate` measures the crossing between vocabularies; "
    "`uad bench drafters` measures drafting without a model; "
    "`uad bench requests` measures whole requests of running servers: see their --help."
)
_TRANSLATE = """Measure the crossing between two vocabularies: cost per round at several context lengths, and what is lost.

Losses are those of an ideal drafter, which proposes exactly the bytes that the target will write, cut into 8 of its own tokens.
The naive method beside it encodes the draft's bytes alone, and the whole context in every round. The last line is JSON."""
_DRAFTERS = """Measure what the drafters without a model cost per round, by length of history, and how much memory they take.

A scripted target repeats its history with edits (copy), writes words by their frequency (zipf), or repeats nothing (random). No model
is needed. The last line is JSON."""
_REQUESTS = """Measure whole requests of a running server: time to the first token and in all, with drafts, without, and on other servers.

Every prompt goes to each in turn, and none is in a cache. The last line is JSON."""
_SCALE = """Write a target that computes the same function as SRC at the cost of a larger model.

Width is padded with zeros and layers are added that change nothing, so that speed can be measured without large weights.
The text is SRC's: what such a model shows is cost, not quality.

With --random-weights it is SRC with other weights instead, of the same size: a deliberately bad draft."""


def main(argv: Sequence[str]) -> int:
    """Run the bench, or write a scaled model. Raises UadError."""
    if argv and argv[0] == "scale":
        return _scale(argv[1:])
    if argv and argv[0] == "translate":
        return _translate(argv[1:])
    if argv and argv[0] == "drafters":
        return _drafters(argv[1:])
    if argv and argv[0] == "requests":
        return _requests(argv[1:])
    from uad.bench import run

    parser = Parser("uad bench", _DESCRIPTION, _EPILOG)
    run.add_arguments(parser)
    set_up_logging(logging.WARNING)
    return run.main(parser.parse(argv))


def _scale(argv: Sequence[str]) -> int:
    parser = Parser("uad bench scale", _SCALE, positional="SRC OUT")
    parser.add_argument("src", metavar="SRC", type=path_of, help="GGUF file to start from")
    parser.add_argument("out", metavar="OUT", type=path_of, help="GGUF file to write; replaced if it exists")
    parser.add_argument("--params", metavar="N", help=f"size to reach, such as 600m or 1b (default: {_PARAMS})")
    parser.add_argument("--type", metavar="TYPE", help=f"weight type, such as bf16, f16 or q8_0 (default: {_TYPE})")
    parser.add_argument("--random-weights", metavar="SEED", help="draw all weights at random from this seed, at SRC's size and type")
    parser.add_argument("--confident", action="store_true", help="with --random-weights: nonsense with high probabilities")
    args = parser.parse(argv)
    if args.random_weights is not None:
        return _scramble(args)
    if args.confident:
        raise ConfigError("--confident needs --random-weights SEED")

    from uad.bench.scale import scale, sentence

    with progress(sys.stderr) as report:
        scaled = scale(
            args.src,
            args.out,
            args.params or _PARAMS,
            args.type or _TYPE,
            lambda written, total: report("writing weights", written / max(total, 1)),
        )
    print(sentence(scaled))
    return 0


def _scramble(args: argparse.Namespace) -> int:
    if args.params is not None or args.type is not None:
        raise ConfigError("--random-weights keeps the size and the type of SRC; leave out --params and --type")
    if not args.random_weights.isdecimal():
        raise ConfigError(f"--random-weights must be a seed, a whole number from 0 on, not {args.random_weights!r}")
    from uad.bench.scramble import scramble, sentence

    print(sentence(scramble(args.src, args.out, int(args.random_weights), args.confident)))
    return 0


def _translate(argv: Sequence[str]) -> int:
    from uad.bench import translate

    parser = Parser("uad bench translate", _TRANSLATE)
    translate.add_arguments(parser)
    set_up_logging(logging.WARNING)
    return translate.main(parser.parse(argv))


def _requests(argv: Sequence[str]) -> int:
    from uad.bench import requests

    parser = Parser("uad bench requests", _REQUESTS, positional="URL")
    requests.add_arguments(parser)
    set_up_logging(logging.WARNING)
    return requests.main(parser.parse(argv))


def _drafters(argv: Sequence[str]) -> int:
    from uad.bench import drafters

    parser = Parser("uad bench drafters", _DRAFTERS)
    drafters.add_arguments(parser)
    set_up_logging(logging.WARNING)
    return drafters.main(parser.parse(argv))
