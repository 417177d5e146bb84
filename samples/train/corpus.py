"""The training text: Python sources cut into pieces, and synthetic chats rendered with the model's own template. Knows
no tokenizer.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import jinja2
from tasks import Turn, conversation

# tests and tables of data are poor text; site-packages may hold code under any licence
LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "locale", "idlelib", "lib2to3", "encodings"}
PIECE_CHARS = 6000
FILE_CHARS = range(401, 300_000)
SYSTEM = ("You are a helpful assistant.", "Answer briefly.", "You are a very small language model.")
SYSTEM_SHARE = 0.15


class CorpusError(Exception):
    """A corpus folder is missing or holds no Python sources."""


def documents(template: str, roots: Sequence[Path], chat_chars: int, seed: int = 0) -> list[str]:
    """Pieces of the standard library and of `roots`, and `chat_chars` characters of chats, shuffled. CorpusError names
    a useless root.
    """
    rng = random.Random(seed)
    pieces = [piece for root in (Path(sysconfig.get_path("stdlib")), *roots) for piece in source_pieces(root)]
    texts = pieces + list(chats(template, chat_chars, rng))
    rng.shuffle(texts)
    return texts


def source_pieces(root: Path) -> list[str]:
    """The Python files under `root`, long ones cut so that batches mix."""
    if not root.is_dir():
        raise CorpusError(f"corpus folder {root} does not exist")
    sources = [text for path in sorted(root.rglob("*.py")) if wanted(path.relative_to(root)) for text in read(path)]
    if not sources:
        raise CorpusError(
            f"corpus folder {root} holds no usable Python sources (*.py of 400 to 300,000 characters, tests left out)"
        )
    return [text[start : start + PIECE_CHARS] for text in sources for start in range(0, len(text), PIECE_CHARS)]


def wanted(path: Path) -> bool:
    """Whether a file, by its path below the root, belongs into the corpus."""
    return not any(part in LEFT_OUT or part.endswith("_data") for part in path.parts[:-1])


def read(path: Path) -> Iterator[str]:
    """The text of a file, if it is UTF-8 and neither tiny nor huge."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    if len(text) in FILE_CHARS:
        yield text


def chats(template: str, n_chars: int, rng: random.Random) -> Iterator[str]:
    """Rendered conversations of `n_chars` characters in all; BOS is left to the tokenizer."""
    compiled = jinja2.Environment(autoescape=False, keep_trailing_newline=True).from_string(template)
    while n_chars > 0:
        system = rng.choice(SYSTEM) if rng.random() < SYSTEM_SHARE else None
        text = compiled.render(messages=messages(conversation(rng), system), bos_token="", add_generation_prompt=False)
        n_chars -= len(text)
        yield text


def messages(turns: Sequence[Turn], system: str | None) -> list[dict[str, str]]:
    """A conversation as chat templates take it."""
    said = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        said += [{"role": "user", "content": turn.question}, {"role": "assistant", "content": turn.answer}]
    return said
