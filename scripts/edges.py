"""What healing and salvage gain: a draft model drafts along answers that the target wrote, with each of them off and
on.

    python scripts/edges.py [--target GGUF] [--draft GGUF …] [--prompts 240] [--max-tokens 120] [--p-min 0.5 0.2 0]

The target writes each answer once, greedily and without drafts; that is the text under any draft. Then the draft model
runs under the fixed policy, and an id counts as accepted where it equals the target's. So all counts are exact and the
same in every run. Prints Markdown.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "samples" / "train"))
sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))

from engines import EngineArm, EngineJob, make_job
from stepper import Stepper

from uad.base.config import Config, DraftingConfig, ModelConfig
from uad.base.types import GREEDY, Commit, Draft, Rows, SpecPolicy, SpeculativeParams
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.drafting import DraftedText, Drafting
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.protocol import Wish
from uad.llama.context import Context
from uad.runtime.models import open_model, side, template_options
from uad.text.mapping.plan import plan
from uad.text.vocab.encode import Encoder
from uad.tools.bench.workloads import WorkloadPrompt

SAMPLES = Path(__file__).parent.parent / "samples"

_N_CTX = 2048
_SEED = "held out"
_MOST_DRAWS = 100  # for each question; some kinds have few different ones
_HEAD = (
    *(
        "draft",
        "p_min",
        "",
        "accepted bytes per drafted byte",
        "target tokens per target decode",
        "ids drafted",
        "accepted",
    ),
    *("draft decodes", "answers with fewer target decodes than neither, more"),
)
_MODES = (
    ("both", True, True),
    ("without healing", False, True),
    ("without salvage", True, False),
    ("neither", False, False),
)


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and the answer to it, in target ids."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(slots=True)
class Count:
    """Sums over all rounds of all answers; n_steps are the draft's decodes."""

    n_rounds: int = 0
    n_steps: int = 0
    n_ids: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    drafted_bytes: int = 0
    accepted_bytes: int = 0

    @property
    def acceptance(self) -> float:
        return self.accepted_bytes / max(self.drafted_bytes, 1)

    @property
    def per_decode(self) -> float:
        return self.n_ids / max(self.n_rounds, 1)


class CountedContext(Context):
    """Counts the decodes."""

    n_decodes = 0

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        self.n_decodes += 1
        super().decode(rows, may_stop)


def main() -> int:
    args = _arguments()
    texts = list(_write(args.target, _prompts(args.prompts), args.max_tokens))
    print(f"{len(texts)} answers, {sum(len(text.answer) for text in texts)} target ids\n")
    print("|", " | ".join(_HEAD), "|")
    print("|---" * len(_HEAD) + "|")
    for p_min in args.p_min:
        params = SpeculativeParams(policy=SpecPolicy.FIXED, p_min=p_min)
        for draft in args.draft:
            _print(
                draft,
                params,
                {name: _replay_all(args.target, draft, texts, params, heal, salvage) for name, heal, salvage in _MODES},
            )
    return 0


