"""Markdown of what `make table` measured: the sections of README and docs/bench.md, and the report that the command
prints.

Both sections are made of the documents in lab/speed, one for each processor, and stand between two marks. A test
compares them to what this module makes of the documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from speed_cells import IK, PLAIN, SERVER, UAD, Document, Machine, Settings

from uad.base.errors import ConfigError
from uad.tools.bench.answers import Asked

BEGIN = "<!-- made by `make table`: python lab/speed_table.py --readme -->"
END = "<!-- the end of what `make table` made -->"
GAINS, LOSES = 1.1, 0.97
"""From here on a speed over llama-server is called a gain, and below here a loss."""
_UNITS = (("AMX_INT8", "AMX"), ("AVX512", "AVX-512"), ("AVX2", "AVX2"), ("SVE", "SVE"), ("NEON", "NEON"))
"""Names of llama.cpp's and of people, the widest first."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Line:
    """A type of weights and a number of requests at once. tps: tokens per second of a request on each server, from the
    first token on; of the whole request where several run at once. over: uad's speed over llama-server's by that;
    whole: that of whole requests; worst_category and worst_prompt: the least of the former, with their names; best: the
    fastest of llama-server's own draft types, and uad's speed over it, or None without such a type.
    """

    weights: str
    slots: int
    tps: Mapping[str, float]
    over: float
    whole: float
    categories: Mapping[str, float]
    worst_prompts: Mapping[str, float]
    worst_prompt: tuple[str, float]
    best: tuple[str, float] | None
    n_same: int
    n_prompts: int

    @property
    def worst_category(self) -> tuple[str, float]:
        return min(self.categories.items(), key=lambda one: one[1])


def lines(document: Document) -> list[Line]:
    """The document's rows, in the order of its settings; nothing for what was not measured."""
    settings = document.settings
    both = [(weights, n) for weights in settings.weights for n in settings.slots]
    return [found for weights, n in both if (found := _line(document, weights, n))]


def _line(document: Document, weights: str, n_slots: int) -> Line | None:
    servers, asked = document.servers(), document.asked(weights, n_slots)
    timed = [one for one in asked if one.is_timed]
    if not timed:
        return None
    own, at = servers.index(UAD), servers.index(SERVER)

    def speed(one: Asked, server: int) -> float:
        # a server that reads all prompts before it writes seems to decode faster, and nobody has an answer sooner
        return one.tps(server) if n_slots == 1 else 1 / one.seconds(server)

    ratios = {(one.workload, one.name): speed(one, own) / speed(one, at) for one in timed}
    categories: dict[str, list[float]] = {}
    for (category, _), ratio in ratios.items():
        categories.setdefault(category, []).append(ratio)
    tps = {name: geometric_mean([speed(one, i) for one in timed]) for i, name in enumerate(servers)}
    best = max(document.rivals, key=lambda name: tps[name], default=None)
    worst = min(ratios, key=lambda key: ratios[key])
    return Line(
        weights,
        n_slots,
        tps,
        geometric_mean(ratios.values()),
        geometric_mean([one.seconds(at) / one.seconds(own) for one in timed]),
        {name: geometric_mean(some) for name, some in categories.items()},
        {name: min(some) for name, some in categories.items()},
        (", ".join(worst), ratios[worst]),
        (best, tps[UAD] / tps[best]) if best else None,
        sum(one.same(servers.index(PLAIN)) for one in asked),
        len(asked),
    )


# --- README's section


def section(documents: Sequence[Document]) -> str:
    """README's table over all processors, and what was measured; nothing where there are no documents."""
    if not documents:
        return ""
    found = [(document, lines(document)) for document in documents]
    named = zip(names(documents), documents, strict=True)
    parts = [table(found), "\n".join(f"- {name}: {about(document)}" for name, document in named)]
    return "\n\n".join(parts)


def table(found: Sequence[tuple[Document, Sequence[Line]]]) -> str:
    """A row for each processor, type of weights and number of requests at once."""
    with_ik = any(document.versions.ik_llama_cpp for document, _ in found)
    servers = [SERVER, *([IK] if with_ik else []), PLAIN, UAD]
    heads = ["processor", "weights", "requests at once", *servers]
    heads += ["uad over llama-server", "worst category", "best category"]
    result = [_row(heads), "|" + "---|" * len(heads)]
    for document, some in found:
        for i, line in enumerate(some):
            speeds = [f"{line.tps[name]:.1f}" if name in line.tps else "" for name in servers]
            best = max(line.categories.items(), key=lambda one: one[1])
            ratios = (f"**{line.over:.2f}**", _named(line.worst_category), _named(best))
            first = "" if i else short(document.machine)
            result.append(_row((first, line.weights, str(line.slots), *speeds, *ratios)))
    return "\n".join(result)


