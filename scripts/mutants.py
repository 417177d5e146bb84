"""Whether tests see errors: `python scripts/mutants.py [NAME …] [--at REVISION]`.

Each mutant of MUTANTS is one wrong piece of code. They are put into a copy of this checkout one after the other, and
the tests named beside them run there. A mutant dies where a test fails. Before cases of tests are cut, and after that,
the same mutants must die; `--at main` says which did before. Exit code 1: some live, 2: the question makes no sense.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parent.parent
MOST_S = 300
"""A mutant whose tests take longer does not end by itself, which a person would see, too."""
FAILED, PASSED = 1, 0
"""Exit codes of pytest; others are of tests that could not be run."""


@dataclass(frozen=True)
class Mutant:
    """In `file`, the one place with the text `old` has `new` instead. tests: names of test files, without test_."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    what: str

    @property
    def path(self) -> str:
        return f"uad/{self.file}"

    def put_into(self, source: str) -> str:
        """The source with the error. ValueError where it does not have the place."""
        if (n := source.count(self.old)) != 1:
            raise ValueError(
                f"{self.path} has {n} places with {self.old!r}, of which a mutant needs one: adapt MUTANTS in "
                "scripts/mutants.py to the new code"
            )
        return source.replace(self.old, self.new)


ENGINE = (
    Mutant(
        "engine/decode/verify.py",
        "id_ != draft[i]:",
        "id_ not in draft:",
        ("same_text",),
        "a guess counts that is right in another place",
    ),
    Mutant(
        "engine/decode/verify.py",
        "        position = position.after(len(vocab.texts[id_]))\n",
        "",
        ("same_text",),
        "accepted guesses share the noise of the first place",
    ),
    Mutant(
        "engine/decode/verify.py",
        "if id_ in ends or (matcher",
        "if (matcher",
        ("verify",),
        "ids are drawn after an end of the answer",
    ),
    Mutant(
        "engine/decode/sequence.py",
        "            if kind is not None:\n                break\n",
        "            if kind is not None and n == last:\n                break\n",
        ("stops",),
        "ids that were accepted after a stop are written",
    ),
    Mutant(
        "engine/decode/rounds.py",
        "running.n_past += n_kept",
        "running.n_past += len(draft.ids)",
        ("same_text",),
        "rejected guesses stay in the KV",
    ),
    Mutant(
        "engine/decode/rounds.py",
        "        if running.n_past < end:\n",
        "        if running.n_past < end - 1:\n",
        ("same_text",),
        "one wrong row is not taken back",
    ),
    Mutant(
        "engine/decode/rounds.py",
        "part.n_extra += extra.get(part.running.slot, 0)",
        "part.n_extra += 0",
        ("decode_loop", "same_text"),
        "exact passes are not filled up",
    ),
    Mutant(
        "engine/decode/rounds.py",
        "n_past = self._target.take_back(part.running.slot, part.running.n_past)\n            raise",
        "n_past = part.running.n_past\n            raise",
        ("prefill",),
        "an interrupted decode leaves its rows",
    ),
    Mutant(
        "engine/decode/sequence.py",
        "origins = (draft.origin,) * n_accepted",
        "origins = (draft.origin,) * (n_accepted and n)",
        ("origins", "decode_loop"),
        "the target's own id is said to be the drafter's",
    ),
    Mutant(
        "engine/decode/sequence.py",
        "if self.n >= self.n_most or is_late",
        "if self.n > self.n_most or is_late",
        ("decode_loop",),
        "one id too many",
    ),
    Mutant(
        "engine/decode/sequence.py",
        "self.n > self.request.min_tokens",
        "self.n >= self.request.min_tokens",
        ("stops", "decode_loop"),
        "a stop counts one id too early",
    ),
    Mutant(
        "engine/decode/slots.py",
        "len(request.prompt) - UNREAD), 0)",
        "len(request.prompt)), 0)",
        ("decode_loop", "prompt_cache_loop"),
        "nothing of a known prompt is left to be read",
    ),
    Mutant(
        "engine/decode/text.py",
        "n_released = len(text) - max(search.n_visible for search in searches)",
        "n_released = len(text)",
        ("text", "stops"),
        "the beginning of a stop string is shown",
    ),
    Mutant(
        "engine/decode/scheduler.py",
        "if n_tokens >= self._limit:",
        "if n_tokens > self._limit:",
        ("decode_loop",),
        "a prompt that fills the context is taken",
    ),
    Mutant(
        "engine/decode/layout.py",
        "n_batch // n_seq) - 1 - least.rows, 0)",
        "n_batch // n_seq) - 1, 0)",
        ("decode_loop",),
        "drafts are too long for what exact passes need",
    ),
    Mutant(
        "engine/decode/prefill.py",
        "self.seconds(reader, n) > _ROUND_S and may_lose",
        "self.seconds(reader, n) > _ROUND_S",
        ("prefill",),
        "a prompt is interrupted for ever",
    ),
    Mutant(
        "engine/sampling/noise.py",
        "else Position(self.offset, self.n_empty + 1)",
        "else Position(self.offset, self.n_empty)",
        ("noise",),
        "ids without bytes do not count their place",
    ),
    Mutant(
        "engine/sampling/sampler.py",
        "                row[self._late] = -np.inf\n",
        "                pass\n",
        ("stops", "decode_loop"),
        "min_tokens is not kept",
    ),
)

