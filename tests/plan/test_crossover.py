"""Crossover: the line is that of the whole grid, every figure that of a direct simulation."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlsim
from rlsim.errors import UserError
from rlsim.plan.crossover.contour import crossings, segments
from rlsim.plan.crossover.crossover import Crossover
from rlsim.plan.crossover.refine import NONE, A, B, Look, Point, refine, sides
from rlsim.views import crossover as view
from tests.plan.small import TEXT

SEVEN = str(Path(__file__).parents[2] / "scenarios" / "7b_64gpu.yaml")
MEAN, CAP = 200.0, 600


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("small") / "small.yaml"
    file.write_text(TEXT.replace("prompts: 16", "prompts: 128").replace("gpus: 8", "gpus: 16"))
    return str(file)


@pytest.fixture(scope="module")
def found(small: str) -> Crossover:
    return rlsim.crossover(small, x_range="8..32", y_range="200..1200", against=["disaggregated-sync"])


def step_time(file: str, factor: float, placement: str, trainer: int, rollout: int) -> float:
    total = trainer if placement == "colocated" else trainer + rollout
    sets = [
        f"cluster.gpus={total}",
        f"placement={placement}",
        f"trainer.gpus={trainer}",
        f"rollout[0].gpus={rollout}",
        f"workload.response_tokens={{mean: {MEAN * factor!r}, max: {round(CAP * factor)}}}",
    ]
    scenario = rlsim.load_scenario(file, sets).variants[0]
    return float(rlsim.simulate(scenario, steps=2).summary()["step_time_s"]["mean"])


def test_sides_are_those_of_the_whole_grid(found: Crossover, small: str) -> None:
    """Every point of the lattice simulated: co-located, and all splits into quarters, three eighths and halves."""
    own = found.y.values[found.own.at[1]] if found.own.at is not None else math.nan
    expected = []
    for y in found.y.values:
        row = []
        for gpus in map(int, found.x.values):
            unit = 8 if gpus >= 16 else 1
            trainers = {round(share * gpus / unit) * unit for share in (1 / 4, 3 / 8, 1 / 2, 3 / 4)} - {0, gpus}
            shared = step_time(small, y / own, "colocated", gpus, gpus)
            apart = min(step_time(small, y / own, "disaggregated", n, gpus - n) for n in trainers)
            row.append(A if shared <= apart else B)
        expected.append(row)
    border = found.borders[0]
    assert border.winner == expected
    assert {A, B} == {side for row in expected for side in row}
    assert len(border.seen) < len(found.x.values) * len(found.y.values)


def test_line_runs_between_the_sides(found: Crossover) -> None:
    border, xs, ys = found.borders[0], found.x.values, found.y.values
    assert border.boundary
    changes = 0
    for i, x in enumerate(xs):
        column = view.column(border, i)
        for j in range(len(ys) - 1):
            inside = [y for at, y in border.crossings if at == x and ys[j] <= y <= ys[j + 1]]
            assert len(inside) == (column[j] != column[j + 1])
            changes += len(inside)
    assert changes


def test_the_two_cases_of_the_text_agree_with_a_run() -> None:
    """7B on 64 GPUs: the file's own variants, and the point of the map that they are."""
    answer = rlsim.crossover(SEVEN, x_range="56..72", y_range="900..1200", steps=1)
    run = rlsim.compare(rlsim.load_scenario(SEVEN).variants, steps=1)
    seconds = {s["variant"]: s["step_time_s"]["mean"] for s in run.summaries}
    assert answer.own.seconds == seconds
    assert answer.own.at is not None
    here = answer.points[answer.own.at]
    assert here["colocated-sync"].seconds == seconds["colocated-sync"]
    for border in answer.borders:
        played = here[border.b]
        assert played.seconds is not None
        assert played.seconds <= seconds[border.b]
        shown = answer.as_dict()["own"]["winner"][border.name]
        assert shown == (A if seconds["colocated-sync"] <= seconds[border.b] else B)
    assert [one.name for one in answer.borders] == ["on-policy", "one-step-off", "async"]
    figure = view.figure(answer)
    assert figure.layout.xaxis.title.text == "GPUs (total)"
    assert figure.layout.yaxis.title.text == "response_tokens.p99 (tokens)"
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    assert [[view.B if z else view.A for z in row] for row in maps[1].z] == answer.borders[1].winner


