"""The process on every host: real weight syncs by `rlsim.reshard.distributed`, bytes compared, time taken.

Host 0 changes the NICs between cases, and prints one row of JSON per repetition.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rlsim.reshard.distributed import transfer
from rlsim.reshard.plan import Plan, plan_between
from rlsim.reshard.state import shard
from validation import sync_models, tables
from validation.netcluster.cluster import Cluster, Host, shape

State = dict[str, torch.Tensor]
NO_BUCKETS = ("p2p",)
COUNTERS = Path("/sys/class/net/eth0/statistics")
STREAM = 20_000_000
"""Bytes of the message that tells what a stream makes of a NIC."""


@dataclass(frozen=True)
class Orders:
    """What to measure on a cluster: every NIC with every size, strategy and bucket.

    trainers   hosts that hold the model together (FSDP2); the others are engines, one rank each
    nics       bytes/s; sizes and buckets: bytes
    """

    trainers: int
    nics: tuple[float, ...]
    sizes: tuple[float, ...]
    strategies: tuple[str, ...]
    buckets: tuple[int, ...]
    repetitions: int


def written(built: Cluster, orders: Sequence[Orders]) -> str:
    """The cluster and the orders for the command line of its hosts."""
    return json.dumps({"cluster": asdict(built), "orders": [asdict(one) for one in orders]})


@dataclass(frozen=True)
class Pass:
    """One repetition. seconds, sent, received: of the slowest, busiest host; busy: share of all cores."""

    seconds: float
    busy: float
    sent: float
    received: float


def main(text: str) -> None:
    """Do the orders."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    read = json.loads(text)
    built = Cluster(tuple(Host(**one) for one in read["cluster"]["hosts"]), read["cluster"]["switch"])
    fixed = {**tables.identity(), "backend": "gloo", "world": dist.get_world_size()}
    for orders in (Orders(**one) for one in read["orders"]):
        for nic in orders.nics:
            if dist.get_rank() == 0:
                shape(built, nic)
            dist.barrier()
            for row in _rows(orders, nic):
                if dist.get_rank() == 0:
                    sys.stdout.write(json.dumps({**row, **fixed}) + "\n")
    dist.destroy_process_group()


def _rows(orders: Orders, nic: float) -> Iterator[dict[str, Any]]:
    receivers = dist.get_world_size() - orders.trainers
    for number, one in enumerate(_measured(_stream, orders)[0]):
        yield {
            "benchmark": "collective", "case": f"stream-n{nic:.0f}-w{dist.get_world_size()}", "repetition": number,
            "op": "send_recv", "bytes": STREAM, "nic": nic, **asdict(one),
        }  # fmt: skip
    for size in orders.sizes:
        plan, held, wanted = _weights(size, orders.trainers, receivers)
        for strategy in orders.strategies:
            for bucket in (0,) if strategy in NO_BUCKETS else orders.buckets:
                passes, found = _measured(lambda p=plan, h=held, s=strategy, b=bucket: transfer(p, h, s, b), orders)
                if bad := sync_models.wrong(found, wanted):
                    raise RuntimeError(f"{strategy} delivers wrong bytes: {', '.join(bad[:3])}")
                for number, one in enumerate(passes):
                    yield {
                        "benchmark": "weight_sync",
                        "case": f"{strategy}-t{orders.trainers}-r{receivers}-n{nic:.0f}-p{size:.0f}-k{bucket}",
                        "repetition": number, "strategy": strategy, "trainers": orders.trainers,
                        "receivers": receivers, "nic": nic, "bucket": bucket, "bytes": plan.model_bytes, **asdict(one),
                    }  # fmt: skip


def _weights(size: float, trainers: int, receivers: int) -> tuple[Plan, State, State]:
    """(plan, what this host holds before, what it has to hold after)."""
    m = sync_models.model_of(size)
    source, target = sync_models.layouts(m, trainers, receivers)
    whole, rank = sync_models.checkpoint(m), dist.get_rank()
    held = shard(whole, m, source, rank) if rank < trainers else {}
    return plan_between(m, source, target), held, {} if rank < trainers else shard(whole, m, target, 0)


def _stream() -> State:
    """One message from the first host to the last."""
    if dist.get_rank() == 0:
        dist.send(torch.zeros(STREAM, dtype=torch.uint8), dist.get_world_size() - 1)
    elif dist.get_rank() == dist.get_world_size() - 1:
        dist.recv(torch.empty(STREAM, dtype=torch.uint8), 0)
    return {}


def _measured(work: Callable[[], State], orders: Orders) -> tuple[list[Pass], State]:
    """Repetitions, and what the last one brought.

    One before them is warm-up: connections are made, windows open, what the NICs may send at once is used up.
    """
    found = work()
    passes = []
    for _ in range(orders.repetitions):
        dist.barrier()
        before, start = _counters(), time.perf_counter()
        found = work()
        seconds = time.perf_counter() - start
        dist.barrier()  # what is sent may still be in the windows, and the others load the cores too
        after = _counters()
        values = torch.tensor([seconds, after[0] - before[0], after[1] - before[1]], dtype=torch.float64)
        dist.all_reduce(values, dist.ReduceOp.MAX)
        busy = 1.0 - (after[3] - before[3]) / max(1.0, after[2] - before[2])
        passes.append(Pass(float(values[0]), busy, float(values[1]), float(values[2])))
    return passes, found


def _counters() -> tuple[float, float, float, float]:
    """(bytes sent, bytes received, ticks of all cores, of these idle)."""
    ticks = [float(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    sent, received = (float((COUNTERS / name).read_text()) for name in ("tx_bytes", "rx_bytes"))
    return sent, received, sum(ticks), ticks[3] + ticks[4]


if __name__ == "__main__":
    main(sys.argv[1])
