"""Crossover: where over two inputs co-located and where disaggregated is faster, every point simulated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, lcm, log
from pathlib import Path
from typing import Any

from rlsim.catalog.profiles import profile_for
from rlsim.errors import UserError
from rlsim.plan.case import Case, Outcome, Setting, Study, read_study
from rlsim.plan.crossover import designs
from rlsim.plan.crossover.axes import ABOVE, BELOW, GPUS, Axis, axis
from rlsim.plan.crossover.contour import Segment, crossings, segments
from rlsim.plan.crossover.designs import AGAINST, COLOCATED, SPLITS, Regime, Split
from rlsim.plan.crossover.refine import NONE, A, B, Look, Point, refine, sides
from rlsim.plan.keys import resolve_key
from rlsim.plan.manifest import manifest_of
from rlsim.plan.runner import Runner
from rlsim.plan.search.space import check_plannable
from rlsim.plan.space import range_of
from rlsim.plan.workers import Progress
from rlsim.scenario.load import load_scenario
from rlsim.scenario.schema import Scenario

STEPS = 2
"""Measured steps of a simulation: both sides of a comparison have the same samples."""
NAMES = {"disaggregated-sync": "on-policy", "one-step-off": "one-step-off", "async": "async"}


@dataclass(frozen=True)
class Played:
    """A regime at a point: the best of its splits, or why none has a figure."""

    status: str
    seconds: float | None
    usd: float | None
    split: Split | None
    message: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "step_time_s": self.seconds,
            "usd_per_step": self.usd,
            "trainer_gpus": None if self.split is None else self.split.trainer,
            "rollout_gpus": None if self.split is None else self.split.rollout,
            "message": self.message or None,
        }


@dataclass(frozen=True)
class Border:
    """Co-located (a) against one other regime (b) over the whole lattice.

    seen       visited points: who is faster, margin ln(b's step time / a's); side none where neither has a figure
    winner     [j][i] of every lattice point, uncut rectangles filled with the side of their corners
    boundary   pieces of the line between the sides, from (x, y) to (x, y)
    crossings  where the line crosses lattice lines, (x, y)
    """

    name: str
    b: str
    seen: Mapping[Point, Look]
    winner: list[list[str]]
    boundary: tuple[Segment, ...]
    crossings: tuple[tuple[float, float], ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "a": COLOCATED,
            "b": self.b,
            "visited": len(self.seen),
            "winner": self.winner,
            "boundary": [[list(p), list(q)] for p, q in self.boundary],
            "crossings": [list(p) for p in self.crossings],
        }


@dataclass(frozen=True)
class Own:
    """The file's own variants as `rlsim run` plays them: seconds of a step by variant, None where it does not fit.
    `regimes`: which variant each regime is; `at`: where on the lattice that is, None where it is not.
    """

    seconds: Mapping[str, float | None]
    regimes: Mapping[str, str]
    at: Point | None


@dataclass(frozen=True)
class Crossover:
    """The answer: two axes, what was found at the visited points, and one border for each comparison."""

    name: str
    model: str
    x: Axis
    y: Axis
    steps: int
    simulations: int
    points: Mapping[Point, Mapping[str, Played]]
    borders: tuple[Border, ...]
    own: Own

    def as_dict(self) -> dict[str, Any]:
        """The answer of `--json`; a point has the regimes that were needed there."""
        points = [
            {
                "i": i,
                "j": j,
                "x": self.x.values[i],
                "y": self.y.values[j],
                "regimes": {name: played.as_dict() for name, played in self.points[i, j].items()},
            }
            for i, j in sorted(self.points)
        ]
        at = self.own.at
        own = {
            "x": None if at is None else self.x.values[at[0]],
            "y": None if at is None else self.y.values[at[1]],
            "variants": dict(self.own.seconds),
            "regimes": dict(self.own.regimes),
            "winner": {one.name: faster(self.own, one.b) for one in self.borders},
        }
        return {
            "name": self.name,
            "model": self.model,
            "x": self.x.as_dict(),
            "y": self.y.as_dict(),
            "steps": self.steps,
            "simulations": self.simulations,
            "lattice": len(self.x.values) * len(self.y.values),
            "visited": len(self.points),
            "points": points,
            "comparisons": [one.as_dict() for one in self.borders],
            "own": own,
        }


def faster(own: Own, b: str) -> str | None:
    """Which side the file's own variants are on; None where the file does not have both."""
    if COLOCATED not in own.regimes or b not in own.regimes:
        return None
    return look(own.seconds[own.regimes[COLOCATED]], own.seconds[own.regimes[b]]).side