def test_words_say_where_it_changes(found: Crossover) -> None:
    told = " ".join(view.sentences(found))
    share = sum(row.count(B) for row in found.borders[0].winner) / (len(found.x.values) * len(found.y.values))
    assert f"disaggregated is faster on {share:.0%} of the map, towards more GPUs" in told


# --- refinement on known functions ---------------------------------------------------------------------------------
def visitor(margin: Callable[[Point], float | None]) -> Callable[[Iterable[Point]], dict[Point, Look]]:
    def look(point: Point) -> Look:
        value = margin(point)
        return Look(NONE if value is None else A if value >= 0 else B, value)

    return lambda points: {point: look(point) for point in points}


@given(
    width=st.integers(1, 24),
    height=st.integers(1, 24),
    angle=st.floats(0, 2 * math.pi),
    offset=st.floats(-12, 12),
)
def test_every_straight_line_is_found(width: int, height: int, angle: float, offset: float) -> None:
    """Whatever its direction, on lattices of any shape, down to one row."""

    def margin(point: Point) -> float:
        return (point[0] - width / 2) * math.cos(angle) + (point[1] - height / 2) * math.sin(angle) - offset

    seen, cells = refine(width, height, visitor(margin))
    whole = [[A if margin((i, j)) >= 0 else B for i in range(width)] for j in range(height)]
    assert sides(width, height, seen, cells) == whole
    assert seen.keys() <= {(i, j) for i in range(width) for j in range(height)}


def test_points_away_from_the_line_are_not_visited() -> None:
    """A diagonal of 65 x 65 points is followed without looking at a fifth of the 4,225."""
    seen, _ = refine(65, 65, visitor(lambda p: p[0] - p[1] + 0.5))
    assert len(seen) < 65 * 65 / 5


def test_line_lies_where_the_margin_is_zero() -> None:
    """Margin ln(x / 3) on x = 1, 2, 4: zero at 3 between 2 and 4."""
    xs, ys = (1.0, 2.0, 4.0), (1.0, 2.0)
    seen = visitor(lambda p: math.log(xs[p[0]] / 3))([(i, j) for i in range(3) for j in range(2)])
    (segment,) = segments(seen, xs, ys)
    assert sorted(segment) == [pytest.approx((3, 1)), pytest.approx((3, 2))]
    assert crossings(seen, xs, ys) == (pytest.approx((3, 1)), pytest.approx((3, 2)))


def test_where_neither_fits_there_is_no_line() -> None:
    seen = visitor(lambda p: None if p[0] == 2 else 1.0)([(i, j) for i in range(3) for j in range(2)])
    assert segments(seen, (1.0, 2.0, 4.0), (1.0, 2.0)) == ()


# --- the command ---------------------------------------------------------------------------------------------------
def test_command_goes_on_from_a_folder(small: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlsim", "crossover", small, "--x", "nic", "--x-range", "25GB/s..50GB/s"]
    command += ["--y-range", "400..600", "--against", "one-step-off", "--json", "--out", str(tmp_path / "kept")]
    command += ["--html", str(tmp_path / "map.html")]
    first, again = (
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(2)
    )
    assert first.pop("simulations") > 0
    assert again.pop("simulations") == 0
    assert first == again
    assert first["x"]["unit"] == "B/s"
    assert {row["name"] for row in first["comparisons"]} == {"one-step-off"}
    assert "trade places" in (tmp_path / "map.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": "trainer.backend"}, "no number"),
        ({"y": "gpus"}, "both axes are the same"),
        ({"y": "response_tokens.p98"}, "no key|no statistic"),
        ({"x_range": "64"}, "not a number"),
        ({"x_range": "1..1.5"}, "on no number of GPUs"),
        ({"against": ["nobody"]}, "no regime 'nobody'"),
    ],
)
def test_mistakes_say_what_would_be_right(small: str, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        rlsim.crossover(small, **arguments)  # type: ignore[arg-type]
