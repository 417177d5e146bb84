"""A draft made smaller by the words of a corpus, for `uad trim`: its vocabulary opened, the corpus counted, the new
file written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uad.errors import ModelLoadError
from uad.gguf import GgufFile
from uad.llama.model import check_type, quantize
from uad.llama.vocab import load_vocab
from uad.runtime.target import Progress
from uad.trim.choose import DEFAULT_KEEP, Ways, choose, share
from uad.trim.corpus import bundled, count, named
from uad.trim.cut import Sizes, check_output, check_source, write_trimmed
from uad.trim.vocabulary import Vocabulary, read_vocabulary
from uad.vocab.encode import Encoder
from uad.vocab.table import VocabTable


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What was written: tokens and bytes of the file before and after, the share of the corpus' tokens that stay, and
    the tensors cut.
    """

    source: Path
    path: Path
    tokens: tuple[int, int]
    share: float
    file: Sizes
    tensors: tuple[Sizes, ...]


def trim(
    source: Path, out: Path, corpus: Sequence[Path], keep: int | None, report: Progress, kind: str | None = None
) -> Trimmed:
    """Write `out`, the draft `source` with at most `keep` tokens (a default if None): those that the corpus uses most,
    and what they need.

    Overwrites. Without a corpus the bundled one is used. kind: the type in which weights are written again (None: as
    they are). Raises ModelLoadError for a file that cannot be used, ConfigError for the rest.
    """
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
    table = load_vocab(source)
    if table.n_vocab != len(vocabulary.tokens):
        raise ModelLoadError(
            f"{source}: llama.cpp finds {table.n_vocab} tokens in it, its header has {len(vocabulary.tokens)}"
        )
    return table
