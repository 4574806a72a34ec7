"""Which groups carry a gradient: with a right-or-wrong reward, those whose samples are not all right or all wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaln

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PassRate:
    """Share of right samples of a prompt: `mean` for all, or Beta(mean·c, (1 - mean)·c) with concentration c."""

    mean: float
    concentration: float | None = None

    def informative(self, rng: np.random.Generator, groups: int, size: int) -> Bools:
        """Whether the rewards of each of `groups` groups of `size` samples differ, bool[groups].

        A prompt of pass rate p gives equal rewards with probability p^G + (1-p)^G.
        """
        p = np.full(groups, self.mean)
        if self.concentration is not None and 0 < self.mean < 1:
            p = rng.beta(self.mean * self.concentration, (1 - self.mean) * self.concentration, groups)
        return np.asarray(rng.random(groups) >= p**size + (1 - p) ** size)

    def zero_variance(self, size: int) -> float:
        """Share of groups of `size` samples with equal rewards: E[p^G + (1-p)^G].

        Of a beta distribution E[p^G] = B(a+G, b)/B(a, b).
        """
        if self.concentration is None or not 0 < self.mean < 1:
            return self.mean**size + (1 - self.mean) ** size
        a, b = self.mean * self.concentration, (1 - self.mean) * self.concentration
        return float(sum(np.exp(betaln(x + size, y) - betaln(x, y)) for x, y in ((a, b), (b, a))))
