"""Trains a head for a bundled target and writes it as GGUF, with the target's vocabulary.

    python samples/train/train_head.py eagle3 samples/target-chatml.gguf out.gguf

Command line only; imports of torch and its friends wait until the packages are known to be there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from train import UsageError, check_packages

KINDS = ("dflash", "eagle3")


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="train_head.py", description="Train a head for target-chatml.gguf.")
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("target", type=Path, metavar="TARGET.gguf", help="target-chatml.gguf")
    parser.add_argument("out", type=Path, metavar="OUT.gguf", help="the file to write")
    parser.add_argument("--steps", type=int, default=2500, help="steps of training (default: %(default)s)")
    parser.add_argument("--chat-mb", type=float, default=18.0, help="megabytes of chats (default: %(default)s)")
    parser.add_argument("--seq", type=int, default=128, help="tokens per sequence (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="sequences per step (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads; a head is too small for more (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    for option in ("steps", "seq", "batch", "threads"):
        if getattr(args, option) <= 0:
            parser.error(f"--{option} must be positive")
    return args


def main(argv: list[str]) -> int:
    """Exit status 0, or 1 with one line on stderr."""
    args = parse(argv)
    try:
        if not args.target.is_file():
            raise UsageError(f"{args.target}: no such file")
        if not args.out.resolve().parent.is_dir():
            raise UsageError(f"cannot write {args.out}: its folder does not exist")
        check_packages()
        from fit_head import TargetError, train

        try:
            print(train(args))
        except TargetError as error:
            raise UsageError(str(error)) from error
    except UsageError as error:
        print(f"train_head.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
