"""The textbook's four cases of one fused QKV: TP 2 → 2 and 2 → 4, right and naive, and the map of ranks."""

from __future__ import annotations

import pytest
import torch

from rlsim.reshard.detect import detect
from rlsim.reshard.execute import execute
from rlsim.reshard.plan import plan_between
from rlsim.reshard.state import shard, unshard

from . import brute
from .layouts import engines, trainer
from .small_models import DENSE, checkpoint

SOURCE = "decoder.layers.0.self_attention.linear_qkv.weight"
TARGET = "model.layers.0.self_attn.qkv_proj.weight"


@pytest.mark.parametrize("tp", [2, 4])
def test_right(tp: int) -> None:
    hf = checkpoint(DENSE)
    source, target = trainer(DENSE, tp=2), engines(DENSE, attn_tp=tp)
    held = [shard(hf, DENSE, source, rank) for rank in range(2)]
    for rank, state in enumerate(execute(plan_between(DENSE, source, target), held)):
        assert torch.equal(state[TARGET], brute.engine(hf, DENSE, target, rank)[TARGET])


def test_naive_two_to_two_has_the_right_shape_and_wrong_numbers() -> None:
    """Rank t's fused tensor copied as it is: [q k v q k v] where the engine expects [q q k k v v]."""
    hf = checkpoint(DENSE)
    target = engines(DENSE, attn_tp=2)
    naive = [shard(hf, DENSE, trainer(DENSE, tp=2), t)[SOURCE] for t in range(2)]
    right = [brute.engine(hf, DENSE, target, t)[TARGET] for t in range(2)]
    assert [x.shape for x in naive] == [x.shape for x in right]
    assert not any(torch.equal(a, b) for a, b in zip(naive, right, strict=True))
    states = [brute.engine(hf, DENSE, target, t) | {TARGET: naive[t]} for t in range(2)]
    (finding,) = detect(hf, unshard(states, DENSE, target), DENSE).wrong
    assert "TP = 2 shards" in finding.mistake
    assert len(finding.tensors) == 3


def test_naive_two_to_four_fails_on_the_shape() -> None:
    hf = checkpoint(DENSE)
    target = engines(DENSE, attn_tp=4)
    naive = shard(hf, DENSE, trainer(DENSE, tp=2), 0)[SOURCE]
    wanted = brute.engine(hf, DENSE, target, 0)[TARGET]
    assert naive.shape == (32, 24)
    assert wanted.shape == (16, 24)
    with pytest.raises(RuntimeError, match="size of tensor"):
        torch.empty_like(wanted).copy_(naive)


def test_the_map_of_ranks() -> None:
    """TP 2 → 4: ranks 0 and 1 from rank 0, ranks 2 and 3 from rank 1."""
    (block,) = plan_between(DENSE, trainer(DENSE, tp=2), engines(DENSE, attn_tp=4)).blocks([0])
    runs = block.runs
    qkv = [i for i, t in enumerate(block.targets) if t.name == TARGET]
    pairs = {
        (int(d), int(s)) for d, s, t in zip(runs.dst_rank, runs.src_rank, runs.dst_tensor, strict=True) if t in qkv
    }
    assert pairs == {(0, 0), (1, 0), (2, 1), (3, 1)}
