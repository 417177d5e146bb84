"""Streams of logs on real pipes: nobody who writes waits, the order stays, and what is lost is counted."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from uad.base.log_writer import LogWriter, drain, kept_streams, never_wait, writer_of

PIPE_BYTES = 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A small one: where to read, and where to write."""
    reading, writing = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:
            continue


def read_all(reading: int, writer: LogWriter) -> list[str]:
    """What comes, up to a last line."""
    got = bytearray()

    def read() -> None:
        while not got.endswith(b"end\n"):
            got.extend(os.read(reading, 1 << 16))

    thread = threading.Thread(target=read)
    thread.start()
    writer.drain(60)
    writer.write("end\n")
    thread.join(120)
    return got.decode().splitlines()[:-1]


def test_lines_come_in_order(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1])
    for i in range(500):
        print(f"line {i}", file=writer, flush=True)
    assert read_all(pipe[0], writer) == [f"line {i}" for i in range(500)]


def test_a_pipe_that_nobody_reads_costs_lines_and_no_time(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], most_bytes=1000)
    for i in range(5000):
        print(f"line {i}", file=writer, flush=True)
    lines = read_all(pipe[0], writer)
    kept = [line for line in lines if line.startswith("line ")]
    n_missing = [int(line.split()[1]) for line in lines if "missing here" in line]
    assert kept == sorted(kept, key=lambda line: int(line.split()[1]))
    assert sum(n_missing) == 5000 - len(kept) > 4000


def test_lines_after_a_gap_stand_after_the_line_that_counts_it(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], most_bytes=100)
    os.write(pipe[1], b"x" * PIPE_BYTES)
    writer.write("kept\n")
    for _ in range(7):
        writer.write("x" * 101 + "\n")
    assert os.read(pipe[0], PIPE_BYTES)[:1] == b"x"
    writer.drain(60)
    writer.write("later\n")
    writer.drain(60)
    assert os.read(pipe[0], PIPE_BYTES) == (b"kept\nuad: 7 lines are missing here: nothing could be written\nlater\n")


def test_a_line_is_lost_as_a_whole(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], most_bytes=50)
    print("y" * 51, file=writer)
    writer.drain(60)
    assert os.read(pipe[0], PIPE_BYTES) == b"uad: 1 line is missing here: nothing could be written\n"


def test_a_reader_that_has_left_costs_nothing(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1])
    os.close(pipe[0])
    for _ in range(3):
        print("line", file=writer, flush=True)
        writer.drain(60)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a system without /dev/full")
def test_a_full_disk_costs_the_lines_that_it_had_no_room_for(tmp_path: os.PathLike[str]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    writer = LogWriter(full)
    writer.write("a\nb\n")
    writer.drain(60)
    with open(os.path.join(tmp_path, "log"), "w") as room:
        os.dup2(room.fileno(), writer._fd)
        writer.write("c\n")
        writer.drain(60)
    os.close(full)
    with open(os.path.join(tmp_path, "log")) as log:
        assert log.read() == "uad: 2 lines are missing here: nothing could be written\nc\n"


def test_a_pipe_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    writer = LogWriter(pipe[1])
    text = "".join(f"line {i}\n" for i in range(2000))
    writer.write(text)
    assert read_all(pipe[0], writer) == text.splitlines()


def test_text_that_the_encoding_lacks_is_written_in_ascii(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], "ascii")
    writer.write("東\n")
    writer.drain(60)
    assert os.read(pipe[0], 99) == b"\\u6771\n"


def test_two_streams_to_one_file_keep_their_order(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.dup(pipe[1])
    with open(pipe[1], "w", closefd=False) as out, open(other, "w") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        with kept_streams():
            never_wait()
            assert sys.stdout is sys.stderr
            for i in range(100):
                print(i, file=sys.stdout if i % 2 else sys.stderr, flush=True)
        assert sys.stdout is out
        assert sys.stderr is err
    assert os.read(pipe[0], PIPE_BYTES).split() == [str(i).encode() for i in range(100)]


def test_leaving_waits_for_a_moment_only(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uad.base.log_writer._DRAIN_S", 0.01)
    with kept_streams():
        writer_of(pipe[1]).write("x" * 3 * PIPE_BYTES)
        drain()