DRAFTS = (
    Mutant(
        "drafts/model/mirror.py",
        "        if n_agreed < len(data):\n",
        "        if n_agreed < len(data) - 1:\n",
        ("mirror", "same_text"),
        "a guess stays whose last byte is wrong",
    ),
)

POLICY = (
    Mutant(
        "engine/policy/choose.py",
        "rate = CLEAR * n_writing / ms",
        "rate = n_writing / ms",
        ("policy_auto", "policy_calls"),
        "drafts need not clearly gain",
    ),
    Mutant(
        "engine/policy/choose.py",
        "        spent_ms += step_ms\n",
        "",
        ("policy_auto", "policy_calls"),
        "further steps are free",
    ),
    Mutant(
        "engine/policy/calibration.py",
        "enumerate(bins[: n_right + 1])",
        "enumerate(bins[:n_right])",
        ("policy_calibration",),
        "nothing is learned of rejected guesses",
    ),
    Mutant(
        "engine/policy/drafter.py",
        "            self.next_at = n + self.rest\n",
        "            self.next_at = n + 1\n",
        ("policy_auto", "policy_calls", "policy_recovery"),
        "a drafter that does not pay is asked at once",
    ),
    Mutant(
        "engine/policy/cost.py",
        "surprise = log(min(max(ratio, 1 / _MOST_PER_STEP), _MOST_PER_STEP))",
        "surprise = log(ratio)",
        ("policy_cost", "policy_recovery"),
        "outliers count in full",
    ),
    Mutant(
        "engine/policy/drafter.py",
        "min(ms, _MOST_TIMES * known)",
        "ms",
        ("policy_calls", "policy_recovery"),
        "one disturbed call counts in full",
    ),
    Mutant(
        "engine/policy/choose.py",
        "zip(ahead, costs[len(hopes) + 1 :], strict=False)",
        "zip(ahead, costs[len(hopes) :], strict=False)",
        ("policy_auto",),
        "a draft goes on at the price of a row less",
    ),
    Mutant(
        "engine/policy/machine.py",
        "rows = best if CLEAR * raw[best] < raw[k] else k",
        "rows = k",
        ("policy_auto",),
        "drafts are not filled up to cheaper sizes",
    ),
    Mutant(
        "engine/policy/calibration.py",
        "        self._chances = [-1.0] * len(_LOGITS)\n",
        "        self._chances[bins[0]] = -1.0\n",
        ("policy_calibration",),
        "chances of other bins stay as they were",
    ),
)

CALLS = (
    Mutant(
        "text/calls/source.py",
        "if match is not None and (match.start() < held or self._is_ended):",
        "if match is not None:",
        ("calls_cuts", "calls_stream", "calls_formats"),
        "a short word is taken where a longer one may come",
    ),
    Mutant(
        "text/calls/source.py",
        r'rf"\s{{0,{MAX_BLANKS}}}"',
        r'r"\s*"',
        ("calls_malformed", "calls_stream", "calls_formats"),
        "any number of blanks is waited for",
    ),
    Mutant(
        "text/calls/reader.py",
        "call.add(kept or rest)",
        "call.add(rest)",
        ("calls_formats", "calls_malformed"),
        "arguments before the name are lost",
    ),
    Mutant(
        "text/calls/reader.py",
        "        if not self._emitter.has_begun:\n            source.rewind()\n",
        "",
        ("calls_malformed", "calls_formats"),
        "what looked like a call is lost",
    ),
    Mutant(
        "text/calls/whole.py",
        "if tool is None or not _is_call_of(tool, arguments, self._judges):",
        "if tool is None:",
        ("calls_whole",),
        "arguments that a tool does not allow are a call",
    ),
    Mutant(
        "text/calls/strict.py",
        "schema is False or depth > MAX_DEPTH:",
        "schema is False:",
        ("calls_whole",),
        "values may be nested without end",
    ),
)

