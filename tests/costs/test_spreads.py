"""Ranges of phases from the profile's ranges, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlsim.catalog.profiles import profile
from rlsim.costs.spreads import (
    CONTROLLER,
    FSDP_SYNC,
    LOGPROB,
    REWARD,
    ROLLOUT,
    SWITCH,
    TRAINING,
    UPDATE,
    WEIGHT_SYNC,
    ParameterDraws,
    Parts,
    Rules,
    multipliers,
)

GENERIC = profile("generic")
DRAWS = ParameterDraws(GENERIC)


def ends(parts: Parts, rules: Rules) -> tuple[float, float]:
    """(p10, p90)."""
    low, high = np.quantile(multipliers(parts, rules, DRAWS), (0.1, 0.9))
    return float(low), float(high)


def test_a_phase_of_one_part_has_the_range_of_its_parameter() -> None:
    p = GENERIC.parameters["gemm_derate"]
    assert ends({"compute": 3.0}, TRAINING) == pytest.approx((p.low / p.value, p.high / p.value), rel=0.01)


def test_an_inverse_parameter_swaps_the_sides() -> None:
    p = GENERIC.parameters["sync_nic_efficiency"]
    assert ends({"wire": 1.0}, WEIGHT_SYNC) == pytest.approx((p.value / p.high, p.value / p.low), rel=0.01)


def test_half_of_a_phase_moves_it_by_half_the_range() -> None:
    p = GENERIC.parameters["refit_fixed_s"]
    expected = (1 + p.low / p.value) / 2, (1 + p.high / p.value) / 2
    assert ends({"fixed": 1.0, "exact": 1.0}, WEIGHT_SYNC) == pytest.approx(expected, rel=0.03)


def test_independent_parameters_average_out_and_shared_ones_do_not() -> None:
    both = ends({"compute": 1.0, "bubble": 1.0}, TRAINING)  # both go by gemm_derate
    assert both == pytest.approx(ends({"compute": 1.0}, TRAINING))
    fixed, _ = ends({"fixed": 1.0}, CONTROLLER)
    mixed, _ = ends({"fixed": 1.0, "samples": 1.0}, CONTROLLER)
    assert fixed < mixed < 1


def test_long_upper_ends_move_the_middle() -> None:
    """Ranges of overheads reach further up than down: of a sum of them, more than half lies above the prediction."""
    phase = multipliers({"fixed": 1.0, "samples": 1.0, "calls": 1.0}, CONTROLLER, DRAWS)
    assert np.median(phase) > 1.05


def test_errors_that_go_against_each_other_leave_the_sum_alone() -> None:
    """decode = fixed + sequences, as a fit has them: what one has more the other has less."""
    names = ("update_fixed_s", "microbatch_host_s")
    wide = {n: replace(GENERIC.parameters[n], low=0.8 * GENERIC.value(n), high=1.25 * GENERIC.value(n)) for n in names}
    free = replace(GENERIC, parameters={**GENERIC.parameters, **wide})
    bound = replace(free, correlations={names: -0.95})
    parts = {"fixed": 1.0, "micro_batches": 1.0}
    widths = [float(np.std(multipliers(parts, UPDATE, ParameterDraws(p)))) for p in (free, bound)]
    assert widths[1] < 0.35 * widths[0]


def test_every_rule_names_a_parameter_of_the_profile() -> None:
    for rules in (UPDATE, LOGPROB, WEIGHT_SYNC, FSDP_SYNC, ROLLOUT, SWITCH, CONTROLLER, REWARD):
        for entries in rules.values():
            for name, _ in entries:
                assert name in GENERIC.parameters
