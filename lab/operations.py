"""Which operations of a model's graph depend on how many rows a pass has: `python lab/operations.py MODEL.gguf ...`.

The same ids are decoded in passes of 1, 2, 7 and 40 rows, alone and with three other sequences beside them. llama.cpp
shows each operation's result (`cb_eval`). A row of a pass is compared with the row of the same id alone, bit by bit. An
operation counts where its row differs though the rows of all its inputs are equal: so consequences do not.

Operations run one by one then, so llama.cpp fuses none of them. The column "rows" has what the logits say without that.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from uad.base.config import ModelConfig
from uad.base.types import Rows
from uad.llama.backend.ggml import function
from uad.llama.backend.symbols import NativeTensor
from uad.llama.context import Context
from uad.llama.kernels import use as kernels
from uad.llama.model import Model

SIZES = (40, 7, 2, 1)
SLOTS = 4
Bits = npt.NDArray[Any]
_F32, _MINUS_ZERO = 0, 1 << 31
_TYPES = {_F32: np.uint32, 1: np.uint16, 26: np.uint32, 27: np.uint64, 30: np.uint16}
_VIEWS = {"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"}
_PRODUCTS = {"MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT"}
# results are those of all tokens, and then the states after them; the source that has a token's width, and the state
_SCANS = {"SSM_SCAN": (1, 0), "GATED_DELTA_NET": (2, 5)}
_MIXING = {"SSM_CONV", "SSM_SCAN", "GATED_DELTA_NET", "CONCAT", "FLASH_ATTN_EXT", "CUMSUM", "SOLVE_TRI"}
_WRITES = {"SET_ROWS", "CPY"}


class Leaf(NamedTuple):
    """A source that no operation computes. buffer: the kind that it lies in."""

    name: str
    buffer: str
    sizes: tuple[int, ...]

    @property
    def is_cache(self) -> bool:
        return self.name.startswith("cache_")


@dataclass(slots=True)
class Node:
    """An operation that has run. sizes: the outermost first; root: the leaf that it is a view of; ran: what counted it
    in uad's library, "" for llama.cpp; bits: of what is compared.
    """

    op: str
    name: str
    kind: int
    sizes: tuple[int, ...]
    sources: tuple[int | Leaf, ...]
    source_sizes: tuple[tuple[int, ...], ...]
    root: Leaf | None
    ran: str = ""
    bits: Bits | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.op, re.sub(r"node_\d+|leaf_\d+|\(copy\)| \(.*\)", "", self.name)

    @property
    def writes(self) -> str:
        """The cache that it writes into, "" for none."""
        return self.root.name if self.op in _WRITES and self.root is not None and self.root.is_cache else ""


@dataclass
class Pass:
    """A pass: its first position, ids of each sequence, sequences, and its operations in order."""

    first: int
    n: int
    n_seq: int
    nodes: list[Node] = field(default_factory=list)
    logits: Bits = field(default_factory=lambda: np.empty((0, 0), np.uint32))

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        return tuple(one.key for one in self.nodes)


# --- seeing operations


class Watched(Context):
    """A context that keeps what each operation of a pass computes."""

    def _parameters(self, config: ModelConfig, n_ctx: int) -> Any:
        self.seen: Pass | None = None
        self._numbers: dict[int, int] = {}
        self._before: dict[str, int] = {}
        self._callback = lib.ggml_backend_sched_eval_callback(self._see)
        params = super()._parameters(config, n_ctx)
        params.cb_eval = self._callback
        return params

    def run(self, ids: Sequence[Sequence[int]], first: int, is_watched: bool = True) -> Pass:
        """Decode these ids of each sequence from a position on."""
        done = Pass(first, len(ids[0]), len(ids))
        self._numbers.clear()
        self.seen = done if is_watched else None
        self.decode([Rows(seq, first, tuple(one), len(one)) for seq, one in enumerate(ids)])
        self.seen = None
        done.logits = self.logits()[: done.n].view(np.uint32).copy()
        return done

    def _see(self, address: int, ask: bool, _user: object) -> bool:
        if self.seen is None:
            return False
        if ask:
            self._before = kernels.counts()
            return True
        tensor = NativeTensor.from_address(address)
        node = self._node(tensor, address)
        node.ran = next((what for what, n in kernels.counts().items() if n > self._before[what]), "")
        if node.op not in _VIEWS and not node.writes and tensor.type in _TYPES:
            node.bits = _bits(tensor)
        self._numbers[address] = len(self.seen.nodes)
        self.seen.nodes.append(node)
        return True

    def _node(self, tensor: NativeTensor, address: int) -> Node:
        op = function("ggml_op_desc")(address).decode()
        sources = tuple(one for one in tensor.src if one)
        root = _root(tensor)
        return Node(
            op,
            tensor.name.decode(errors="replace"),
            tensor.type,
            tuple(reversed(tensor.ne)),
            tuple(self._numbers[one] if one in self._numbers else _leaf(one) for one in sources),
            tuple(tuple(reversed(NativeTensor.from_address(one).ne)) for one in sources),
            root,
        )


def _leaf(address: int) -> Leaf:
    tensor = NativeTensor.from_address(address)
    kind = function("ggml_backend_buffer_get_type")(tensor.buffer) if tensor.buffer else None
    name = function("ggml_backend_buft_name")(kind) if kind else b""
    return Leaf(tensor.name.decode(errors="replace"), name.decode(), tuple(reversed(tensor.ne)))


def _root(tensor: NativeTensor) -> Leaf | None:
    root = None
    while tensor.view_src:
        root = tensor.view_src
        tensor = NativeTensor.from_address(root)
    return None if root is None else _leaf(root)


def _bits(tensor: NativeTensor) -> Bits:
    kind = np.dtype(_TYPES[tensor.type])
    n_bytes = sum((n - 1) * step for n, step in zip(tensor.ne, tensor.nb, strict=True)) + kind.itemsize
    if n_bytes <= 0 or 0 in tensor.ne:
        return np.empty(tuple(reversed(tensor.ne)), kind)
    flat = np.frombuffer(ctypes.string_at(tensor.data, n_bytes), np.uint8)
    shape, steps = tuple(reversed(tensor.ne)), tuple(reversed(tensor.nb))
    bits = np.ndarray(shape, kind, flat.tobytes(), 0, steps)
    # a state is cleared by a product with 0, which keeps the signs of what was there: both zeros are equal
    return bits if tensor.type != _F32 else np.where(bits == _MINUS_ZERO, kind.type(0), bits)


# --- rows


class Pair(NamedTuple):
    """Bits to compare: those of a token (its place in the pass) in a pass, and alone."""

    token: int
    found: Bits
    alone: Bits


def pairs(node: Node, one: Pass, alone: Sequence[Node], is_end: bool) -> Iterator[Pair]:
    """Pairs that have to be equal. alone: the same operation in passes of a single row, by position. Raises ValueError
    where no row is known by its shape.
    """
    assert node.bits is not None
    n, n_seq, ref = one.n, one.n_seq, alone[one.first]
    if node.op in _SCANS:
        yield from _scanned(node, one, alone)
        return
    changed = [d for d in range(4) if node.sizes[d] != ref.sizes[d]]
    offset = next((d for d in changed if node.sizes[d] - ref.sizes[d] == n - 1 > 0 and ref.sizes[d] > 1), None)
    if offset is not None and node.op == "CONCAT":  # states, and tokens after them
        bits = _first(node.bits, [d for d in changed if d != offset], n_seq)
        for j in range(n):
            yield Pair(j, np.take(bits, range(j, j + ref.sizes[offset]), offset), _of(alone, one.first + j))
        return
    bits, has_tokens = node.bits, n == 1
    front: Bits | None = None
    for d in changed:
        ratio, rest = divmod(node.sizes[d], ref.sizes[d])
        if rest:
            raise ValueError
        if ratio == n_seq:
            bits = np.take(bits, range(ref.sizes[d]), d)
        elif ratio in (n, n * n_seq) and not has_tokens:
            shape = (*bits.shape[:d], ratio, ref.sizes[d], *bits.shape[d + 1 :])
            front, has_tokens = np.moveaxis(bits.reshape(shape), d, 0)[:n], True
            bits = front[0]
            if any(node.sizes[e] != ref.sizes[e] * n_seq for e in changed if e != d):
                raise ValueError
            for e in changed:
                if e != d:
                    front = np.take(front, range(ref.sizes[e]), e + 1)
            break
        else:
            raise ValueError
    if front is not None:
        for j in range(n):
            yield Pair(j, front[j], _of(alone, one.first + j))
        return
    at = n - 1 if is_end else 0  # a state, before or after the pass
    yield Pair(at, bits, _of(alone, one.first + at))


def _of(alone: Sequence[Node], position: int) -> Bits:
    bits = alone[position].bits
    assert bits is not None
    return bits


def _first(bits: Bits, dims: Sequence[int], n_seq: int) -> Bits:
    for d in dims:
        bits = np.take(bits, range(bits.shape[d] // n_seq), d)
    return bits


def _scanned(node: Node, one: Pass, alone: Sequence[Node]) -> Iterator[Pair]:
    assert node.bits is not None
    flat, (x, state) = node.bits.reshape(-1), _SCANS[node.op]
    width = node.source_sizes[x][3] * node.source_sizes[x][2]
    size = int(np.prod(alone[one.first].source_sizes[state][1:]))  # of one sequence
    for j in range(one.n):
        ref = _of(alone, one.first + j).reshape(-1)
        yield Pair(j, flat[j * width : (j + 1) * width], ref[:width])
    last = _of(alone, one.first + one.n - 1).reshape(-1)
    behind = one.n * one.n_seq * width
    yield Pair(one.n - 1, flat[behind : behind + size], last[width : width + size])


# --- comparing


@dataclass
class Found:
    """Operations of one kind whose rows have other bits though their inputs are equal. nodes: how many; sizes: passes
    in which they differ, as rows or rows x sequences; most: the greatest difference, in parts of the row's largest.
    """

    nodes: set[int] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    most: float = 0.0


class Comparison:
    """Compares passes of one size with single rows."""

    def __init__(self, alone: Sequence[Pass]) -> None:
        self.alone = alone
        self.keys = alone[0].keys
        if any(one.keys != self.keys for one in alone):
            raise SystemExit("operations: graphs of single rows differ from each other")
        self.found: dict[tuple[str, str], Found] = defaultdict(Found)
        self.others: dict[str, set[str]] = defaultdict(set)
        self.compared: set[int] = set()
        self._differ: dict[int, set[int]] = defaultdict(set)  # of an operation alone: positions
        self._caches: dict[str, set[int]] = defaultdict(set)

    def of(self, passes: Sequence[Pass]) -> None:
        """Passes of one size, in order."""
        self._differ.clear()
        self._caches.clear()
        for one in passes:
            self._pass(one, _matched(one.keys, self.keys))

    def _pass(self, one: Pass, number_of: dict[int, int]) -> None:
        size = f"{one.n}x{one.n_seq}" if one.n_seq > 1 else str(one.n)
        unknown = {i for i in range(len(one.nodes)) if i not in number_of}
        for i in unknown:
            if one.nodes[i].op not in _VIEWS:
                self.others[size].add(_title(one, i))
        cells = [""] * len(one.nodes)
        has_tokens = [False] * len(one.nodes)
        for i, node in enumerate(one.nodes):
            has_tokens[i] = any(
                has_tokens[s] if isinstance(s, int) else s.name.startswith("inp_") for s in node.sources
            )
            cells[i] = _cells(one, i, cells)
            if node.writes:
                self._caches[node.writes] |= self._dirty(one, i, number_of)[1]
            if node.bits is None or i in unknown or not has_tokens[i]:
                continue
            alone = [single.nodes[number_of[i]] for single in self.alone]
            try:
                differ = self._compare(one, node, alone, cells[i] == "scores")
            except ValueError:
                self.others[size].add(_title(one, i) + " (shape)")
                unknown.add(i)
                number_of.pop(i)
                continue
            self.compared.add(number_of[i])
            if not differ:
                continue
            self._differ[number_of[i]] |= set(differ)
            same, ever = self._dirty(one, i, number_of)
            own = [t for t in differ if t not in same and not any(earlier <= t for earlier in ever)]
            if own:
                found = self.found[_title(one, i), _where(one, i)]
                found.nodes.add(number_of[i])
                found.sizes[size] = found.sizes.get(size, 0) + len(own)
                found.most = max(found.most, *(differ[t] for t in own))

    def _compare(self, one: Pass, node: Node, alone: Sequence[Node], is_scores: bool) -> dict[int, float]:
        """Positions whose rows differ, and by how much."""
        out = dict[int, float]()
        for token, bits, ref in pairs(node, one, alone, True):
            at = one.first + token
            if is_scores:  # what is written later is hidden
                bits, ref = bits[..., : at + 1], ref[..., : at + 1]
            if bits.size != ref.size:
                raise ValueError
            if not np.array_equal(bits.reshape(-1), ref.reshape(-1)):
                out[at] = max(out.get(at, 0.0), _far(bits.reshape(-1), ref.reshape(-1), node.kind))
        return out

    def _dirty(self, one: Pass, i: int, number_of: dict[int, int]) -> tuple[set[int], set[int]]:
        """Positions at which inputs differ: those that only matter to the same row, and those that do to later ones."""
        same, ever = set[int](), set[int]()
        node = one.nodes[i]
        is_mixing = node.op in _MIXING or node.writes or (node.op == "MUL_MAT" and isinstance(node.sources[0], int))
        stack = list(node.sources)
        done = set[int]()
        while stack:
            source = stack.pop()
            if isinstance(source, Leaf):
                ever |= self._caches.get(source.name, set())
                continue
            if source in done:
                continue
            done.add(source)
            other = one.nodes[source]
            if other.root is not None and other.root.is_cache:
                ever |= self._caches.get(other.root.name, set())
            if other.bits is None or source not in number_of:
                stack += other.sources
                is_mixing = is_mixing or (source not in number_of and other.bits is not None)
            else:
                same |= self._differ.get(number_of[source], set())
                if not self._differ.get(number_of[source]) and not _has_row(one, other):
                    stack += other.sources
        return (same, ever | same) if is_mixing else (same, ever)


def _has_row(one: Pass, node: Node) -> bool:
    """Whether it has values of this pass's tokens: what has not is a state or a part of the cache."""
    return one.n == 1 or any(size % one.n == 0 for size in node.sizes)


