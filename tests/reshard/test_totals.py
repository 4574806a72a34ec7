"""What a plan puts on the links, against its whole matrix."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.reshard.plan import plan_between
from rlsim.reshard.totals import plan_totals

from .layouts import engines, trainer
from .small_models import DENSE, MLA, NORM

CASES = [
    (DENSE, trainer(DENSE, tp=2, gpus=4), engines(DENSE, count=2, attn_tp=2), 0),
    (
        DENSE,
        trainer(DENSE, tp=2, gpus=12),
        engines(DENSE, count=3, attn_tp=4),
        12,
    ),  # a node of both roles
    (NORM, trainer(NORM, tp=2, pp=2, gpus=16), engines(NORM, count=4, attn_tp=4), 16),
    (MLA, trainer(MLA, "fsdp2", gpus=16), engines(MLA, count=2, attn_dp=8, moe_ep=8), 0),
]


@pytest.mark.parametrize(("m", "source", "target", "first"), CASES)
def test_totals_are_those_of_the_matrix(m, source, target, first) -> None:  # type: ignore[no-untyped-def]
    moved = plan_between(m, source, target, first_engine_gpu=first).moved
    nodes = np.arange(source.gpus)[:, None] // 8, (np.arange(target.gpus)[None, :] + first) // 8
    near = np.where(nodes[0] == nodes[1], moved, 0.0)
    found = plan_totals(m, source, target, 2.0, first)
    for got, wanted in (
        (found.out_nvlink, near.sum(axis=1)),
        (found.out_nic, (moved - near).sum(axis=1)),
        (found.in_nvlink, near.sum(axis=0)),
        (found.in_nic, (moved - near).sum(axis=0)),
    ):
        assert got == pytest.approx(wanted)
