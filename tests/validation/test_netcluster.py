"""Clusters of network namespaces: NICs are as fast as asked in both directions, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from rlsim.calibrate.fit import fit_all
from rlsim.errors import UserError
from validation import tables
from validation.netcluster import predict, results
from validation.netcluster.__main__ import main
from validation.netcluster.cluster import BURST, GOODPUT, Cluster, cluster, refuse
from validation.netcluster.launch import HostFailed
from validation.netcluster.measure import STRATEGIES, measure
from validation.netcluster.predict import Sync
from validation.netcluster.worker import Orders

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


@needs_namespaces
def test_weight_syncs_between_three_hosts() -> None:
    """13 MB from one host into two: who sends how much, and how long that takes at 30 MB/s (0.453 s a copy)."""
    orders = Orders(1, (30e6,), (13e6,), STRATEGIES, (1_000_000,), 1)
    rows = pd.DataFrame(measure(2, [orders])).assign(file="")
    points = results.points_of(tables.checked(rows, "the test")).set_index("strategy")
    # the root's NIC carries a copy for each engine, but where the first engine passes it on
    copies = {"root-fanout": 2, "broadcast": 2, "chain": 1, "p2p": 2, "replicate": 1}
    assert points["copies"].round(1).to_dict() == copies
    assert (points["seconds"] > points["floor"]).all()
    late = points["seconds"] / points["predicted"]
    assert late.between(0.95, 2.0).all(), late
    assert points["seconds"]["chain"] < 0.75 * points["seconds"]["root-fanout"]


@needs_namespaces
def test_a_host_that_fails_ends_the_others_and_says_why() -> None:
    wrong = Orders(1, (60e6,), (13e6,), ("carrier-pigeon",), (1_000_000,), 1)
    with pytest.raises(HostFailed, match=r"host \d: .*no way of moving weights called carrier-pigeon"):
        measure(1, [wrong])
    assert left_behind(os.getpid()) == ""


def test_the_formulas_on_paper() -> None:
    """The text's 141 GB over 50 GB/s at 1:1000; NICs give 50 MB/s · 1448/1514 = 47.82 MB/s to a stream."""
    size, bucket = 141e6, 4.7e6  # 30 buckets
    copy = size / (50e6 * 1448 / 1514)

    def seconds(strategy: str, trainers: int, receivers: int) -> float:
        return predict.seconds(Sync(strategy, trainers, receivers, 50e6, size, 0.0 if strategy == "p2p" else bucket))

    paper = {
        ("root-fanout", 1, 4): 4.0,  # copies through the root's NIC
        ("root-fanout", 2, 4): 4.0 + 0.5 / 30,  # of the first bucket, half has to be gathered
        ("chain", 1, 4): 33 / 30,  # 30 buckets, 4 hops
        ("chain", 2, 4): 33 / 30 + 0.5 / 30,
        ("p2p", 1, 4): 4.0,
        ("p2p", 2, 4): 2.0,  # each trainer sends its half to four
        ("p2p", 2, 1): 1.0,  # a whole copy into one
        ("replicate", 2, 4): 1.0 + 1.0 + 2 / 30,  # to the first, which streams on to three
        ("broadcast", 1, 4): 3.0,  # a tree of five has three levels
    }
    for (strategy, trainers, receivers), copies in paper.items():
        found = seconds(strategy, trainers, receivers)
        assert found == pytest.approx(copies * copy, rel=5e-3), (strategy, trainers, receivers)
    assert predict.floor(Sync("chain", 1, 4, 50e6, size, bucket)) == pytest.approx(2.82, rel=5e-3)


def test_fits_find_the_formula_again_and_carry_to_unseen_receivers_and_nics() -> None:
    """Seconds of 0.02 s + formula / (NIC · 0.95): the fit's wire term is 1/0.95 whatever is held out."""
    points = pd.DataFrame(
        {"benchmark": "weight_sync", "strategy": s, "trainers": t, "receivers": r, "nic": nic, "bytes": 24e6,
         "bucket": 2e6, "seconds": 0.02 + copies(r, t) * 24e6 / (0.95 * nic), "repetitions": 5, "file": "paper"}
        for s, copies in {
            "root-fanout": lambda r, t: r,
            "chain": lambda r, t: 1 + (r - 1) / 12,
            "p2p": lambda r, t: max(1.0, r / t),
            "replicate": lambda r, t: 1.0 if r == 1 else 2 + (r - 2) / 12,
        }.items()
        for t in (1, 2) for r in (1, 2, 3, 4) for nic in (25e6, 50e6, 100e6)
    )  # fmt: skip
    for rule in ("receivers=4", "receivers=1", "nic=25e6", "nic=100e6"):
        for fit in fit_all(points, [rule]):
            assert fit.coefficients["wire"].value == pytest.approx(1 / 0.95, rel=0.01), (fit.name, rule)
            assert max(map(abs, fit.unseen)) < 0.01, (fit.name, rule)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--hosts", "1"], "at least one for the trainer and one for an engine"),
        (["--nic", "50 furlongs"], "50 GB/s"),
        (["--nic", "10 B/s"], "0.1 MB/s or more"),
        (["--size", "1 MB"], "at least 10 MB"),
        (["--repetitions", "0"], "1 or more"),
    ],
)
def test_wrong_input_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_without_root_the_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([]) == 2
    assert "needs root" in capsys.readouterr().err
