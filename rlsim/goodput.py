"""Goodput and the best checkpoint interval, in closed form: what the simulation tends to over many faults.

A trainer of mean time between crashes M does useful work of τ seconds between two checkpoints that hold it up for C
seconds each; a crash takes R seconds of restart and goes back to the last checkpoint that is safe, which one is W
seconds after the trainer went on. Crashes are exponential and do not strike during a restart.
Sources: Young, CACM 17(9), 1974; Daly, FGCS 22(3), 2006.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, sqrt
from typing import Any

from rlsim.sim.faults import TRAINER_CRASH
from rlsim.sim.prices import Costs
from rlsim.sim.settings import Settings

FAR = 0.01  # goodput lost against the best interval from which it is worth a sentence


def best_interval(cost: float, mtbf: float) -> float:
    """Useful seconds between checkpoints: Young's sqrt(2·C·M) with Daly's next terms; M where C >= 2M."""
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return sqrt(2 * cost * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost


def expected_goodput(interval: float, cost: float, restart: float, mtbf: float, lag: float = 0.0) -> float:
    """Useful share of the wall time: τ / ((M + R + W)·(e^((τ + C)/M) - 1)).

    A stretch of τ + C needs e^((τ+C)/M) tries; each that fails costs on average what it did until then, R, and the W
    seconds of work that were not safe yet.
    """
    load = (interval + cost) / mtbf
    return interval / ((mtbf + restart + lag) * (exp(load) - 1)) if load < 500 else 0.0


def checkpoint_block(settings: Settings, costs: Costs, useful_step: float) -> dict[str, Any] | None:
    """Block `checkpoint` of the summary; null when nothing is saved and nothing crashes at a rate.

    `useful_step`: seconds of a step that counts, without checkpoints and restarts.
    """
    cost, every = costs.checkpoint, settings.checkpoint_every
    crashes = [f for f in costs.faults if f.kind == TRAINER_CRASH and f.mtbf is not None]
    if cost is None or (every is None and not crashes):
        return None
    block: dict[str, Any] = {
        "mode": cost.mode,
        "every": every,
        "bytes_total": float(cost.bytes_total),
        "blocking_seconds": float(cost.blocking_seconds),
        "background_seconds": float(cost.background_seconds),
        "mtbf_s": None,
        "expected_goodput": None,
        "best_every": None,
        "best_goodput": None,
    }
    if crashes:
        rate = sum(f.places / f.mtbf for f in crashes if f.mtbf)
        mtbf, lag, stall = 1 / rate, float(cost.background_seconds), float(cost.blocking_seconds)
        restart = sum(f.duration * f.places / f.mtbf for f in crashes if f.mtbf) / rate
        best = max(1, round(best_interval(stall, mtbf) / useful_step))
        block |= {"mtbf_s": mtbf, "best_every": best}
        block["best_goodput"] = expected_goodput(best * useful_step, stall, restart, mtbf, lag)
        if every is not None:
            block["expected_goodput"] = expected_goodput(every * useful_step, stall, restart, mtbf, lag)
    return block


def sentence(summary: Mapping[str, Any]) -> str | None:
    """What a checkpoint costs, and whether another interval would be better; None where nothing is saved or crashes."""
    block = summary["checkpoint"]
    if block is None:
        return None
    size, mode = f"{block['bytes_total'] / 1e9:,.0f} GB", block["mode"]
    text = f"a checkpoint ({size}, {mode}) holds the trainer up for {block['blocking_seconds']:.1f} s"
    if block["background_seconds"]:
        text += f" and is safe {block['background_seconds']:.0f} s later"
    if block["mtbf_s"] is None:
        return text + f"; one every {_steps(block['every'])}"
    text += f"; the trainer crashes every {block['mtbf_s'] / 3600:.1f} h on average"
    best = f"every {_steps(block['best_every'])} (goodput {block['best_goodput']:.0%} in the long run)"
    if block["every"] is None:
        return text + f": without checkpoints it begins again each time; the best is one {best}"
    if block["best_goodput"] - block["expected_goodput"] >= FAR:
        return (
            text + f": one every {_steps(block['every'])} gives {block['expected_goodput']:.0%}, the best is one {best}"
        )
    return text + f"; one every {_steps(block['every'])} is near the best, {best}"


def _steps(count: int) -> str:
    return "step" if count == 1 else f"{count} steps"
