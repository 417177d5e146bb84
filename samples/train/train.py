"""Trains one of the bundled models from scratch and writes it as GGUF.

    python samples/train/train.py draft-zephyr out.gguf --minutes 5 --corpus DIR --corpus DIR

Command line and progress only; imports of torch and its friends wait until the packages are known to be there.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fit import State
    from recipes import Recipe

NAMES = ("target-chatml", "draft-zephyr", "draft-gemma")
PACKAGES = ("gguf", "jinja2", "numpy", "rich", "sentencepiece", "tokenizers", "torch")


class UsageError(Exception):
    """Something about the call is wrong; the text is for people."""


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="train.py", description="Train one of the bundled models from scratch and write it as GGUF."
    )
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("out", type=Path, metavar="OUT.gguf", help="the file to write")
    parser.add_argument("--minutes", type=float, default=5.0, help="time for training proper (default: %(default)s)")
    parser.add_argument(
        "--corpus",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of Python sources besides the standard library, e.g. unpacked networkx and django wheels "
        "(repeatable)",
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to train (default: %(default)s)"
    )
    parser.add_argument(
        "--chat-mb", type=float, default=18.0, help="megabytes of synthetic chats (default: %(default)s)"
    )
    parser.add_argument("--seq", type=int, default=512, help="tokens per sequence (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=24, help="sequences per step (default: %(default)s)")
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="CPU threads; fewer than cores on a busy machine (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of chats, weights and batches (default: %(default)s)")
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile: about twice as fast after a minute; needs a C++ compiler"
    )
    args = parser.parse_args(argv)
    for option in ("minutes", "seq", "batch", "threads"):
        if not getattr(args, option) > 0:
            parser.error(f"--{option} must be positive")
    return args


def check_packages() -> None:
    """UsageError with the remedy if a package is missing or too old."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"training needs {', '.join(missing)}: pip install '.[train]'")
    import torch

    if not hasattr(torch.optim, "Muon"):
        raise UsageError(f"training needs torch 2.9 or later, this is {torch.__version__}: pip install -U '.[train]'")


def device_name(wanted: str) -> str:
    """The torch device for --device; UsageError if CUDA is asked for and absent."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch sees no CUDA device; use --device cpu")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[State], None]]:
    """A bar over the time budget with loss and speed; yields the function to report to."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} tok/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task(name, total=1.0, loss=float("nan"), speed=0.0)
        yield lambda state: progress.update(
            task, completed=min(1.0, state.done), loss=state.loss, speed=state.tokens_per_second
        )


def train(args: argparse.Namespace) -> str:
    """Corpus, vocabulary, model, file; returns a line that says what was made."""
    import numpy as np
    import torch
    from corpus import documents
    from export import export
    from fit import Plan, fit
    from model import Llama
    from rich.console import Console
    from vocabulary import learn

    console = Console(stderr=True)
    recipe, device = find_recipe(args.name), device_name(args.device)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    with console.status("reading sources and writing chats"):
        texts = documents(recipe.template, args.corpus, round(args.chat_mb * 1e6), args.seed)
    with console.status(f"learning a vocabulary of {recipe.n_vocab}"):
        vocabulary = learn(recipe, texts[::3], args.threads)
    with console.status(f"encoding {len(texts):,} documents"):
        doc = vocabulary.id_of(recipe.doc)
        ids = np.fromiter((id_ for text in vocabulary.encode(texts) for id_ in (doc, *text)), dtype=np.int32)
    n_bytes = sum(len(text.encode()) for text in texts)
    console.print(
        f"{len(texts):,} documents, {len(ids):,} tokens, {n_bytes / len(ids):.2f} bytes per token, on {device}",
        highlight=False,
    )
    model = Llama(recipe, args.seq).to(device)
    plan = Plan(args.minutes * 60, args.seq, args.batch, torch.device(device), args.compile, args.seed)
    with progress_bar(recipe.name) as report:
        state = fit(model, ids, plan, report)
    export(recipe, vocabulary, model, args.out)
    n_params = sum(weight.numel() for weight in model.parameters())
    return (
        f"{args.out}: {n_params / 1e6:.1f}M parameters, {state.n_tokens / 1e6:.1f}M tokens, loss {state.loss:.2f} "
        "nats per token"
    )


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    from recipes import RECIPES

    return next(recipe for recipe in RECIPES if recipe.name == name)


def main(argv: list[str]) -> int:
    """Exit status 0, or 1 with one line on stderr."""
    args = parse(argv)
    # read by the tokenizers package when it starts its threads
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    try:
        if not args.out.resolve().parent.is_dir():
            raise UsageError(f"cannot write {args.out}: its folder does not exist")
        check_packages()
        from corpus import CorpusError
        from fit import FitError
        from vocabulary import VocabularyError

        try:
            print(train(args))
        except (CorpusError, VocabularyError, FitError) as error:
            raise UsageError(str(error)) from error
    except UsageError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
