"""Clusters of network namespaces: NICs are as fast as asked in both directions, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlsim.errors import UserError
from validation.netcluster.cluster import BURST, GOODPUT, Cluster, cluster, refuse

ROOT = Path(__file__).parents[2]
try:
    refuse()
    REFUSED = ""
except UserError as error:
    REFUSED = str(error)
needs_namespaces = pytest.mark.skipif(bool(REFUSED), reason=REFUSED)

SIZE = 20_000_000
TAKE = """
import selectors, socket, sys, time
listening = socket.create_server((sys.argv[1], 5000))
waiting, left = selectors.DefaultSelector(), int(sys.argv[3])
for _ in range(int(sys.argv[2])):
    waiting.register(listening.accept()[0], selectors.EVENT_READ)
while left > 0:
    for key, _ in waiting.select():
        left -= len(key.fileobj.recv(1 << 20))
print(time.monotonic())
"""
GIVE = """
import socket, sys, time
for _ in range(100):
    try:
        stream = socket.create_connection((sys.argv[1], 5000))
        break
    except OSError:
        time.sleep(0.05)
print(time.monotonic())
stream.sendall(bytes(int(sys.argv[2])))
"""


def seconds(built: Cluster, senders: list[int], receivers: list[int]) -> float:
    """From the first byte sent until every receiver has `SIZE` bytes from every sender."""
    size, all_of_them = str(SIZE), str(SIZE * len(senders))
    taking = [started(built, r, TAKE, built.hosts[r].address, str(len(senders)), all_of_them) for r in receivers]
    giving = [started(built, s, GIVE, built.hosts[r].address, size) for s in senders for r in receivers]
    first = min(float(process.communicate()[0]) for process in giving)
    return max(float(process.communicate()[0]) for process in taking) - first


def started(built: Cluster, host: int, code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(built.inside(host, sys.executable, "-c", code, *arguments), stdout=subprocess.PIPE)


def left_behind(pid: int) -> str:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in listed.splitlines() if line.startswith(f"rlsim-{pid}-"))


@needs_namespaces
def test_nics_hold_their_rate_in_and_out() -> None:
    """20 MB at 40 MB/s of frames: 20 / (40 · 1448/1514) = 0.523 s; two through one NIC, out or in, 1.046 s."""
    nic = 40e6
    once = SIZE / (nic * GOODPUT)
    assert pytest.approx(0.5228, abs=1e-4) == once
    with cluster(3, nic) as built:
        for senders, receivers, copies in (([0], [1], 1), ([0], [1, 2], 2), ([0, 1], [2], 2)):
            expected = copies * once
            found = seconds(built, senders, receivers)
            assert expected - BURST / nic - 0.01 < found < 1.15 * expected, (senders, receivers)


@needs_namespaces
def test_nothing_stays_behind_after_an_error() -> None:
    sleeping: list[subprocess.Popen[bytes]] = []

    def fail_inside() -> None:
        with cluster(2, 1e8) as built:
            assert left_behind(os.getpid()).count("\n") == 2
            sleeping.append(subprocess.Popen(built.inside(1, "sleep", "60")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert left_behind(os.getpid()) == ""
    assert sleeping[0].wait(5) == -signal.SIGKILL


@needs_namespaces
def test_nothing_stays_behind_after_an_interrupt() -> None:
    code = (
        "import time; from validation.netcluster.cluster import cluster\n"
        "with cluster(2, 1e8): print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert left_behind(process.pid) != ""
    process.send_signal(signal.SIGINT)
    process.wait(20)
    assert left_behind(process.pid) == ""


@needs_namespaces
def test_the_next_cluster_removes_what_a_killed_process_left() -> None:
    code = (
        "import os, signal; from validation.netcluster.cluster import cluster\n"
        "with cluster(2, 1e8): os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    process.wait(20)
    assert left_behind(process.pid) != ""
    with cluster(2, 1e8):
        assert left_behind(process.pid) == ""


def test_a_cluster_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="1 hosts"), cluster(1, 1e8):
        pass


def test_without_iproute2_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match=r"needs `ip`.*install iproute2"):
        refuse()
