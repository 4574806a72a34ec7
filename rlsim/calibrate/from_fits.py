"""From fits to a profile: which of its parameters and measured roles the fitted terms are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsim.calibrate.fit import Fitted
from rlsim.calibrate.profile_text import NewProfile, fitted
from rlsim.catalog.measured_curves import TERMS, full_name
from rlsim.catalog.profile_file import Z90, Parameter

if TYPE_CHECKING:
    import pandas as pd

    from rlsim.catalog import GpuSpec

ROLES = {"decode": "decode", "prefill": "prefill", "train_step": "train", "logprob": "logprob"}
"""Benchmark -> the measured role whose terms its form has."""
RATES: tuple[tuple[str, Mapping[str, Any], str], ...] = (
    ("copy", {"pinned": True}, "host_link_rate"),
    ("copy", {"pinned": False}, "pageable_rate"),
    ("ipc", {}, "refit_ipc_rate"),
)
"""Benchmark and group -> the parameter that 1 / byte_s is, on a GPU."""


@dataclass(frozen=True)
class Receivers:
    """What a weight sync's terms are evaluated at: trainer ranks, engines, bytes/s of a NIC, bytes of a bucket."""

    trainers: float
    engines: float
    nic: float
    bucket: float


def profile_of(fits: Sequence[Fitted], name: str, base: str, sync: Receivers | None, gpu: GpuSpec | None) -> NewProfile:
    """Parameters on a GPU that has kernel tables; measured roles on a machine that has none (`gpu` None)."""
    measured: dict[str, dict[str, Parameter]] = {}
    correlations: dict[tuple[str, str], float] = {}
    notes: list[str] = []
    parameters: dict[str, Parameter] = {}
    if gpu is not None:
        parameters |= dict(_rates(fits))
    else:
        for role, fit in _roles(fits, notes):
            terms = {t: _parameter(fit, t) for t in fit.coefficients if t in TERMS[role]}
            measured[role] = terms
            correlations |= {
                (full_name(role, a), full_name(role, b)): rho
                for (a, b), rho in fit.correlations.items()
                if a in terms and b in terms and abs(rho) > 0.05
            }
        measured |= _copies(fits)
        sync_fit = next((f for f in fits if f.benchmark == "weight_sync"), None)
        if sync_fit is not None and sync is not None:
            measured["weight_sync"] = _sync(sync_fit, sync)
        elif sync_fit is not None:
            notes.append("weight_sync is not in the profile: give --scenario, whose receivers and NIC it is taken at")
        for one, other in (("decode", "prefill"), ("prefill", "decode")):
            if one in measured and other not in measured:
                del measured[one]
                notes.append(f"{one} is not in the profile: it needs {other} as well")
    if measured:
        parameters["software_noise"] = _noise(fits)
    return NewProfile(name, base, parameters, measured, correlations, [as_dict(f) for f in fits], tuple(notes))


def gpu_of(points: pd.DataFrame) -> GpuSpec | None:
    """The catalog's GPU that the tables' `device` names; None: a CPU, or a GPU that is not in it."""
    from rlsim import catalog
    from rlsim.errors import UserError

    devices = [str(d) for d in points["device"].dropna().unique()] if "device" in points.columns else []
    for device in devices:
        words = device.replace("NVIDIA ", "").replace("AMD ", "").split()
        for n in range(len(words), 0, -1):
            try:
                found = catalog.gpu(" ".join(words[:n]))
            except UserError:
                continue
            return None if found.name == "cpu" else found
    return None


def kernel_factors(points: pd.DataFrame, gpu: GpuSpec) -> dict[str, Parameter]:
    """gemm_derate: measured GEMMs over the GPU's kernel tables, robust mean of the logarithm."""
    from rlsim.costs.kernels import kernels_for

    rows = points[points["benchmark"] == "gemm"]
    ratios = []
    kernels = kernels_for(gpu)
    for row in rows.to_dict("records"):
        dtype = str(row.get("dtype", "bf16")).removeprefix("torch.").replace("bfloat16", "bf16")
        if dtype not in ("bf16", "fp8"):
            continue
        seconds, _ = kernels.gemm_seconds(np.array([float(row["m"])]), int(row["n"]), int(row["k"]), dtype)
        ratios.append(math.log(float(row["seconds"]) / float(seconds[0])))
    if len(ratios) < 4:
        return {}
    middle = float(np.median(ratios))
    spread = 1.4826 * float(np.median(np.abs(np.array(ratios) - middle)))
    value = math.exp(middle)
    data = {"points": len(ratios), "scatter": round(spread, 3)}
    one = fitted(
        value, value * spread / math.sqrt(len(ratios)), "", f"GEMMs over the kernel tables of {gpu.name}", data=data
    )
    return {"gemm_derate": replace(one, low=value * math.exp(-Z90 * spread), high=value * math.exp(Z90 * spread))}


