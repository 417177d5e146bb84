"""vLLM's proposer class: `--speculative-config '{"method": "custom_class", "model": "uad.vllm.Proposer", …}'`.

The only file that knows vLLM's objects. vLLM is imported when a proposer is made, never before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from multiprocessing.util import Finalize
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from uad.base.errors import ConfigError
from uad.engine.decode.guard import Guarded
from uad.text.vocab.hf_table import HfVocab, hf_table
from uad.vllm.batch import BatchDrafting, BatchLimits
from uad.vllm.opened import OpenedDrafters, open_drafters
from uad.vllm.settings import UNTRIED, VllmSettings, read_settings
from uad.vllm.thread import DraftThread

TRIED = ("0.32.0",)
"""Versions of vLLM that were tried; its interface for proposers is experimental."""
_log = logging.getLogger("vllm.uad")  # below vLLM's own, so that its settings hold


class Proposer:
    """Drafts of uad for the requests of vLLM. Made by vLLM in each worker of the last pipeline stage; the first of
    these drafts, since vLLM asks only that one for its drafts.

    Raises ConfigError for versions that were not tried and for settings that are wrong, and what loading a draft model
    does.
    """

    def __init__(self, vllm_config: Any, environ: Mapping[str, str] = os.environ) -> None:
        model_config = vllm_config.model_config
        settings = read_settings(str(model_config.model), environ)
        check_version(_version(), settings)
        self._batch: Guarded[BatchDrafting] | None = None
        self._thread: DraftThread | None = None
        if not _drafts_here():
            return
        is_on_cpu = _is_on_cpu()
        if is_on_cpu and mend_sampling():
            _log.warning("uad: this vLLM loses temperature, top-k and top-p of drafted requests on CPUs; mended here")
        self._open(settings, vllm_config, vocab_of(model_config), is_on_cpu)

    def _open(self, settings: VllmSettings, vllm_config: Any, vocab: HfVocab, is_on_cpu: bool) -> None:
        config, max_len = settings.config, int(vllm_config.model_config.max_model_len)
        table = hf_table(vocab)
        self._thread = DraftThread(everywhere=is_on_cpu)
        try:
            opened = self._thread.do(lambda: open_drafters(config, table, vocab.template, max_len))
        except BaseException:
            self._thread.close()
            raise
        limits = BatchLimits(
            config.n_parallel,
            int(vllm_config.speculative_config.num_speculative_tokens),
            max_len,
            int(vllm_config.parallel_config.pipeline_parallel_size),
        )
        params = config.drafting.defaults
        batch = BatchDrafting(opened.drafting, limits, params, perf_counter, table.eog, opened.model)
        self._batch = Guarded("drafting", batch, perf_counter)
        is_ahead = settings.ahead if settings.ahead is not None else not is_on_cpu
        if is_ahead and opened.model is not None:
            self._thread.between(batch.ahead)
        for note in opened.notes:
            _log.info("uad: %s", note)
        self._finalizer = Finalize(self, _end, (self._thread, opened), exitpriority=10)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Called by vLLM when its own model is loaded; the draft model is open already."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: npt.NDArray[np.int32],
        token_ids_cpu: npt.NDArray[np.int32],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """The ids submitted with each row. A row's ids are token_ids_cpu[i, :num_tokens_no_spec[i]], of which those in
        sampled_token_ids[i] are new. Raises nothing: drafts that fail are left out for a while.
        """
        batch, thread = self._batch, self._thread
        if batch is None or thread is None:
            return [[] for _ in sampled_token_ids]
        batch.bring_back(lambda part: thread.do(part.reset))
        drafts = batch.do(
            lambda part: thread.do(lambda: part.propose(sampled_token_ids, num_tokens_no_spec, token_ids_cpu))
        )
        return drafts if drafts is not None else [[] for _ in sampled_token_ids]


def check_version(version: str, settings: VllmSettings) -> None:
    """Raises ConfigError for a version of vLLM that was not tried, unless the settings allow it."""
    if version.partition("+")[0] not in TRIED and not settings.allow_untried:
        raise ConfigError(
            f"uad.vllm was tried with vLLM {', '.join(TRIED)}, not with {version}: its interface for proposers may "
            f"have changed. {UNTRIED}=1 tries it"
        )


def vocab_of(model_config: Any) -> HfVocab:
    """The target's vocabulary, by the tokenizer that vLLM uses. Raises ConfigError where that is not one of the
    library `tokenizers`.
    """
    from vllm.tokenizers import cached_tokenizer_from_config

    tokenizer = cached_tokenizer_from_config(model_config)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(
            f"{model_config.model}: its tokenizer has no tokenizer.json ({type(tokenizer).__name__}), so the bytes of "
            "its tokens are not known; --tokenizer-mode hf may have one"
        )
    generation = model_config.try_get_generation_config() or {}
    ends = generation.get("eos_token_id")
    ends = [ends] if isinstance(ends, int) else ends or []
    template = tokenizer.chat_template
    return HfVocab(
        name=str(model_config.model),
        spec=backend.to_str(),
        n_vocab=int(model_config.get_vocab_size()),
        bos=tokenizer.bos_token_id,
        eos=tokenizer.eos_token_id,
        eog=frozenset(id_ for id_ in (*ends, tokenizer.eos_token_id) if id_ is not None),
        template=template if isinstance(template, str) else "",
    )


def _end(thread: DraftThread, opened: OpenedDrafters) -> None:
    """Frees the draft model and writes files, on the thread that owns them."""
    thread.close(opened.stack.close)


def mend_sampling() -> bool:
    """Replace vLLM's function that repeats a request's temperature, top-k and top-p for each of its rows, where it does
    not work; whether that was so. In 0.32.0 the one for CPUs writes into a copy, and rows are drawn with what happens
    to be in memory: every draft method then writes nonsense at temperatures above 0.
    """
    import torch
    from vllm.v1.sample import rejection_sampler

    def expanded(x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0) -> Any:
        counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
        return torch.repeat_interleave(x.masked_fill(x == replace_from, replace_to), counts, output_size=num_tokens)

    # two requests, with one row and with two
    given, ends, wanted = torch.tensor([0.5, 0.75]), torch.tensor([1, 3], dtype=torch.int32), [0.5, 0.75, 0.75]
    try:
        filled = rejection_sampler.expand_batch_to_tokens(given, ends, 3).tolist()
    except Exception:  # its kernels are not there yet
        filled = []
    if filled == wanted:
        return False
    rejection_sampler.expand_batch_to_tokens = expanded
    return True


def _version() -> str:
    import vllm

    return str(vllm.__version__)


def _drafts_here() -> bool:
    from vllm.distributed import get_tensor_model_parallel_rank

    return int(get_tensor_model_parallel_rank()) == 0


def _is_on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())
