"""`uad trim`: a smaller draft, with the part of the vocabulary that a corpus uses."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uad.base.common.files import path_of, size_text
from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import integer
from uad.base.console import Report, progress, set_up_logging
from uad.base.errors import ModelLoadError

if TYPE_CHECKING:
    from uad.text.vocab.table import VocabTable
    from uad.tools.trim.cut import Sizes
    from uad.tools.trim.vocabulary import Vocabulary

_DESCRIPTION = """Write a smaller draft: it keeps the tokens that a corpus uses most, and what these are made of.

A draft's vocabulary need not match the target's. Text of the kept tokens is cut into the same tokens as before, and
they get the same logits. Other text is spelled in shorter tokens, at worst in bytes, so the draft is of
little use in languages that the corpus lacks. Texts of your own make the best corpus: what you ask and what is
answered, in your languages, and your code.

Without --corpus it is Python's library and uad's own source (English and code), with words and sentences of 15
languages."""
_EPILOG = """examples: uad trim DRAFT.gguf -o SMALL.gguf
          uad trim DRAFT.gguf -o SMALL.gguf --type q4_0
          uad trim DRAFT.gguf -o SMALL.gguf --corpus notes/ src/ answers.txt --keep 12000"""
_KEEP = integer(1, 10_000_000)


def main(argv: Sequence[str]) -> int:
    """Count, cut, write and say what became of it. Raises UadError."""
    parser = _parser()
    args = parser.parse(argv)
    set_up_logging(logging.WARNING)

    with progress(sys.stderr) as report:
        trimmed = trim(args.draft, args.output, args.corpus or (), args.keep, report, args.type)
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
        "--keep",
        metavar="N",
        type=typed(_KEEP),
        help="keep at most N tokens, bytes and specials included (default: 16384)",
    )
    parser.add_argument(
        "--type",
        metavar="TYPE",
        help="also write the weights in q4_0, q8_0 or bf16: on CPUs q4_0 is mostly the fastest (default: as they are)",
    )
    return parser


def summary(trimmed: Trimmed) -> list[str]:
    """Lines about what was written, for people."""
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


# --- the work


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A trimmed model: tokens and bytes of the file before and after, the share of the corpus' tokens that stay, and
    the tensors cut.
    """

    source: Path
    path: Path
    tokens: tuple[int, int]
    share: float
    file: Sizes
    tensors: tuple[Sizes, ...]


def trim(
    source: Path, out: Path, corpus: Sequence[Path], keep: int | None, report: Report, kind: str | None = None
) -> Trimmed:
    """Write `out`, the draft `source` with at most `keep` tokens (a default if None): those that the corpus uses most,
    and what they need.

    Overwrites. Without a corpus the bundled one is used. kind: the type in which weights are written again (None: as
    they are). Raises ModelLoadError for a file that cannot be used, ConfigError for the rest.
    """
    from uad.base.gguf import GgufFile
    from uad.llama.model import check_type, quantize
    from uad.text.vocab.encode import Encoder
    from uad.tools.trim.choose import DEFAULT_KEEP, Ways, choose, share
    from uad.tools.trim.corpus import bundled, count, named
    from uad.tools.trim.cut import Sizes, check_output, check_source, write_trimmed
    from uad.tools.trim.vocabulary import read_vocabulary

    if kind is not None:
        check_type(kind)
    with GgufFile(source) as file:
        vocabulary = read_vocabulary(file)
        check_source(file, len(vocabulary.tokens))
        check_output(source, out)
        texts = named(corpus) if corpus else bundled()
        table = _table(source, vocabulary)
        always, ways, most = always_kept(vocabulary, table), Ways(vocabulary), keep or DEFAULT_KEEP
        choose({}, always, ways, most)  # whether there is room at all is known before the corpus is read
        counts = count(texts, Encoder(table).encode, lambda done: report("reading the corpus", done))
        kept = choose(counts, always, ways, most)

        def convert(part: Path, new: Path) -> None:
            report(f"writing weights in {kind}", 0.0)
            quantize(part, new, kind or "")

        tensors = write_trimmed(
            file,
            vocabulary,
            kept,
            out,
            lambda done, total: report("writing weights", done / max(total, 1)),
            convert if kind is not None else None,
        )
        sizes = Sizes(out.name, file.size, out.stat().st_size)
    return Trimmed(source, out, (len(vocabulary.tokens), len(kept)), share(counts, kept), sizes, tensors)


def always_kept(vocabulary: Vocabulary, table: VocabTable) -> frozenset[int]:
    """Ids that stay whatever the corpus is. llama.cpp knows some specials by their names that the file calls ordinary
    text.
    """
    return vocabulary.always | table.special_ids | table.eog


def _table(source: Path, vocabulary: Vocabulary) -> VocabTable:
    from uad.llama.vocab import load_vocab

    table = load_vocab(source)
    if table.n_vocab != len(vocabulary.tokens):
        raise ModelLoadError(
            f"{source}: llama.cpp finds {table.n_vocab} tokens in it, its header has {len(vocabulary.tokens)}"
        )
    return table