def as_dict(fit: Fitted) -> dict[str, Any]:
    """A fit as the profile's section `fits` and `--json` have it."""

    def errors(e: Any) -> dict[str, float] | None:
        return None if e is None else {"points": e.points, "median": e.median, "p90": e.p90, "bias": e.bias}

    return {
        "benchmark": fit.benchmark,
        "group": {k: v if isinstance(v, str | bool) else str(v) for k, v in fit.group.items()},
        "form": fit.form,
        "terms": {t: {"value": c.value, "stderr": c.stderr, "unit": c.unit} for t, c in fit.coefficients.items()},
        "error_fitted": errors(fit.fitted),
        "error_held_out": errors(fit.held),
        "range": {name: list(pair) for name, pair in fit.ranges.items()},
        "files": list(fit.files),
        "machine": fit.machine,
    }


def _roles(fits: Sequence[Fitted], notes: list[str]) -> Iterator[tuple[str, Fitted]]:
    """One fit for each role; of several groups the one with most points, which the notes tell."""
    for benchmark, role in ROLES.items():
        mine = sorted((f for f in fits if f.benchmark == benchmark), key=lambda f: -f.fitted.points)
        if not mine:
            continue
        if len(mine) > 1:
            others = ", ".join(f.name for f in mine[1:])
            notes.append(f"{role} is {mine[0].name}; not in the profile: {others} (choose with --where)")
        yield role, mine[0]


def _parameter(fit: Fitted, term: str) -> Parameter:
    one = fit.coefficients[term]
    return fitted(one.value, one.stderr, one.unit, f"fit of {fit.name}", data=_data(fit), range=fit.ranges)


def _data(fit: Fitted) -> dict[str, Any]:
    data: dict[str, Any] = {"points": fit.fitted.points, "files": list(fit.files), "machine": fit.machine}
    if fit.held is not None:
        data["held_out_error"] = round(fit.held.median, 4)
    return data


def _rates(fits: Sequence[Fitted]) -> Iterator[tuple[str, Parameter]]:
    for benchmark, group, name in RATES:
        for fit in fits:
            fits_group = all(str(fit.group.get(k, v)) == str(v) for k, v in group.items())
            if fit.benchmark == benchmark and fits_group and "byte_s" in fit.coefficients:
                one = fit.coefficients["byte_s"]
                rate = 1.0 / one.value
                source = f"fit of {fit.name}"
                yield (
                    name,
                    fitted(rate, rate * one.stderr / one.value, "B/s", source, data=_data(fit), range=fit.ranges),
                )
                break


def _copies(fits: Sequence[Fitted]) -> dict[str, dict[str, Parameter]]:
    """Copies to the host and back as offload and onload; one direction stands for both where only one is there."""
    copies = [f for f in fits if f.benchmark == "copy"]
    if not copies:
        return {}
    out = next((f for f in copies if str(f.group.get("direction", "")).lower() in ("d2h", "out")), copies[0])
    back = next((f for f in copies if str(f.group.get("direction", "")).lower() in ("h2d", "in")), copies[-1])
    names = {"latency_s": "fixed_s", "byte_s": "byte_s"}
    return {
        role: {names[t]: _parameter(fit, t) for t in fit.coefficients}
        for role, fit in (("offload", out), ("onload", back))
    }


def _sync(fit: Fitted, at: Receivers) -> dict[str, Parameter]:
    """Terms of a weight sync at a number of receivers and a NIC: seconds once, and seconds per byte."""
    import pandas as pd

    from rlsim.calibrate.forms import FORMS

    form = next(f for f in FORMS["weight_sync"] if f.name == fit.form)
    size = 1e6 * at.bucket if at.bucket else 1e9
    row = pd.DataFrame(
        [{"trainers": at.trainers, "receivers": at.engines, "nic": at.nic, "bucket": at.bucket, "bytes": size}]
    )
    fixed, per_byte = [0.0, 0.0], [0.0, 0.0]
    for term in form.terms:
        one = fit.coefficients.get(term.name)
        if one is None:
            continue
        amount = float(term.amount(row)[0])
        once = term.name in ("fixed_s", "receiver_s")
        total = fixed if once else per_byte
        total[0] += one.value * amount / (1.0 if once else size)
        total[1] = math.hypot(total[1], one.stderr * amount / (1.0 if once else size))
    source = f"fit of {fit.name} at {at.engines:g} receivers"
    found = {"fixed_s": fixed, "byte_s": per_byte}
    return {
        t: fitted(v, e, "s" if t == "fixed_s" else "s/B", source, data=_data(fit), range=fit.ranges)
        for t, (v, e) in found.items()
        if v > 0
    }


def _noise(fits: Sequence[Fitted]) -> Parameter:
    """What the forms miss, all phases together: root mean square of the roles' errors, held out where that is."""
    errors = [(f.held or f.fitted).median for f in fits if f.benchmark in ROLES]
    sigma = 1.4826 * math.sqrt(sum(e * e for e in errors) / len(errors)) if errors else 0.05
    factor = math.exp(Z90 * max(sigma, 0.01))
    data = {"fits": len(errors)}
    return Parameter(1.0, 1 / factor, factor, "", "errors of the fits on points held out", "", None, data)
