"""The surface that the simulation sees: rows for every batch, host time inside."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlsim import catalog
from rlsim.catalog.profiles import profile
from rlsim.costs import surface_table
from rlsim.costs.engine_step import EngineShape
from rlsim.costs.kernels import kernels_for
from rlsim.costs.rollout import priced_shapes, surface_from
from rlsim.scenario.load import load_scenario
from rlsim.sim.surface import Surface
from rlsim.system import resolve

HOST = profile("generic")
H0, H1 = HOST.value("engine_step_base_s"), HOST.value("engine_step_per_seq_s")


def part(attn_dp: int = 1, **changes: Any) -> Any:
    entry = {
        "max_num_seqs": 48,
        "max_num_batched_tokens": 8192,
        "block_size": 16,
        "enforce_eager": False,
        "deterministic": False,
        "chunked_prefill": True,
        "prefix_caching": True,
    }
    return SimpleNamespace(entry=SimpleNamespace(**(entry | changes)), layout=SimpleNamespace(attn_dp=attn_dp))


def surface(attn_dp: int = 1, rollout_kernel_factor: float | None = None, **changes: Any) -> Surface:
    model = "Qwen/Qwen2.5-7B" if attn_dp == 1 else "deepseek-ai/DeepSeek-V3"
    dtype = "bf16" if attn_dp == 1 else "fp8"
    shape = EngineShape(catalog.model(model), 1, attn_dp, 1, 1, attn_dp, dtype, "bf16", 8)
    table = surface_table.build(kernels_for(catalog.gpu("h100-sxm"), "sglang"), shape, 48, 8192)
    values = HOST if rollout_kernel_factor is None else HOST.with_values(rollout_kernel_factor=rollout_kernel_factor)
    return surface_from(table, values, part(attn_dp, **changes), 100_000, shape.model.num_layers)


def test_a_row_for_every_batch() -> None:
    s = surface()
    assert s.rank_rows.shape == (49, len(s.knots))
    assert s.joint.shape == (49,)
    assert s.ranks == 1
    assert (s.rank_rows[0] == 0).all()
    assert not s.joint.any()
    assert (np.diff(s.rank_rows[1:], axis=0) > 0).all()


def test_host_time_is_inside() -> None:
    # 15.23 GB of weights less the embedding (1.09 GB) at 3.35 TB/s: 4.2 ms, plus h0 + h1
    assert surface().row(1, 0) > 4.2e-3 + H0 + H1


def test_kernel_time_takes_the_profiles_factor() -> None:
    """row = 1.2·kernels + h0 + h1·b; a lone prompt 1.2·(base + chunk + pairs) + h0: a fifth more but for the host."""
    one, more = surface(attn_dp=32, rollout_kernel_factor=1.0), surface(attn_dp=32, rollout_kernel_factor=1.2)
    assert more.row(8, 1000) - H0 - 8 * H1 == pytest.approx(1.2 * (one.row(8, 1000) - H0 - 8 * H1))
    assert more.joint[100] == pytest.approx(1.2 * one.joint[100])
    assert more.mixed(0, 0, 512, 1e5) - H0 == pytest.approx(1.2 * (one.mixed(0, 0, 512, 1e5) - H0))


def test_host_time_is_not_measured() -> None:
    """Kernels 7 ms at 12 of 48 sequences, of which 6 measured; h0 + 12·h1 = 4 + 0.3 ms is the profile's: 6/11.3."""
    flat = np.full((2, 3), 7e-3)
    table = surface_table.SurfaceTable(
        knots=np.array([0.0, 4096.0, 8192.0]),
        batches=np.array([1.0, 48.0]),
        rank=flat,
        totals=np.array([1.0, 48.0]),
        joint=np.zeros(2),
        chunks=np.array([1.0]),
        prefill=np.zeros(1),
        prefill_totals=np.array([1.0]),
        prefill_joint=np.zeros(1),
        base=0.0,
        pair=0.0,
        provenance={"measured": 6 / 7, "scaled": 1 / 14, "roofline": 1 / 14},
        notes=(),
    )
    values = HOST.with_values(rollout_kernel_factor=1.0, engine_step_base_s=4e-3, engine_step_per_seq_s=25e-6)
    shares = surface_from(table, values, part(), 1000, 1).provenance
    assert shares["measured"] == pytest.approx(6 / 11.3)
    assert shares["roofline"] == pytest.approx((0.5 + 4.3) / 11.3)
    assert sum(shares.values()) == pytest.approx(1.0)
    # eager: 30 layers of 250 µs = 7.5 ms, 0.5 of them over the kernels'
    slow = values.with_values(engine_eager_layer_s=250e-6)
    eager = surface_from(table, slow, part(enforce_eager=True), 1000, 30).provenance
    assert eager["roofline"] == pytest.approx((0.5 + 0.5 + 4.3) / 11.8)


def test_attention_ranks_share_the_experts() -> None:
    s = surface(attn_dp=32)
    assert s.ranks == 32
    assert s.joint.shape == (32 * 48 + 1,)
    assert s.joint[0] == 0
    assert (np.diff(s.joint) >= 0).all()
    assert s.joint[-1] > 58 * 100e-6


def test_a_lone_prompt_costs_less_than_its_share_of_a_full_chunk() -> None:
    s = surface(attn_dp=32)
    full, small = s.mixed(0, 0, 8192, 0.0), s.mixed(0, 0, 512, 0.0)
    assert small < full
    # beside a decode the pass over the weights is already paid
    assert s.mixed(8, 1000, 512, 0.0) - s.row(8, 1000) < small


def test_a_lone_chunk_is_cheaper_than_one_on_every_rank() -> None:
    """The experts have 8,192 tokens instead of 262,144; what goes over the busiest rank's links is the same."""
    s = surface(attn_dp=32)
    rank = s.mixed(0, 0, 8192, 0.0)
    alone, every = (rank + s.joint_prefill(n, 0) for n in (8192, 32 * 8192))
    assert alone < 0.6 * every
    # beside 256 decodes the experts' weights are already read
    assert s.joint_prefill(8192, 256) < s.joint_prefill(8192, 0)
    assert surface().joint_prefill(8192, 0) == 0


def test_eager_and_deterministic_engines_are_slower() -> None:
    plain = surface()
    assert surface(enforce_eager=True).row(1, 0) >= 28 * HOST.value("engine_eager_layer_s")
    slow = surface(deterministic=True)
    factor = HOST.value("engine_deterministic_factor")
    assert slow.row(8, 1000) - H0 - 8 * H1 == pytest.approx(factor * (plain.row(8, 1000) - H0 - 8 * H1))


def test_shipped_scenarios_have_their_surfaces_in_the_package() -> None:
    files = sorted((Path(surface_table.__file__).parents[2] / "scenarios").glob("*.yaml"))
    for file in files:
        for scenario in load_scenario(file).variants:
            system = resolve(scenario)
            for one in system.rollout:
                for each in priced_shapes(system, one):
                    limits = (each.max_num_seqs, each.max_tokens)
                    kernels = scenario.costs.kernels
                    name = surface_table.key(one.pool.gpu, one.entry.engine, each.shape, *limits, kernels)
                    stored = surface_table.SHIPPED / f"surface-{name[:20]}.npz"
                    assert stored.exists(), f"{file.name}: run python -m rlsim.costs.build_surfaces"
