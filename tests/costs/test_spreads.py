"""Ranges of phases from the profile's ranges, by hand."""

from __future__ import annotations

import math

import pytest

from rlsim.catalog.profiles import profile
from rlsim.costs.spreads import CONTROLLER, LOGPROB, TRAINING, UPDATE, WEIGHT_SYNC, spread

GENERIC = profile("generic")


def test_a_phase_of_one_part_has_the_range_of_its_parameter() -> None:
    p = GENERIC.parameters["gemm_derate"]
    assert spread({"compute": 3.0}, TRAINING, GENERIC) == pytest.approx((p.low / p.value, p.high / p.value))


def test_an_inverse_parameter_swaps_the_sides() -> None:
    p = GENERIC.parameters["sync_nic_efficiency"]
    assert spread({"wire": 1.0}, WEIGHT_SYNC, GENERIC) == pytest.approx((p.value / p.high, p.value / p.low))


def test_half_of_a_phase_moves_it_by_half_the_log_range() -> None:
    p = GENERIC.parameters["refit_fixed_s"]
    low, high = spread({"fixed": 1.0, "exact": 1.0}, WEIGHT_SYNC, GENERIC)
    assert (low, high) == pytest.approx((math.sqrt(p.low / p.value), math.sqrt(p.high / p.value)))


def test_independent_parameters_add_in_quadrature() -> None:
    parts = {"fixed": 1.0, "batch": 1.0}
    f, b = GENERIC.parameters["step_fixed_s"], GENERIC.parameters["controller_bytes_rate"]
    expected = math.hypot(0.5 * math.log(f.high / f.value), 0.5 * math.log(b.value / b.low))
    assert spread(parts, CONTROLLER, GENERIC)[1] == pytest.approx(math.exp(expected))


def test_every_rule_names_a_parameter_of_the_profile() -> None:
    for rules in (UPDATE, LOGPROB, WEIGHT_SYNC, CONTROLLER):
        for entries in rules.values():
            for name, _ in entries:
                assert name in GENERIC.parameters