REQUESTS = (
    Mutant(
        "http/requests/job.py",
        "return float(min(max(bias, -MOST_BIAS), MOST_BIAS))",
        "return float(bias)",
        ("server_errors", "request_fields", "server_token_ids"),
        "a bias may be infinite",
    ),
    Mutant(
        "http/requests/job.py",
        "    if len(texts) < len(content):\n",
        "    if not texts:\n",
        ("server_requests", "server_refusals", "server_errors"),
        "parts of a prediction that are no text are dropped",
    ),
    Mutant(
        "http/requests/chat.py",
        'False, choice != "required" if parallel is None else parallel',
        "False, parallel is not False",
        ("server_tools", "server_forced"),
        "a required call may be several",
    ),
    Mutant(
        "http/requests/job.py",
        "return replace(params, n_min=params.longest)",
        "return params",
        ("server_requests", "request_fields", "server_refusals"),
        "fewest drafted ids may be above the most",
    ),
    Mutant(
        "http/requests/constraint.py",
        "    if len(keys) != 1:\n",
        "    if not keys:\n",
        ("server_constraints", "server_refusals"),
        "the first of two structured outputs counts",
    ),
    Mutant(
        "http/requests/constraint.py",
        "if own is not None and not calls.are_required and own.kind is not _JSON:",
        "if own is not None and own.kind is not _JSON:",
        ("server_constraints", "server_forced", "server_tools"),
        "a required call gives way to the server's grammar",
    ),
)

VOCABS = (
    Mutant(
        "text/vocab/bounded.py",
        "len(name[:-1].encode()))",
        "len(name) - 1)",
        ("vocab_markers",),
        "a marker's name is cut inside a character",
    ),
    Mutant(
        "text/vocab/bounded.py",
        "match = search(data, start)",
        "match = search(data, match.end())",
        ("vocab_markers",),
        "a name in the rest of another is its marker",
    ),
    Mutant(
        "text/vocab/bounded.py",
        "return next(iter(boundaries.cuts(name.encode())), ",
        "return next(iter([]), ",
        ("vocab_markers",),
        "names are cut where tokens reach across",
    ),
    Mutant(
        "text/vocab/quick.py",
        "|'ve|'m|'ll|",
        "|'ve|'ll|",
        ("vocab_quick",),
        "a contraction is no piece of its own",
    ),
    Mutant(
        "text/vocab/quick.py",
        "|'[dD])",
        "|'d)",
        ("vocab_quick",),
        "a contraction in capitals is cut otherwise",
    ),
    Mutant(
        "text/vocab/quick.py",
        '_IGNORES_MERGES = ("tekken",)',
        "_IGNORES_MERGES = ()",
        ("vocab_quick",),
        "tokens that no merges make are spelled out",
    ),
)

GRAMMAR = (
    Mutant(
        "text/grammar/vocabulary.py",
        "if id_ in table.eog or not text:",
        "if not text:",
        ("grammar",),
        "an end that shows its name is text",
    ),
    Mutant(
        "text/grammar/vocabulary.py",
        "return self._encode(text[:_WINDOW])[:-_UNSURE]",
        "return self._encode(text[:_WINDOW])",
        ("grammar",),
        "forced ids depend on where a window ends",
    ),
    Mutant(
        "text/grammar/vocabulary.py",
        "eos_token=sorted(self.eog)",
        "eos_token=min(self.eog)",
        ("grammar",),
        "only the first of several ends may end an answer",
    ),
)

SLOTS = (
    Mutant(
        "runtime/slots/copies.py",
        '"type of cached values": config.type_v',
        '"type of cached values": config.type_k',
        ("slot_files",),
        "values of another type fit",
    ),
    Mutant(
        "runtime/slots/file.py",
        '"skip": state.skip, ',
        '"skip": 0, ',
        ("slot_files",),
        "what a draft model's window lost is not saved",
    ),
    Mutant(
        "runtime/slots/file.py",
        "[mark.pos, len(mark.data)]",
        "[mark.pos + 1, len(mark.data)]",
        ("slot_files",),
        "marks come back one id later",
    ),
    Mutant(
        "runtime/slots/disk.py",
        "return int(differs[0]) if len(differs) else n",
        "return int(differs[0]) + 1 if len(differs) else n",
        ("disk_files",),
        "texts part one id too late",
    ),
    Mutant(
        "runtime/slots/disk.py",
        "if _common(text.ids, ids) == len(ids)), None)",
        "if _common(text.ids, ids) == len(text.ids)), None)",
        ("disk_files",),
        "a text that goes on is not written again",
    ),
    Mutant(
        "runtime/slots/disk_files.py",
        "known.outline is not None and known.n_bytes == about.st_size:",
        "known.outline is not None:",
        ("disk_files",),
        "a file that changed is known as it was",
    ),
)

