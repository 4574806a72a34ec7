"""Robust least squares of sums of positive terms: t = Σ coefficient · amount, residuals of log t.

Linear in its coefficients, so a non-negative solve on relative residuals starts it; terms that it leaves at zero are
out. Then soft-L1 on log residuals, and errors from the Jacobian: cov(log c) = s² (JᵀJ)⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares, nnls

Floats = npt.NDArray[np.float64]
SOFT = 0.1  # log residual from which a point counts linearly
FAINT = 2e-3  # share of the time at which a term that is nowhere larger is left out
UNTESTED = 0.05  # log residual that is taken where there are no more points than terms
WIDEST = 2.0  # standard error of a log coefficient beyond which it says nothing


@dataclass(frozen=True)
class Solution:
    """Coefficients of the terms that are there; `used` are their columns.

    errors        standard errors of log coefficients
    correlations  [n, n] of those errors
    scatter       standard deviation of log residuals
    """

    used: tuple[int, ...]
    coefficients: Floats
    errors: Floats
    correlations: Floats
    scatter: float

    def predict(self, amounts: Floats) -> Floats:
        """Seconds of rows of amounts [points, terms]."""
        return np.asarray(amounts[:, list(self.used)] @ self.coefficients)


def solve(amounts: Floats, seconds: Floats) -> Solution:
    """Fit [points, terms] amounts to seconds > 0."""
    start, _ = nnls(amounts / seconds[:, None], np.ones(len(seconds)))
    shares = (amounts * start / seconds[:, None]).max(axis=0, initial=0.0)
    used = tuple(int(i) for i in np.flatnonzero(shares > FAINT)) or (int(np.argmax(amounts.mean(axis=0))),)
    while True:
        found = _solve(amounts[:, used], seconds, np.maximum(start[list(used)], 1e-30), used)
        weak = int(np.argmax(found.errors))
        if len(used) == 1 or found.errors[weak] <= WIDEST:
            return found
        used = tuple(i for n, i in enumerate(used) if n != weak)


def _solve(amounts: Floats, seconds: Floats, start: Floats, used: tuple[int, ...]) -> Solution:
    def residuals(log_c: Floats) -> Floats:
        return np.asarray(np.log(amounts @ np.exp(log_c)) - np.log(seconds))

    found = least_squares(residuals, np.log(start), loss="soft_l1", f_scale=SOFT)
    left = residuals(found.x)
    freedom = max(1, len(seconds) - len(used))
    scatter = float(np.sqrt((left**2).sum() / freedom))
    robust = min(scatter, 1.4826 * float(np.median(np.abs(left))) * np.sqrt(len(seconds) / freedom) or scatter)
    if len(seconds) <= len(used):  # the terms go through the points, which says nothing about their errors
        robust = max(robust, UNTESTED)
    predicted = amounts @ np.exp(found.x)
    jacobian = amounts * np.exp(found.x) / predicted[:, None]
    covariance = max(robust, 1e-6) ** 2 * np.linalg.pinv(jacobian.T @ jacobian)
    errors = np.sqrt(np.diag(covariance))
    correlations = covariance / np.maximum(np.outer(errors, errors), 1e-300)
    return Solution(used, np.exp(found.x), errors, np.clip(correlations, -1, 1), scatter)


def relative_errors(predicted: Floats, seconds: Floats) -> Floats:
    """predicted/measured - 1."""
    return np.asarray(predicted / seconds - 1.0)


def quantiles(errors: Sequence[float] | Floats) -> tuple[float, float, float]:
    """(median, p90 of the absolute error, median signed error)."""
    absolute = np.abs(np.asarray(errors))
    return float(np.median(absolute)), float(np.quantile(absolute, 0.9)), float(np.median(errors))