def look(a: float | None, b: float | None) -> Look:
    """Who is faster; a side without a figure has lost."""
    if a is None or b is None:
        return Look(NONE if a == b else B if a is None else A, None)
    margin = log(b / a)
    return Look(A if margin >= 0 else B, margin)


def crossover(
    file: str | Path,
    x: str = "gpus",
    y: str = "response_tokens.p99",
    *,
    x_range: str | None = None,
    y_range: str | None = None,
    against: Sequence[str] = AGAINST,
    sets: Sequence[str] = (),
    steps: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Crossover:
    """Map where co-located and disaggregated trade places, visiting a lattice only where the boundary runs.

    `x`, `y`: `gpus` (numbers that the layouts divide into), `response_tokens.p99` or another statistic of the lengths
    (all responses scaled together), or any key with numbers; ranges `low..high`. `against`: regimes that co-located is
    compared with. Layouts are the file's; the split of the GPUs is the best of a few (`rlsim.plan.crossover.designs`).
    Others as in `sweep`.
    """
    unknown = next((name for name in against if name not in AGAINST), None)
    if unknown is not None or not against:
        raise UserError(f"no regime {unknown!r}", key="--against", fix="some of " + ", ".join(AGAINST))
    loaded, steps = load_scenario(file, sets).variants, steps or STEPS
    for scenario in loaded:
        check_plannable(scenario)
    study = read_study(file, tuple(sets), steps, seed)
    regimes = {name: designs.regime(loaded, name) for name in (COLOCATED, *dict.fromkeys(against))}
    axes = _axes(study, loaded, regimes, (x, y), (x_range, y_range))
    asked = {"crossover": [one.as_dict() for one in axes], "regimes": list(regimes)}
    with Runner(
        study, jobs=jobs, ray=ray, out=out, manifest=manifest_of(study, loaded, asked), progress=progress
    ) as runner:
        field = Field(runner, axes, regimes)
        own = field.own(loaded)
        borders = tuple(field.border(name, own.at) for name in regimes if name != COLOCATED)
        base = loaded[0]
        return Crossover(base.name, str(base.model.base), *axes, steps, runner.simulated, field.points, borders, own)


def _axes(
    study: Study,
    loaded: Sequence[Scenario],
    regimes: Mapping[str, Regime],
    names: tuple[str, str],
    ranges: tuple[str | None, str | None],
) -> tuple[Axis, Axis]:
    base = loaded[0]
    profile = profile_for(base.framework.name, base.costs.profile)
    keys = [resolve_key(name, option, profile) for name, option in zip(names, ("--x", "--y"), strict=True)]
    if keys[0] == keys[1]:
        raise UserError("both axes are the same", key="--y", fix="another key")
    found = []
    for key, given, option in zip(keys, ranges, ("--x", "--y"), strict=True):
        if key == GPUS:
            found.append(_gpus(study, regimes, given, option))
        else:
            found.append(axis(key, regimes[COLOCATED].scenario, given, option))
    return found[0], found[1]


def _gpus(study: Study, regimes: Mapping[str, Regime], given: str | None, option: str) -> Axis:
    """Numbers of GPUs on which every regime has a layout that divides."""
    shared = regimes[COLOCATED]
    own = shared.gpus
    text = given if given is not None else f"{own / BELOW:.0f}..{own * ABOVE:.0f}"
    reach = range_of(GPUS, text, f"{option}-range")
    unit = designs.unit(shared.scenario)
    node = shared.scenario.cluster.gpus_per_node
    units = [unit, shared.scenario.rollout[0].gpus_per_engine] + ([node] if reach.low >= node else [])
    tried = [n for n in designs.counts(own, units, reach.low, reach.high) if reach.low <= n <= reach.high]
    fit = [n for n in tried if all(designs.splits(study, one, n) for one in regimes.values())]
    if not fit:
        fix = f"a range with multiples of {lcm(*units):,} that leave room for both roles"
        raise UserError("on no number of GPUs do all regimes divide", key=f"{option}-range", fix=fix)
    return Axis(
        GPUS, "GPUs", "GPUs", tuple(map(float, fit)), tuple(() for _ in fit), fit.index(own) if own in fit else None
    )


class Field:
    """The lattice: regimes at points, simulated once each. Cases are numbered by point, regime and split."""

    def __init__(self, runner: Runner, axes: tuple[Axis, Axis], regimes: Mapping[str, Regime]) -> None:
        self._runner, self._axes, self._regimes = runner, axes, regimes
        self._splits: dict[tuple[str, int], tuple[Split, ...]] = {}
        self.points: dict[Point, dict[str, Played]] = {}

    def own(self, loaded: Sequence[Scenario]) -> Own:
        """The file's variants as they are; their cases come after those of the lattice."""
        first = self._number((0, len(self._axes[1].values)), 0, 0)
        done = self._runner.run({first + n: Case(one.variant, ()) for n, one in enumerate(loaded)})
        seconds = {one.variant: _seconds(done[first + n]) for n, one in enumerate(loaded)}
        own = {name: one.scenario.variant for name, one in self._regimes.items() if not one.settings}
        i, j = self._axes[0].own, self._axes[1].own
        return Own(seconds, own, None if i is None or j is None else (i, j))

    def border(self, b: str, own: Point | None) -> Border:
        """Co-located against `b`."""
        width, height = len(self._axes[0].values), len(self._axes[1].values)

        def visit(points: Iterable[Point]) -> dict[Point, Look]:
            wanted = list(points)
            self._play(wanted, (COLOCATED, b))
            return {p: look(self.points[p][COLOCATED].seconds, self.points[p][b].seconds) for p in wanted}

        seen, cells = refine(width, height, visit, () if own is None else (own,))
        xs, ys = self._axes[0].values, self._axes[1].values
        return Border(
            NAMES[b], b, seen, sides(width, height, seen, cells), segments(seen, xs, ys), crossings(seen, xs, ys)
        )

    def _play(self, points: Sequence[Point], names: Sequence[str]) -> None:
        """Simulate every split of regimes at points where they have not been."""
        order = list(self._regimes)
        cases: dict[int, Case] = {}
        missing = [(p, name) for p in points for name in names if name not in self.points.setdefault(p, {})]
        for point, name in missing:
            one = self._regimes[name]
            inputs = self._axes[0].settings[point[0]] + self._axes[1].settings[point[1]]
            for s, split in enumerate(self._split(name, point)):
                settings: tuple[Setting, ...] = (*designs.sized(one, split), *inputs)
                cases[self._number(point, order.index(name), s)] = Case(one.scenario.variant, settings)
        done = self._runner.run(cases)
        for point, name in missing:
            tried = self._split(name, point)
            numbers = [self._number(point, order.index(name), s) for s in range(len(tried))]
            self.points[point][name] = _best([done[n] for n in numbers], tried)

    def _split(self, name: str, point: Point) -> tuple[Split, ...]:
        gpus = next((int(a.values[at]) for a, at in zip(self._axes, point, strict=True) if a.key == GPUS), None)
        one = self._regimes[name]
        key = (name, gpus if gpus is not None else one.gpus)
        if key not in self._splits:
            self._splits[key] = designs.splits(self._runner.study, one, key[1])
        return self._splits[key]

    def _number(self, point: Point, regime: int, split: int) -> int:
        i, j = point
        return ((j * len(self._axes[0].values) + i) * len(self._regimes) + regime) * SPLITS + split


def _seconds(outcome: Outcome) -> float | None:
    value = outcome.values.get("step_time_s.mean")
    return None if value is None else float(value)


def _best(outcomes: Sequence[Outcome], splits: Sequence[Split]) -> Played:
    """The fastest split; without any, the first reason."""
    ranked = sorted(
        ((_seconds(o) or inf, n) for n, o in enumerate(outcomes) if o.status == "ok"), key=lambda pair: pair[0]
    )
    if ranked:
        seconds, n = ranked[0]
        return Played("ok", seconds, outcomes[n].values.get("cost.usd_per_step"), splits[n], "")
    if not outcomes:
        return Played("error", None, None, None, "no split of the GPUs divides")
    first = next((o for o in outcomes if o.status == "infeasible"), outcomes[0])
    return Played(first.status, None, None, None, first.message)