def _far(bits: Bits, ref: Bits, kind: int) -> float:
    if kind != _F32:
        return 1.0
    a, b = bits.view(np.float32).astype(np.float64), ref.view(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        return float(np.nanmax(np.where(np.isfinite(a - b), np.abs(a - b), 0)) / (np.nanmax(np.abs(b)) or 1.0))


def _cells(one: Pass, i: int, cells: Sequence[str]) -> str:
    """ "scores": a column for each cell of the cache; "weights": the same, and hidden cells are zeros."""
    node = one.nodes[i]
    of = [cells[s] for s in node.sources if isinstance(s, int)]
    if node.op == "SOFT_MAX":
        return "weights" if "scores" in of else ""
    if node.op == "MUL_MAT":
        first = node.sources[0]
        if isinstance(first, Leaf):
            return ""
        reads = _reads_cache(one, first)
        return "" if not reads or "weights" in of else "scores"
    if node.op in _PRODUCTS or node.op in _SCANS or node.op == "GET_ROWS":
        return ""
    return next((name for name in of if name), "")


def _reads_cache(one: Pass, i: int) -> bool:
    """Whether it is a part of a cache of keys or values, in whatever order."""
    node = one.nodes[i]
    if node.root is not None and node.root.name.startswith(("cache_k", "cache_v")):
        return True
    return (node.op in _VIEWS or node.op in ("CONT", "CPY")) and any(
        isinstance(s, int) and _reads_cache(one, s) for s in node.sources
    )


@lru_cache(maxsize=64)
def _blocks(a: tuple[tuple[str, str], ...], b: tuple[tuple[str, str], ...]) -> tuple[tuple[int, int, int], ...]:
    if a == b:
        return ((0, 0, len(a)),)
    return tuple(tuple(one) for one in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks())  # type: ignore[misc]


def _matched(a: tuple[tuple[str, str], ...], b: tuple[tuple[str, str], ...]) -> dict[int, int]:
    """Operations of a graph, and which they are in another one."""
    return {i + k: j + k for i, j, n in _blocks(a, b) for k in range(n)}


def _title(one: Pass, i: int) -> str:
    """The kind of operation, and its name without the number of its layer; that of its first source where it has
    none.
    """
    node = one.nodes[i]
    name = node.key[1]
    if not name.strip(" -"):
        names = (one.nodes[s].key[1] if isinstance(s, int) else s.name for s in node.sources)
        name = "of " + next((x for x in names if x.strip(" -")), "?")
    name = re.sub(r"blk\.\d+\.|[-_]l?\d+$| \(.*\)|\.weight", "", name)
    return f"{node.op} {name}"


def _where(one: Pass, i: int) -> str:
    """Who computed it, and with what."""
    node = one.nodes[i]
    if node.op not in _PRODUCTS:
        return "llama.cpp"
    return f"{'uad' if node.ran else 'llama.cpp'}, {_operands(one, node)}"


def _operands(one: Pass, node: Node) -> str:
    if node.op == "FLASH_ATTN_EXT":
        return "cache"
    leaf, source = None, node.sources[0]
    while leaf is None:
        if isinstance(source, Leaf):
            leaf = source
        elif one.nodes[source].op in _VIEWS:
            source = one.nodes[source].sources[0]
        else:
            break
    if leaf is None:
        return "activations"
    return "cache" if leaf.is_cache else f"weights in {leaf.buffer}"


# --- a model


@dataclass
class Result:
    """The findings on one model, in one way. ran: by operands of products, how many ran where; left: operations that
    were not compared, since they only move rows; n_rows, n_other: rows of logits without the callback, and those with
    other bits than alone.
    """

    found: dict[tuple[str, str], Found]
    others: dict[str, set[str]]
    ran: dict[str, list[int]]
    ops: dict[str, int]
    left: list[str]
    n_rows: int = 0
    n_other: int = 0


def examine(path: Path, has_kernels: bool, flash_attn: str, n_threads: int, sizes: Sequence[int]) -> Result:
    """Decode as many ids as the largest size has in passes of each size, and compare."""
    n_ids = max(sizes)
    config = ModelConfig(
        path, n_ctx=SLOTS * -(-max(sizes) // 256) * 256, n_threads=n_threads, kernels=has_kernels, flash_attn=flash_attn
    )
    with Model(config) as model, Watched(model, config, SLOTS) as context:
        ids = [
            [(7 + 31 * seq + i * (17 + seq)) % (context.n_vocab - 1) + 1 for i in range(n_ids)] for seq in range(SLOTS)
        ]
        alone = _passes(context, ids[:1], 1, True)
        comparison = Comparison(alone)
        kept: list[Pass] = []
        for n_seq in (1, SLOTS):
            for n in sizes:
                if n * n_seq > 1:
                    kept = _passes(context, ids[:n_seq], n, True)
                    comparison.of(kept)
        result = Result(dict(comparison.found), dict(comparison.others), *_ran(alone[0]), _left(comparison))
        plain = np.concatenate([one.logits for one in _passes(context, ids[:1], 1, False)])
        for n_seq in (1, SLOTS):
            for n in sizes:
                if n * n_seq > 1:
                    rows = np.concatenate([one.logits for one in _passes(context, ids[:n_seq], n, False)])
                    result.n_rows += len(rows)
                    result.n_other += int((rows != plain).any(axis=1).sum())
    return result


def _passes(context: Watched, ids: Sequence[Sequence[int]], n: int, is_watched: bool) -> list[Pass]:
    for seq in range(SLOTS):
        context.clear(seq)
    starts = range(0, len(ids[0]), n)
    return [context.run([one[at : at + n] for one in ids], at, is_watched) for at in starts]


def _ran(one: Pass) -> tuple[dict[str, list[int]], dict[str, int]]:
    ran: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    ops: dict[str, int] = defaultdict(int)
    for node in one.nodes:
        if node.op not in _VIEWS:
            ops[node.op] += 1
        if node.op in _PRODUCTS:
            ran[f"{node.op} of {_operands(one, node)}"][not node.ran] += 1
    return dict(ran), dict(ops)


def _left(comparison: Comparison) -> list[str]:
    one = comparison.alone[0]
    numbers = set(range(len(one.nodes))) - comparison.compared
    return sorted({_title(one, i) for i in numbers if one.nodes[i].op not in _VIEWS})


def show(name: str, way: str, result: Result, is_long: bool) -> None:
    """Rows of the table."""
    print(f"| {name} | {way} | {result.n_other}/{result.n_rows} | {_differing(result)} |", flush=True)
    if not is_long:
        return
    for title, (ours, theirs) in sorted(result.ran.items()):
        print(f"    {title}: {ours} in uad's library, {theirs} in llama.cpp")
    print(f"    all operations: {', '.join(f'{op} {n}' for op, n in sorted(result.ops.items()))}")
    print(f"    not compared: {', '.join(result.left) or 'none'}")
    for (title, where), found in sorted(result.found.items()):
        sizes = ", ".join(f"{size}: {n}" for size, n in found.sizes.items())
        print(f"    {title} ({where}): {len(found.nodes)} operations; rows by size {sizes}; at most {found.most:.1e}")
    for size, titles in result.others.items():
        print(f"    passes of {size} have another graph: {', '.join(sorted(titles))}")


def _differing(result: Result) -> str:
    kinds: dict[str, list[str]] = defaultdict(list)
    for title, where in sorted(result.found):
        op, _, name = title.partition(" ")
        kinds[f"{op} ({where})"].append(name)
    texts = [f"{kind}: {', '.join(dict.fromkeys(names))}" for kind, names in kinds.items()]
    if result.others:
        texts.append(f"another graph for {', '.join(result.others)}")
    return "; ".join(texts) or "none"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--no-kernels", action="store_true", help="llama.cpp's kernels")
    parser.add_argument("--flash-attn", choices=("on", "off", "both"), default="both")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=SIZES, help="sizes of passes; the largest is how many ids"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--long", action="store_true", help="each operation, and where products ran")
    args = parser.parse_args(argv)
    print("| model | | rows of logits that differ | operations whose rows differ first |\n|---|---|---|---|")
    for path in args.models:
        for flash_attn in ("on", "off") if args.flash_attn == "both" else (args.flash_attn,):
            way = f"{'llama.cpp' if args.no_kernels else 'kernels'}, flash attention {flash_attn}"
            show(path.stem, way, examine(path, not args.no_kernels, flash_attn, args.threads, args.rows), args.long)
    return 0


if __name__ == "__main__":
    sys.exit(main())
