"""Contexts that fit: what is chosen, what is refused and with which words, and that llama.cpp takes what was
reckoned.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gguf import GGUFReader
from kit.models import DRAFTS, TARGET, config
from kit.process import ENV
from kit.tiny_models import NAMES, make

from uad.base.common.available import Limit
from uad.base.config import ModelConfig, load_config
from uad.base.errors import ConfigError
from uad.base.gguf import all_tensors
from uad.llama.footprint import Footprint, NeedUnknownError, offloaded, read
from uad.llama.kernels import use
from uad.runtime.costs.fit import Fitted, MemoryPart, Total, choose, fitted, fitted_beside, room
from uad.runtime.plan import plan

use.started()  # before a model without them is loaded: llama.cpp reads its list of buffers once


MIB, GIB = 1 << 20, 1 << 30


def total(n_ctx, weights=100 * MIB, mapped=0, per_token=100_000):
    return Total((MemoryPart("weights", weights, mapped), MemoryPart("KV cache", n_ctx * per_token)))


def chosen(n_bytes, asked=0, wanted=32768, step=256, **parts):
    return choose(lambda n: total(n, **parts), asked, wanted, step, (Limit(n_bytes, "left"),))


def test_what_fits_is_taken_as_it_is():
    assert chosen(8 * GIB) == (32768, ())
    assert chosen(8 * GIB, asked=1000, wanted=1000) == (1000, ())


@pytest.mark.parametrize("n_bytes", [GIB, GIB + 300 * MIB, 2 * GIB, 3 * GIB])
def test_without_a_wish_it_is_the_largest_that_fits_and_a_line_says_so(n_bytes):
    n_ctx, (line,) = chosen(n_bytes)
    most = room(Limit(n_bytes, ""))
    assert total(n_ctx).host <= most < total(int(n_ctx * 1.02) + 512).host
    assert n_ctx % 256 == 0
    assert f"the context is {n_ctx} tokens, the largest that fits, of the model's 32768" in line


def test_a_wish_that_does_not_fit_is_refused_with_sizes_and_the_largest():
    with pytest.raises(
        ConfigError,
        match=r"--ctx-size 20000 does not fit .*KV cache 1.86 GiB.* 1 GiB left.*largest that fits is \d{4}",
    ):
        chosen(GIB, asked=20000, wanted=20000)


def test_mapped_weights_yield_to_a_wish_but_not_to_a_choice():
    n_ctx, (line,) = chosen(2 * GIB, asked=10000, wanted=10000, mapped=GIB)
    assert (n_ctx, "read from the file again" in line) == (10000, True)
    assert chosen(2 * GIB, wanted=10000, mapped=GIB)[0] < 8000
    assert chosen(2 * GIB, wanted=10000, mapped=4 * GIB)[0] == 4096  # weights that fit nowhere leave a usable context


def test_where_nothing_fits_that_is_said():
    with pytest.raises(ConfigError, match="not even the smallest fits"):
        chosen(200 * MIB)


def test_address_space_counts_mapped_files_too():
    limits = (Limit(8 * GIB, "machine"), Limit(2 * GIB, "address space", counts_mapped=True))
    with pytest.raises(ConfigError):
        choose(lambda n: total(n, mapped=2 * GIB), 100, 100, 256, limits)


# --- with llama.cpp


@pytest.mark.parametrize("part", ["ctx", "draft"])
def test_target_and_draft_share_what_there_is(part):
    limits = (Limit(256 * MIB, "left"),)
    alone = plan(config(draft=None, n_ctx=0), limits).config.target.n_ctx
    both = plan(config(n_ctx=0), limits).config.target.n_ctx
    assert both < alone <= 32768
    more = (
        config(n_ctx=0) if part == "ctx" else replace(config(n_ctx=0), draft=ModelConfig(DRAFTS["zephyr"], n_ctx=4096))
    )
    plan(more, limits)


def test_fit_off_takes_it_all_the_same():
    config_ = load_config(["-m", str(TARGET), "-c", "2000000000", "--fit", "off"], {})
    assert plan(config_).config.target.n_ctx == 2_000_000_000


@pytest.mark.parametrize(
    ("changes", "bytes_per_token"),
    [({}, 3072), ({"type_k": "q8_0", "type_v": "q8_0"}, 1632), ({"type_k": "f32", "type_v": "f32"}, 6144)],
)
def test_the_kv_cache_is_reckoned_by_its_types(changes, bytes_per_token):
    with Footprint(ModelConfig(TARGET, **changes), "target", 2) as footprint:
        assert footprint.of(16384).kv == pytest.approx(16384 * bytes_per_token, rel=0.01)
        assert footprint.n_ctx_train == 32768


def test_a_context_far_too_large_is_reckoned_on_a_line_and_takes_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Footprint(ModelConfig(TARGET), "target", 1) as footprint:
        assert footprint.of(2_000_000_000).kv == pytest.approx(2_000_000_000 * 3072, rel=0.01)
        assert footprint.of(1 << 19).host == pytest.approx(2 * footprint.of(1 << 18).host, rel=0.05)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_weights_that_are_read_count_and_mapped_ones_can_be_dropped():
    given = ModelConfig(TARGET, kernels=False)
    with Footprint(given, "t", 1) as mapped, Footprint(replace(given, mmap=False), "t", 1) as whole:
        assert mapped.mapped > 11_000_000 > mapped.weights
        assert (whole.mapped, whole.weights - mapped.weights) == (0, mapped.mapped)


def test_weights_that_the_kernels_order_are_mapped_no_more():
    """The bundled target's embedding is its output's matrix as well: it stays mapped, and is there once more."""
    given = ModelConfig(TARGET)
    if not (kernels := use.of(given)).types:
        pytest.skip(kernels.note())
    tensors = [*all_tensors(TARGET)]
    moved = sum(one.n_bytes for one in tensors if len(one.shape) > 1 and one.name != "token_embd.weight")
    tied = next(one.n_bytes for one in tensors if one.name == "token_embd.weight")
    with Footprint(given, "t", 1) as own, Footprint(replace(given, kernels=False), "t", 1) as plain:
        assert own.mapped == plain.mapped - moved
        assert moved + tied <= own.weights - plain.weights <= 1.1 * (moved + tied)
    with (
        Footprint(replace(given, mmap=False), "t", 1) as own,
        Footprint(replace(given, mmap=False, kernels=False), "t", 1) as plain,
    ):
        assert own.mapped == plain.mapped == 0
        assert tied <= own.weights - plain.weights <= 1.2 * tied + 0.1 * moved


def test_devices_hold_the_layers_that_the_log_puts_there():
    lines = [
        "llama_kv_cache: layer   0: dev = CUDA0",
        "llama_kv_cache: layer   1: dev = CPU",
        (
            "llama_kv_cache: size =  512.00 MiB (  4096 cells,   2 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  "
            "256.00 MiB"
        ),
        "llama_memory_recurrent:        CPU RS buffer size =     7.00 MiB",
        "sched_reserve:      CUDA0 compute buffer size =   100.00 MiB",
        "sched_reserve:  CUDA_Host compute buffer size =    10.00 MiB",
    ]
    need = read(lines, 1)
    assert (need.device, need.kv) == (356 * MIB, 512 * MIB)
    assert need.host == 266 * MIB + 4096 * 144


KV = "llama_kv_cache: size =  512.00 MiB (  4096 cells,   2 layers,  1/1 seqs), K (f16):  256.00 MiB"
COMPUTE = "sched_reserve:        CPU compute buffer size =   100.00 MiB"


@pytest.mark.parametrize(
    ("lines", "n_caches", "has_devices", "missing"),
    [
        ([KV, COMPUTE], 1, False, None),
        (["llama_context: other words"], 1, False, "KV cache"),
        ([COMPUTE], 1, False, "KV cache"),
        ([KV.replace("512.00", "0.00"), COMPUTE], 1, False, "KV cache"),
        ([KV, COMPUTE], 2, False, "state"),
        ([KV], 1, False, "computes in"),
        ([KV, COMPUTE], 1, True, "on devices"),
    ],
)
def test_a_log_without_a_size_is_an_error_and_no_part_counts_as_nothing(lines, n_caches, has_devices, missing):
    if missing is None:
        assert read(lines, 1, n_caches, has_devices).kv == 512 * MIB
    else:
        with pytest.raises(NeedUnknownError, match=missing):
            read(lines, 1, n_caches, has_devices)


def test_layers_that_nothing_is_said_of_are_not_taken_to_be_in_memory():
    with pytest.raises(NeedUnknownError):
        offloaded(["load_tensors: other words"])
    assert offloaded(["load_tensors: offloaded 3/4 layers to GPU"]) == 0.75


def test_another_failure_is_not_blamed_on_the_words_of_llama_cpp(caplog):
    def fails(n_ctx: int) -> Any:
        raise OSError("no")

    sizes: Any = SimpleNamespace(of=fails, target=SimpleNamespace(n_snapshots=0, n_ctx_train=2048, n_seq=1))
    with caplog.at_level("WARNING", "uad"):
        assert fitted(sizes, 512, [Limit(1 << 40, "here")]) == Fitted(512, 0)
    assert "OSError: no" in caplog.text
    assert "llama-cpp-python" not in caplog.text


@pytest.mark.parametrize("words", [["-c", "512"], []])
def test_where_a_newer_llama_cpp_has_other_words_a_line_says_so_and_nothing_is_fitted(words, monkeypatch, caplog):
    wanted = load_config(["-m", str(TARGET), "-md", str(DRAFTS["zephyr"]), *words], {})
    monkeypatch.setattr("uad.llama.footprint._KV", re.compile("other words"))
    with caplog.at_level("WARNING", "uad"):
        planned = plan(wanted)
        assert (planned.config.target.n_ctx, planned.memory) == (512 if words else 32768, None)
        assert fitted_beside(wanted.target, "target", 1, True, 768).n_ctx == (512 if words else 768)
    assert len(caplog.records) == 2
    assert "missing: the KV cache" in caplog.text
    assert "--ctx-size" in caplog.text


@pytest.mark.parametrize("name", [None, *NAMES])
def test_the_log_of_the_installed_llama_cpp_is_understood(name, tmp_path):
    """For every kind of memory. Where this fails, llama.cpp has other words: `footprint.py` has the expressions."""
    path = TARGET if name is None else make(name, tmp_path)
    with Footprint(ModelConfig(path, n_threads=1), "target", 2) as footprint:
        small, large = footprint.of(2048), footprint.of(4096)
    assert 0 < small.kv <= large.kv
    assert (small.kv < large.kv) == (name is None or NAMES[name].has_attention)


def uad(*words: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    command = [sys.executable, "-m", "uad", "generate", "-p", "Hi", "-n", "2", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=dict(ENV), check=False, preexec_fn=limited
    )


@pytest.fixture
def long(tmp_path):
    """The bundled target with a context of two million tokens in its header."""
    path = tmp_path / "long.gguf"
    shutil.copy(TARGET, path)
    path.chmod(0o644)
    reader = GGUFReader(path, "r+")
    reader.fields[f"{reader.fields['general.architecture'].contents()}.context_length"].parts[-1][0] = 2_000_000
    reader.data.flush()
    return path


def test_a_limited_process_takes_the_largest_context_and_answers(long):
    done = uad("-m", str(long), "-t", "1", limit=4 * GIB)
    assert done.returncode == 0, done.stderr
    assert "the largest that fits, of the model's 2000000" in done.stderr


def test_a_limited_process_refuses_what_it_cannot_hold(long):
    done = uad("-m", str(long), "-t", "1", "-c", "2000000", limit=4 * GIB)
    assert done.returncode == 2, done.stderr
    assert "--ctx-size 2000000 does not fit into memory" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_goes_to_devices_is_compared_with_what_is_free_there():
    some = Total((MemoryPart("weights", device=100),))
    assert some.fits((), with_files=True), "devices that do not say what is free are not asked"
    assert replace(some, device_room=100).fits((), with_files=True)
    assert not replace(some, device_room=99).fits((), with_files=False)
