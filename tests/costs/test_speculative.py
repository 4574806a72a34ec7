"""Speculative decoding: the formula on paper, and what it makes of real engines."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.costs import speculative
from rlsim.costs.rollout import engine_shape, engine_surface
from rlsim.costs.speculative import Pricing, speculate, tokens_per_pass
from rlsim.costs.surface_table import SurfaceTable
from rlsim.errors import UserError
from rlsim.scenario.schema_roles import Speculative
from rlsim.sim.surface import Surface

from .systems import DEEPSEEK_V3, LLAMA_70B, QWEN_7B, system


def engine(text: str, spec: str | None = None, *more: str) -> Surface:
    one = system(text, *([f"rollout.speculative={spec}"] if spec else []), *more)
    return engine_surface(one, one.rollout[0], 10**6)


def iteration(s: Surface, b: int, c: float = 4000.0) -> float:
    return s.row(b, c) + float(s.joint[b * s.ranks])


@pytest.mark.parametrize(("alpha", "k", "tokens"), [(0.0, 3, 1.0), (1.0, 3, 4.0), (0.5, 1, 1.5), (0.7, 3, 2.533)])
def test_tokens_of_a_pass(alpha: float, k: int, tokens: float) -> None:
    """(1 - 0.7^4)/(1 - 0.7) = 0.7599/0.3 = 2.533."""
    assert float(tokens_per_pass(alpha, k)) == pytest.approx(tokens)


def table(per_sequence: float, per_token: float, fixed: float = 0.0) -> SurfaceTable:
    """Kernels of `fixed` + `per_sequence` a sequence and `per_token` a token of context; 16 sequences at most."""
    knots, batches = np.array([0.0, 8000.0]), np.array([1.0, 16.0])
    return SurfaceTable(
        knots=knots,
        batches=batches,
        rank=fixed + per_sequence * batches[:, None] + per_token * np.outer(batches, knots),
        totals=batches,
        joint=np.zeros(2),
        chunks=np.array([1.0, 100.0]),
        prefill=np.array([0.0, 0.1]),
        prefill_totals=np.array([1.0]),
        prefill_joint=np.zeros(1),
        base=0.01,
        pair=1e-9,
        provenance={},
        notes=(),
    )


def plain(slots: int) -> Surface:
    return Surface(
        knots=np.array([0.0, 8000.0]),
        rank_rows=np.ones((slots + 1, 2)),
        joint=np.zeros(slots + 1),
        prefill_knots=np.array([0.0, 100.0]),
        prefill_seconds=np.array([0.0, 1.0]),
        prefill_pair_seconds=1e-8,
        prefill_base=0.1,
        provenance={},
        kv_capacity_tokens=1000,
        block_size=16,
        max_num_seqs=slots,
        max_num_batched_tokens=1000,
    )


def test_a_pass_on_paper() -> None:
    """k = 1, α = 0.5: 1.5 tokens a pass. 2 sequences of 1,000 tokens: verify 4 tokens, 10 + 4·1 ms, their KV read
    once, 2·1,000·1 µs = 2 ms; one draft of 1 + 2·0.5 ms; host 3 + 2·0.25 ms: 21.5 ms, 14.33 ms a token.
    Above 4 sequences nothing changes.
    """
    spec = Speculative(method="draft", tokens=1, acceptance=0.5, draft_model="x", max_batch=4)
    by = Pricing(factor=1.0, base=3e-3, per_sequence=0.25e-3)
    s = speculate(plain(8), table(1e-3, 1e-6, 10e-3), table(0.5e-3, 0.0, 1e-3), spec, 1.0, by)
    assert s.row(2, 1000) == pytest.approx(21.5e-3 / 1.5)
    assert s.row(5, 1000) == 1.0
    # prompts pass through the draft too: base 0.1 + 0.01, 50 tokens 0.5 + 0.05, 1e6 pairs 0.01 + 0.001
    assert s.mixed(0, 0, 50, 1e6) == pytest.approx(0.671)


def test_acceptance_by_running_sequences() -> None:
    spec = Speculative(method="ngram", tokens=1, acceptance={1: 0.8, 5: 0.4})
    at = speculative.acceptance_at(spec, np.array([1.0, 3.0, 9.0]))
    assert at.tolist() == pytest.approx([0.8, 0.6, 0.4])


def test_drafts_that_are_never_kept_never_help() -> None:
    for text in (QWEN_7B, DEEPSEEK_V3):
        before = engine(text)
        for method in ("ngram", "mtp"):
            after = engine(text, f"{{method: {method}, tokens: 2, acceptance: 0.0}}")
            assert all(iteration(after, b) > iteration(before, b) * (1 - 1e-9) for b in (1, 8, 64, 256))


def test_drafts_that_are_always_kept_gain_at_most_their_number() -> None:
    """Every pass reads the weights: 141 GB less the embedding (2.1) over 8 GPUs at 3.35 TB/s, 5.2 ms for 4 tokens."""
    before, after = engine(LLAMA_70B), engine(LLAMA_70B, "{method: ngram, tokens: 3, acceptance: 1.0}")
    for b in (1, 16, 256):
        assert iteration(after, b) >= iteration(before, b) / 4 * (1 - 1e-9)
    assert iteration(after, 1) > 5.2e-3 / 4


def test_a_gain_for_few_sequences_a_loss_for_many() -> None:
    spec = "{method: ngram, tokens: 5, acceptance: 0.3}"
    before, after = engine(QWEN_7B), engine(QWEN_7B, spec)
    assert iteration(before, 1) > 1.3 * iteration(after, 1)
    assert iteration(before, 256) < iteration(after, 256)
    limited = engine(QWEN_7B, "{method: ngram, tokens: 5, acceptance: 0.3, max_batch: 32}")
    assert iteration(limited, 32) == pytest.approx(iteration(after, 32), rel=1e-3)
    assert iteration(limited, 256) == pytest.approx(iteration(before, 256), rel=1e-3)


def test_multi_token_prediction_of_deepseek() -> None:
    """One drafted token, 85 to 90% of them kept: 1.8 times the tokens per second (DeepSeek-V3 report, 5.4.3)."""
    before, after = engine(DEEPSEEK_V3), engine(DEEPSEEK_V3, "{method: mtp, tokens: 1, acceptance: 0.875}")
    assert iteration(before, 4) / iteration(after, 4) == pytest.approx(1.8, rel=0.1)


def test_latent_attention_pays_for_its_queries() -> None:
    """MLA with 128 heads: 2·128·(2·512 + 64)/(576·2) = 242 FLOP per byte, the ridge of H100 is 295: two queries need
    484/295 = 1.64 times the time. 8 query heads to a KV head: 8 FLOP per byte, four queries read KV in the same time.
    """
    one = system(DEEPSEEK_V3)
    gpu = one.rollout[0].pool.gpu
    assert speculative.attention_growth(engine_shape(one, one.rollout[0]), 1, gpu) == pytest.approx(1.64, rel=0.01)
    other = system(LLAMA_70B)
    assert speculative.attention_growth(engine_shape(other, other.rollout[0]), 3, gpu) == 1.0


def test_an_unknown_draft_model_is_named() -> None:
    with pytest.raises(UserError, match=r"rollout\.speculative\.draft_model"):
        engine(QWEN_7B, "{method: draft, acceptance: 0.5, draft_model: Qwen/Nothing}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{method: mtp, acceptance: 1.2}", "no chance"),
        ("{method: mtp, acceptance: {1: 0.5, 8: -0.1}}", "no chance"),
        ("{method: draft, acceptance: 0.5}", "draft needs a model"),
        ("{method: eagle, acceptance: 0.5, draft_model: Qwen/Qwen3-0.6B}", "no model of its own"),
    ],
)
def test_mistakes(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        system(QWEN_7B, f"rollout.speculative={spec}")