# --- docs/bench.md's section


def details(documents: Sequence[Document]) -> str:
    """All else that the documents say, by processor; nothing where there are no documents."""
    named = zip(names(documents), documents, strict=True)
    return "\n\n".join(f"### {name}\n\n{_details(one, lines(one))}" for name, one in named)


def _details(document: Document, found: Sequence[Line]) -> str:
    parts = [verdict(document.machine, found), summary([(document, found)]), first_tokens(document)]
    return "\n\n".join([*(part for part in parts if part), by_category(found), every_server(document, found)])


def first_tokens(document: Document) -> str:
    """Seconds to the first token, by the prompt's length, on each server; nothing where no such prompt was asked."""
    rows = [
        (weights, name, seconds)
        for weights in document.settings.weights
        for name, seconds in document.first_tokens(weights).items()
    ]
    if not rows:
        return ""
    names = [name for name in document.servers() if name not in document.rivals]
    heads = ["weights", "prompt", *names, f"{SERVER} over uad"]
    result = ["Seconds to the first token by the length of the prompt in tokens, about:", ""]
    result += [_row(heads), "|" + "---|" * len(heads)]
    for weights, name, seconds in rows:
        ratio = f"**{seconds[SERVER] / seconds[UAD]:.2f}**"
        result.append(_row((weights, name, *(f"{seconds[one]:.2f}" for one in names), ratio)))
    return "\n".join(result)


def summary(found: Sequence[tuple[Document, Sequence[Line]]]) -> str:
    """Speeds and ratios: a row for each processor, type of weights and number of requests at once."""
    heads = ["processor", "weights", "requests at once", SERVER, "with its best draft type", PLAIN, UAD]
    heads += ["over llama-server", "whole requests", "worst category", "worst prompt", "over its best draft type"]
    result = [_row(heads), "|" + "---|" * len(heads)]
    for document, some in found:
        for i, line in enumerate(some):
            name, over_best = line.best or ("", 0.0)
            best = f"{line.tps[name]:.1f} ({name.rpartition(' ')[2]})" if name else ""
            speeds = (f"{line.tps[SERVER]:.1f}", best, f"{line.tps[PLAIN]:.1f}", f"{line.tps[UAD]:.1f}")
            worst = (_named(line.worst_category), f"{line.worst_prompt[1]:.2f}")
            ratios = (f"**{line.over:.2f}**", f"{line.whole:.2f}", *worst, f"{over_best:.2f}" if name else "")
            first = "" if i else short(document.machine)
            result.append(_row((first, line.weights, str(line.slots), *speeds, *ratios)))
    return "\n".join(result)


def _named(one: tuple[str, float]) -> str:
    return f"{one[1]:.2f} ({one[0]})"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def short(machine: Machine) -> str:
    """A processor in a few words."""
    unit = next((name for key, name in _UNITS if key in machine.kernels), "")
    cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
    return ", ".join(part for part in (machine.processor, cores, unit) if part)


def names(documents: Sequence[Document]) -> list[str]:
    """Processors in a few words; with the weights where several documents are of one processor."""
    processors = [short(one.machine) for one in documents]
    return [
        f"{name}, {' and '.join(one.settings.weights)}" if processors.count(name) > 1 else name
        for name, one in zip(processors, documents, strict=True)
    ]


def about(document: Document) -> str:
    """A sentence on what was measured, with what, and when."""
    settings, versions, machine = document.settings, document.versions, document.machine
    uad = f"{versions.uad} ({versions.commit})" if versions.commit else versions.uad
    passes = "one pass" if settings.passes == 1 else f"medians of {settings.passes} passes"
    return (
        f"{machine.memory_gb:.0f} GB, {machine.system}. {measured(settings)}, {passes}. "
        f"uad {uad}, llama.cpp of llama-cpp-python {versions.llama_cpp_python}"
        + (f", ik_llama.cpp {versions.ik_llama_cpp}" if versions.ik_llama_cpp else "")
        + f", {document.date}."
    )


def measured(settings: Settings) -> str:
    """Prompts and answers, in a few words."""
    n = sum(len(one.prompts) for one in settings.workloads())
    return f"{n} prompts in twelve categories, greedy, answers of up to {settings.predict} tokens"


