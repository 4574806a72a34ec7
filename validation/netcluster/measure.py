"""Weight syncs between the hosts of a cluster: rows of measurements, one per repetition."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from validation.netcluster.cluster import cluster
from validation.netcluster.launch import launch
from validation.netcluster.worker import Orders, written

STRATEGIES = ("root-fanout", "broadcast", "chain", "p2p", "replicate")
BUCKETED = ("chain", "replicate")
"""Strategies whose time depends on the bucket."""
LIMIT = 1200.0


def measure(
    receivers: int, orders: Sequence[Orders], tell: Callable[[str], object] = lambda line: None
) -> list[dict[str, Any]]:
    """Build a cluster of trainers (the same in all orders) and receivers, carry the orders out, take it down."""
    trainers = orders[0].trainers
    with cluster(trainers + receivers, orders[0].nics[0]) as built:
        tell(f"{len(built.hosts)} hosts: {trainers} with the trainer, {receivers} with an engine each")
        said = launch(built, "validation.netcluster.worker", [written(built, orders)], LIMIT)
    return [json.loads(line) for line in said.splitlines()]


def grid(trainers: int, receivers: int) -> list[Orders]:
    """What `validation/measurements/netcluster/` holds for one cluster.

    The text's 141 GB over 50 GB/s at 1:1000 where the trainer has two hosts and there are one or four receivers; else
    24 MB over three NICs, with three sizes of buckets where they matter.
    """
    every = Orders(trainers, (50e6, 100e6), (24e6,), STRATEGIES, (2_000_000,), 5)
    if trainers == 1:
        return [every]
    orders = [
        Orders(trainers, (25e6, 50e6, 100e6), (24e6,), STRATEGIES, (2_000_000,), 5),
        Orders(trainers, (50e6, 100e6), (24e6,), BUCKETED, (1_000_000, 4_000_000), 5),
    ]
    if receivers in (1, 4):
        orders.append(Orders(trainers, (50e6,), (141.1e6,), STRATEGIES, (4_000_000,), 5))
    return orders


GRID = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 3), (2, 4))
"""(trainers, receivers)."""