MUTANTS = (*ENGINE, *DRAFTS, *POLICY, *CALLS, *REQUESTS, *VOCABS, *GRAMMAR, *SLOTS)


class Copy:
    """A checkout in a folder of its own, in which tests run."""

    def __init__(self, folder: Path, revision: str | None) -> None:
        self._folder = folder
        self._n_written = 0
        if revision is None:
            names = subprocess.run(
                ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                cwd=ROOT,
                check=True,
                capture_output=True,
            ).stdout
            there = b"\0".join(name for name in names.split(b"\0") if name and (ROOT / os.fsdecode(name)).exists())
            packed = subprocess.run(
                ["tar", "-c", "--null", "-T", "-"], cwd=ROOT, input=there, check=True, capture_output=True
            )
        else:
            packed = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x"], cwd=folder, input=packed.stdout, check=True)

    def read(self, name: str) -> str:
        return (self._folder / name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Each time with a newer date: Python compares those of sources to know whether it compiled them."""
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        self._n_written += 1
        at = path.stat().st_mtime + self._n_written
        os.utime(path, (at, at))

    def files(self, tests: Iterable[str]) -> list[str]:
        """Test files by their names. A revision may lack some, and have them in another folder."""
        known = {path.stem.removeprefix("test_"): path for path in (self._folder / "tests").rglob("test_*.py")}
        return [str(known[name]) for name in dict.fromkeys(tests) if name in known]

    def run(self, tests: Iterable[str]) -> tuple[int | None, str]:
        """pytest's exit code, None where it did not end, and the line of the first test that failed."""
        files = self.files(tests)
        if not files:
            return PASSED, ""
        command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *files]
        try:
            done = subprocess.run(
                command,
                cwd=self._folder,
                env=os.environ | {"PYTHONPATH": str(self._folder)},
                capture_output=True,
                text=True,
                timeout=MOST_S,
            )
        except subprocess.TimeoutExpired:
            return None, "the tests do not end"
        lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR ")) and "::" in line]
        return done.returncode, (lines or done.stdout.splitlines()[-3:] or [done.stderr[-300:]])[0]


def try_all(copy: Copy, mutants: Sequence[Mutant], are_green: bool) -> int:
    """Prints a line for each; how many live. ValueError where a mutant has no place, or tests fail without it.

    are_green: it is known that tests pass without a mutant.
    """
    for one in mutants:
        one.put_into(copy.read(one.path))
    code, line = (PASSED, "") if are_green else copy.run(name for one in mutants for name in one.tests)
    if code != PASSED:
        raise ValueError(f"the tests fail without any mutant: {line}")
    n_alive = 0
    for one in mutants:
        source, began = copy.read(one.path), perf_counter()
        copy.write(one.path, one.put_into(source))
        code, line = copy.run(one.tests)
        copy.write(one.path, source)
        if code not in (None, FAILED, PASSED):
            raise ValueError(f"{one.path}, {one.what}: the tests could not run: {line}")
        n_alive += code == PASSED
        end = "LIVES" if code == PASSED else "dies "
        print(f"{end} {perf_counter() - began:4.0f} s  {one.path}: {one.what}  [{line}]"[:240], flush=True)
    return n_alive


def main() -> int:
    parser = argparse.ArgumentParser(description="Puts errors into a copy of uad, and says which of them tests see.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of files' names: those mutants only")
    parser.add_argument("--at", metavar="REVISION", help="of that revision, not of the files as they are")
    parser.add_argument("--green", action="store_true", help="the tests are known to pass without mutants")
    args = parser.parse_args()
    mutants = [one for one in MUTANTS if not args.names or any(name in one.path for name in args.names)]
    if not mutants:
        print(f"no mutant is in a file named {' or '.join(args.names)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="uad-mutants-") as folder:
        try:
            n_alive = try_all(Copy(Path(folder), args.at), mutants, args.green)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    print(f"{len(mutants) - n_alive} of {len(mutants)} mutants die")
    return 1 if n_alive else 0


if __name__ == "__main__":
    sys.exit(main())