def _print(draft: Path, params: SpeculativeParams, counts: dict[str, list[Count]]) -> None:
    for name, by_text in counts.items():
        total = _sum(by_text)
        pairs = list(zip(by_text, counts["neither"], strict=True))
        fewer, more = (sum(sign * (a.n_rounds - b.n_rounds) < 0 for a, b in pairs) for sign in (1, -1))
        numbers = (
            f"{total.acceptance:.4f}",
            f"{total.per_decode:.3f}",
            f"{total.n_drafted:,}",
            f"{total.n_accepted:,}",
            f"{total.n_steps:,}",
        )
        print("|", " | ".join((draft.stem, str(params.p_min), name, *numbers, f"{fewer}, {more}")), "|", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--target", type=Path, default=SAMPLES / "target-chatml.gguf")
    parser.add_argument(
        "--draft", type=Path, nargs="+", default=[SAMPLES / "draft-zephyr.gguf", SAMPLES / "draft-gemma.gguf"]
    )
    parser.add_argument("--prompts", type=int, default=240)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--p-min", type=float, nargs="+", default=[0.5, 0.2, 0.0])
    return parser.parse_args()


def _prompts(n: int) -> list[WorkloadPrompt]:
    """n different questions of the kinds that the bundled models were trained on, from another seed."""
    import tasks

    rng = random.Random(_SEED)
    found: dict[str, WorkloadPrompt] = {}
    for _ in range(_MOST_DRAWS * n):
        if len(found) == n:
            break
        question = tasks.conversation(rng)[0].question
        found.setdefault(question, WorkloadPrompt(f"question {len(found) + 1}", question, chat=True))
    return list(found.values())


def _write(target: Path, prompts: Sequence[WorkloadPrompt], max_tokens: int) -> Iterator[Text]:
    """The target's own greedy answers."""
    with Stepper.open(Config(target=ModelConfig(target, n_ctx=_N_CTX, n_threads=1))) as engine:
        arm = EngineArm("plain", engine, SpeculativeParams(enabled=False))
        for prompt in prompts:
            job: EngineJob = make_job(engine, prompt, 0.0, 1, max_tokens)
            yield Text(job.ids, arm.run([job]).answers[0].ids)


def _replay_all(
    target: Path, draft: Path, texts: Sequence[Text], params: SpeculativeParams, heal: bool, salvage: bool
) -> list[Count]:
    """One count for each text."""
    config = Config(
        target=ModelConfig(target, n_ctx=_N_CTX, n_threads=1),
        draft=ModelConfig(draft, n_ctx=_N_CTX, n_threads=1),
        drafting=DraftingConfig(),
    )
    assert config.draft is not None
    with (
        open_model(replace(config.target, n_gpu_layers=0), "target") as reader,
        open_model(config.draft, "draft") as model,
    ):
        rules = plan(side(reader), side(model), template_options(config)).rules
        target_encoder = Encoder(reader.vocab)
        context = CountedContext(model, config.draft, 1, "draft")
        with context:
            drafting = Drafting(
                [ModelDrafter(context, target_encoder, rules, heal=heal, salvage=salvage)],
                AutoPolicy,
                len(reader.vocab.pieces),
                reader.vocab.eog,
            )
            return [_replay(drafting, text, params, reader.vocab.pieces, context) for text in texts]


def _replay(
    drafting: Drafting, text: Text, params: SpeculativeParams, pieces: Sequence[bytes], context: CountedContext
) -> Count:
    """Rounds along one answer. Its first id comes from the prompt's decode, as in the engine."""
    count = Count(n_steps=-context.n_decodes)
    drafting.begin(DraftedText(0, text.prompt, GREEDY))
    drafting.commit(Commit(0, text.answer[:1]), Draft())
    at = 1
    while at < len(text.answer):
        chosen = drafting.propose([Wish(0, params, room=len(text.answer) - at - 1)])[0].get(0)
        draft = chosen.draft if chosen else Draft()
        rest = text.answer[at:]
        n = next((i for i, id_ in enumerate(draft.ids) if i >= len(rest) or id_ != rest[i]), len(draft.ids))
        new = rest[: n + 1]
        count.n_rounds += 1
        count.n_ids += len(new)
        count.n_drafted += len(draft.ids)
        count.n_accepted += n
        count.drafted_bytes += sum(len(pieces[id_]) for id_ in draft.ids)
        count.accepted_bytes += sum(len(pieces[id_]) for id_ in draft.ids[:n])
        drafting.commit(Commit(0, new, len(draft.ids), n), draft)
        at += len(new)
    drafting.end(0)
    count.n_steps += context.n_decodes
    return count


def _sum(counts: Sequence[Count]) -> Count:
    total = Count()
    for count in counts:
        for name in Count.__slots__:
            setattr(total, name, getattr(total, name) + getattr(count, name))
    return total


if __name__ == "__main__":
    sys.exit(main())