def verdict(machine: Machine, found: Sequence[Line]) -> str:
    """For whom it pays, in plain words: speeds over llama-server without drafts, and over its best draft type."""
    gains = [line for line in found if line.over >= GAINS]
    little = [line for line in found if LOSES <= line.over < GAINS]
    loses = [line for line in found if line.over < LOSES]
    beaten = [line for line in found if line.best and line.best[1] < LOSES]
    text = [f"**{short(machine)}**: {_pays(gains)}"]
    text += [f"It changes little for {_phrase(little)}."] if little else []
    text += [f"It costs speed for {_phrase(loses)}."] if loses else []
    text += [f"llama-server's best draft type is faster for {_phrase(beaten)}."] if beaten else []
    return " ".join(text)


def _pays(gains: Sequence[Line]) -> str:
    if not gains:
        return "it pays for nothing that was measured."
    names = list(gains[0].categories)
    means = {
        name: geometric_mean([line.categories[name] for line in gains if name in line.categories]) for name in names
    }
    most = [name for name in sorted(names, key=lambda name: -means[name]) if means[name] >= GAINS][:_MOST_NAMED]
    where = f"; most in {_and(most)}" if most else ""
    return f"it pays for {_phrase(gains)}{where}."


def _phrase(found: Sequence[Line]) -> str:
    """Types of weights, by how many requests there are at once."""
    by_slots: dict[int, list[str]] = {}
    for line in found:
        by_slots.setdefault(line.slots, []).append(line.weights)
    words = {n: "one request at a time" if n == 1 else f"{n} requests at once" for n in by_slots}
    return "; for ".join(f"{_and(weights)}, {words[n]}" for n, weights in sorted(by_slots.items()))


def _and(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def with_section(page: str, made: str, begin: str = BEGIN, end: str = END) -> str:
    """The page, README for example, with what stands between the two marks made again. Raises ConfigError where they
    are missing.
    """
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ConfigError(f"the page has no section for the table: write the lines {begin} and {end} where it belongs")
    inside = f"\n\n{made}\n\n" if made else "\n"
    return before + begin + inside + end + after


# --- what the command prints


def report(document: Document) -> str:
    """README's part for this processor, speeds by category, and what else there is to know."""
    found = lines(document)
    machine, versions = document.machine, document.versions
    parts = [
        "### Speed, measured by `make table`",
        "\n".join(
            (
                f"- {short(machine)}; {machine.memory_gb:.0f} GB of memory, {machine.system}",
                f"- llama.cpp uses: {', '.join(machine.kernels) or 'not known'}",
                f"- uad {versions.uad}, commit {versions.commit or 'not known'}; Python {versions.python}",
                f"- llama-cpp-python {versions.llama_cpp_python}; llama-server {versions.llama_server}"
                + (f"; ik_llama.cpp {versions.ik_llama_cpp}" if versions.ik_llama_cpp else ""),
                f"- {measured(document.settings)}; {document.date}",
                *(f"- {name} of llama-server is left out: {why}" for name, why in document.left_out.items()),
            )
        ),
    ]
    if not found:
        return "\n\n".join([*parts, "Nothing is measured yet."])
    parts.append(_details(document, found))
    if document.sittings > 1:
        parts.append(f"Measured in {document.sittings} sittings; servers were started again in each.")
    return "\n\n".join(parts)


def by_category(found: Sequence[Line]) -> str:
    """Speeds over llama-server without drafts, by category, with the worst prompt of each."""
    heads = [f"{line.weights}, {line.slots} at once" for line in found]
    names = dict.fromkeys(name for line in found for name in line.categories)
    result = ["uad's speed over llama-server without drafts, by category (worst prompt):", ""]
    result += [_row(["", *heads]), "|" + "---|" * (1 + len(heads))]
    for name in names:
        cells = [
            f"{line.categories[name]:.2f} ({line.worst_prompts[name]:.2f})" if name in line.categories else ""
            for line in found
        ]
        result.append(_row([name, *cells]))
    result.append(
        _row(["worst prompt", *(f"{ratio:.2f}, {name}" for name, ratio in (one.worst_prompt for one in found))])
    )
    result.append(_row(["texts as without drafts", *(f"{line.n_same} of {line.n_prompts}" for line in found)]))
    return "\n".join(result)


def every_server(document: Document, found: Sequence[Line]) -> str:
    """Tokens per second of all that was measured."""
    heads = [f"{line.weights}, {line.slots} at once" for line in found]
    result = ["Tokens per second of each server:", "", _row(["", *heads]), "|" + "---|" * (1 + len(heads))]
    result += [_row([name, *(f"{line.tps[name]:.1f}" for line in found)]) for name in document.servers()]
    return "\n".join(result)
