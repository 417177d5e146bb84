"""What there is to say of devices and workers where no worker runs, with or without the RPC backend."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from kit.models import TARGET
from kit.process import free_port

from uad.base.config import ModelConfig
from uad.base.errors import ConfigError
from uad.llama.backend import devices, rpc
from uad.llama.backend.devices import Device, has_cpu_kernels, named, offloads, used
from uad.runtime.costs import profile_store
from uad.tools.cli.rpc_worker import Worker, WorkerConfig, device_lines

WORKER = Device("RPC0", "10.0.0.2:50052", takes_layers=True, is_remote=True, handle=1)
GPU = Device("CUDA0", "a card", takes_layers=True, is_remote=False, handle=2)
CPU = Device("CPU", "a processor", takes_layers=False, is_remote=False, handle=3)
CONFIG = ModelConfig(TARGET)


def have(monkeypatch: pytest.MonkeyPatch, *there: Device) -> None:
    monkeypatch.setattr(devices, "every", lambda: there)


def test_this_machine_has_a_cpu_that_takes_no_layers() -> None:
    (cpu,) = (one for one in devices.every() if one.name == "CPU")
    assert not cpu.takes_layers
    assert not cpu.is_remote
    assert cpu.free > 0
    assert any(line.startswith("CPU: ") for line in device_lines())


def test_a_model_uses_all_devices_but_those_that_were_chosen_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, CPU, WORKER, GPU)
    assert used(CONFIG) == (WORKER, GPU)
    assert used(replace(CONFIG, devices=("CUDA0",))) == (GPU,)
    assert used(replace(CONFIG, devices=())) == ()


def test_only_this_machines_gpus_are_known_to_have_no_cpu_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, CPU, WORKER, GPU)
    given = [replace(CONFIG, devices=names) for names in ((), ("CUDA0",), ("RPC0",), ("RPC0", "CUDA0"))]
    assert [has_cpu_kernels(one) for one in given] == [True, False, True, True]
    assert [offloads(one) for one in given] == [False, True, True, True]


def test_the_rpc_backend_alone_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp says that it can offload as soon as it was built with RPC, whether there is a worker or not."""
    have(monkeypatch, CPU)
    assert not offloads(CONFIG)
    assert has_cpu_kernels(CONFIG)


def test_an_unknown_name_is_told_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, CPU, WORKER, GPU)
    with pytest.raises(ConfigError, match=r"--device-draft: no device 'CUDA1'; did you mean CUDA0.*10\.0\.0\.2:50052"):
        named(("CUDA1",), (WORKER, GPU), "--device-draft")
    with pytest.raises(ConfigError, match="there is none but the CPU"):
        named(("CUDA1",), ())


def test_a_cost_curve_belongs_to_its_devices_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, CPU, GPU)
    here = profile_store.key(CONFIG, "target").name
    have(monkeypatch, CPU, WORKER, GPU)
    configs = [CONFIG, *(replace(CONFIG, devices=names) for names in (("RPC0",), ("CUDA0",), ()))]
    names = [profile_store.key(one, "target").name for one in (*configs, replace(CONFIG, tensor_split=(3.0, 1.0)))]
    assert len({here, *names}) == 6
    have(monkeypatch, CPU, replace(WORKER, description="10.0.0.3:50052"), GPU)
    assert profile_store.key(CONFIG, "target").name not in names


# --- workers


def test_without_the_backend_the_command_that_builds_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_registry", lambda: None)
    with pytest.raises(ConfigError, match="CMAKE_ARGS=-DGGML_RPC=on"):
        rpc.connect(["127.0.0.1:50052"])
    with pytest.raises(ConfigError, match="CMAKE_ARGS=-DGGML_RPC=on"):
        Worker(WorkerConfig())


@pytest.fixture
def _backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "is_built", lambda: True)


@pytest.mark.usefixtures("_backend")
def test_a_worker_listens_on_loopback_only_unless_told_otherwise() -> None:
    with pytest.raises(ConfigError, match=r"--host 0\.0\.0\.0 lets other machines in.* give --allow-network"):
        Worker(WorkerConfig(host="0.0.0.0"))
    with pytest.raises(ConfigError, match="no IPv4 address"):
        Worker(WorkerConfig(host="::1"))
    (only,) = Worker(WorkerConfig(port=free_port(), kernels=False)).notes
    assert only.startswith("serving ")
    *_, warning = Worker(WorkerConfig(host="0.0.0.0", port=free_port(), allow_network=True)).notes
    assert warning.startswith("warning: RPC has no encryption and no keys")


@pytest.mark.usefixtures("_backend")
def test_a_worker_names_what_is_wrong_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="cannot listen on"):
        Worker(WorkerConfig(port=taken.getsockname()[1]))
    with pytest.raises(ConfigError, match="--device: no device 'XPU'"):
        Worker(WorkerConfig(devices=("XPU",)))
    (tmp_path / "file").touch()
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="--cache: "):
        Worker(WorkerConfig(cache=True))


def test_connections_to_workers_are_watched_and_no_file_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as worker,
        socket.create_connection(worker.getsockname()) as one,
        socket.create_connection(worker.getsockname()) as other,
    ):
        host, port = worker.getsockname()
        before = len(os.listdir("/dev/fd"))
        assert rpc.watch() == 0
        monkeypatch.setattr(rpc, "_added", [f"{host}:{port}"])
        assert rpc.watch() == 2
        assert len(os.listdir("/dev/fd")) == before
        assert [end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for end in (one, other, worker)] == [1, 1, 0]
