"""Zero-variance groups: p^G + (1-p)^G, and its mean over a beta distribution."""

from __future__ import annotations

import numpy as np
import pytest
from prices_by_hand import Hand, fixed, regime

from rlsim.sim.passing import PassRate
from rlsim.sim.run import play


def test_share_on_paper() -> None:
    # 0.5^2 + 0.5^2; 0.9^8 + 0.1^8; Beta(1, 1): E[p^G] = 1/(G+1), twice.
    assert PassRate(0.5).zero_variance(2) == pytest.approx(0.5)
    assert PassRate(0.9).zero_variance(8) == pytest.approx(0.43046722)
    assert PassRate(0.5, concentration=2.0).zero_variance(8) == pytest.approx(2 / 9)
    assert PassRate(1.0, concentration=2.0).zero_variance(8) == 1.0


@pytest.mark.parametrize("rate", [PassRate(0.5), PassRate(0.8), PassRate(0.3, 2.0), PassRate(0.0), PassRate(1.0, 3.0)])
def test_draws_have_that_share(rate: PassRate) -> None:
    groups = rate.informative(np.random.default_rng(0), 20_000, 6)
    assert 1 - groups.mean() == pytest.approx(rate.zero_variance(6), abs=0.01)


def test_samples_of_a_group_agree_and_lengths_stay_as_they_were() -> None:
    plain, rated = (
        play(regime(pass_rate=rate), Hand().costs(), fixed(10, 4, 2), 5, 0) for rate in (None, PassRate(0.5))
    )
    informative = rated.ledger["informative"].reshape(-1, 2)
    assert (informative[:, 0] == informative[:, 1]).all()
    assert 0 < informative.mean() < 1
    assert plain.ledger["informative"].all()
    assert (plain.ledger["end"] == rated.ledger["end"]).all()
