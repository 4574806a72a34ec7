"""Fits recover what tables were made with, and never see what is held out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlsim.calibrate import tables
from rlsim.calibrate.command import fit_tables
from rlsim.calibrate.fit import Fitted, fit_all
from rlsim.catalog.profiles import profile
from rlsim.errors import UserError
from rlsim.scenario import load_scenario
from rlsim.system import resolve
from tests.costs.test_measured import CONFIG, SCENARIO

RNG = np.random.default_rng(7)
NOISE = 0.02
Rows = list[dict[str, Any]]


def repeated(seconds: float, **what: Any) -> Rows:
    """Five repetitions with 2% noise."""
    fixed = {"machine": "toy", "device": "toy cpu", "backend": "gloo", "torch": "2", "started": "now", "world": 1}
    return [
        {**fixed, "case": "x", "repetition": r, "seconds": seconds * float(np.exp(RNG.normal(0, NOISE))), **what}
        for r in range(5)
    ]


def collectives() -> Rows:
    """all-gather along a ring: (w-1)·(0.1 ms + shard / 1 GB/s); broadcast along a tree."""
    rows: Rows = []
    for world in (2, 3, 4):
        for size in 2.0 ** np.arange(10, 27, 2):
            each = 1e-4 + size / 1e9
            rows += repeated((world - 1) * each, benchmark="collective", op="all_gather", world=world, bytes=size)
            rows += repeated(
                np.ceil(np.log2(world)) * each, benchmark="collective", op="broadcast", world=world, bytes=size
            )
    return rows


def model_steps(parameters: float = 4e5) -> Rows:
    rows: Rows = []
    shape = {"parameters": parameters, "layers": 2, "hidden": 128}
    for b in (1, 2, 4, 8, 16, 32):
        for c in (16, 64, 256, 1024):
            rows += repeated(2e-3 + 1e-4 * b + 1e-6 * b * c, benchmark="decode", batch=b, context=c, **shape)
    for n in (16, 64, 128, 256, 512, 1024):
        rows += repeated(1e-3 + 1e-5 * n, benchmark="prefill", tokens=n, batch=1, **shape)
    for m in (1, 2, 4):
        for s in (32, 64, 128, 256, 512):
            seconds = 0.05 + parameters / 4e5 * 1e-4 * m * s
            rows += repeated(seconds, benchmark="train_step", micro_batch=m, sequence=s, recompute="none", **shape)
    return rows


def points(rows: Rows) -> pd.DataFrame:
    return tables.medians(pd.DataFrame(rows).assign(file="toy.parquet"))


def by_name(fits: list[Fitted]) -> dict[str, Fitted]:
    return {fit.name: fit for fit in fits}


def test_alpha_and_beta_by_world_hold_for_a_world_that_was_not_fitted() -> None:
    fits = by_name(fit_all(points(collectives()), ["world"]))
    for name, form in (("collective all_gather", "ring of shards"), ("collective broadcast", "tree")):
        fit = fits[name]
        assert fit.form == form
        assert fit.coefficients["alpha_s"].value == pytest.approx(1e-4, rel=0.05)
        assert fit.coefficients["byte_s"].value == pytest.approx(1e-9, rel=0.05)
        assert fit.ranges["world"] == (2, 3)
        assert fit.held is not None
        assert fit.held.points == 9
        assert fit.held.median < 0.05


def test_terms_and_their_errors() -> None:
    fits = by_name(fit_all(points(model_steps()), ["none"]))
    truth = {"fixed_s": 2e-3, "sequence_s": 1e-4, "context_token_s": 1e-6}
    found = fits["decode"].coefficients
    assert set(found) == set(truth)
    for term, value in truth.items():
        assert abs(found[term].value - value) < 4 * found[term].stderr + 0.01 * value
    assert fits["decode"].correlations["fixed_s", "sequence_s"] < 0  # more of one is less of the other
    assert "pair_s" not in fits["train_step"].coefficients  # nothing there grows with the square


def test_one_wild_point_does_not_move_the_fit() -> None:
    rows = points(collectives())
    rows.loc[5, "seconds"] *= 50
    fit = by_name(fit_all(rows, ["none"]))["collective all_gather"]
    assert fit.coefficients["byte_s"].value == pytest.approx(1e-9, rel=0.1)


def test_held_out_points_change_nothing() -> None:
    rows = points(collectives())
    spoiled = rows.assign(seconds=rows["seconds"].where(rows["world"] < 4, 1e3))
    honest, other = (by_name(fit_all(r, ["world"]))["collective all_gather"] for r in (rows, spoiled))
    assert honest.coefficients == other.coefficients
    assert other.held is not None
    assert other.held.median > 0.5


def test_sizes_held_out_lie_between_fitted_ones() -> None:
    fit = by_name(fit_all(points(collectives()), ["size"]))["collective broadcast"]
    assert fit.ranges["bytes"] == (2.0**10, 2.0**26)
    assert fit.held is not None
    assert fit.held.points == 9


def test_a_profile_from_tables_prices_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    (tmp_path / "mini.yaml").write_text(SCENARIO)
    pd.DataFrame(model_steps()).to_csv(tmp_path / "steps.csv", index=False)
    out = tmp_path / "cpu.yaml"
    answer = fit_tables([tmp_path / "steps.csv"], out, "generic", ["size"], [], tmp_path / "mini.yaml")
    written = profile(str(out))
    assert written.measured == {"decode", "prefill", "train"}
    assert written.value("measured.decode.context_token_s") == pytest.approx(1e-6, rel=0.05)
    one = written.parameters["measured.train.fixed_s"]
    assert one.stderr is not None
    assert one.low < one.value < one.high
    assert one.data["points"] == 12
    assert one.range["sequence"] == (32, 512)
    assert written.correlations["measured.train.fixed_s", "measured.train.token_s"] < 0
    assert len(written.fits) == len(answer.fits) == 3
    assert resolve(load_scenario(tmp_path / "mini.yaml").variants[0]).profile.measured == written.measured


def test_terms_are_given_at_the_scenarios_model(tmp_path: Path) -> None:
    """Tokens cost in proportion to parameters: 1e-4 s at 0.4 M, 2e-4 s at 0.8 M, between them at what the model has."""
    rows = points([r for p in (4e5, 8e5) for r in model_steps(p) if r["benchmark"] == "train_step"])
    shape = pd.DataFrame([{"parameters": 6e5, "layers": 2, "hidden": 128}])
    (fit,) = fit_all(rows, ["none"], shape)
    assert fit.coefficients["token_s"].value == pytest.approx(1.5e-4, rel=0.03)
    pd.DataFrame(model_steps() + model_steps(8e5)).to_csv(tmp_path / "steps.csv", index=False)
    with pytest.raises(UserError, match=r"models of 0\.4M, 0\.8M parameters"):
        fit_tables([tmp_path / "steps.csv"], tmp_path / "cpu.yaml", "generic", ["size"], [], None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"places": ["nowhere"]}, "no such file or folder"),
        ({"rules": ["worlds"]}, "no rule 'worlds'"),
        ({"rules": ["bytes>0"]}, "every point is held out"),
        ({"where": ["op"]}, "no condition 'op'"),
        ({"where": ["op=reduce"]}, "no row with op=reduce"),
        ({"out": "cpu.json"}, "not a profile's name"),
        ({"base": "vrl"}, "no calibration profile 'vrl'"),
    ],
)
def test_mistakes(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    pd.DataFrame(collectives()).to_csv(tmp_path / "c.csv", index=False)
    given = {"places": ["c.csv"], "out": "cpu.yaml", "base": "generic", "rules": ["size"], "where": []} | change
    with pytest.raises(UserError, match=says):
        fit_tables(
            [tmp_path / p for p in given["places"]],
            tmp_path / given["out"],
            given["base"],
            given["rules"],
            given["where"],
            None,
        )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "no column benchmark, seconds"),
        ("benchmark,seconds\ngemm,fast\n", "not above 0"),
        ("benchmark,seconds\nswim,1\n", "no form for benchmark 'swim'"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match=says):
        fit_tables([tmp_path], tmp_path / "cpu.yaml", "generic", ["none"], [], None)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rlsim.cli import app

    pd.DataFrame(collectives()).to_csv(tmp_path / "c.csv", index=False)
    out = tmp_path / "links.yaml"
    app(["calibrate", "fit", str(tmp_path), "--out", str(out), "--hold-out", "world"], standalone_mode=False)
    said = capsys.readouterr().out
    assert "ring of shards" in said
    assert "wrote" in said
    app(["calibrate", "show", str(out), "--json"], standalone_mode=False)
    shown = json.loads(capsys.readouterr().out)
    assert {one["group"]["op"] for one in shown["fits"]} == {"all_gather", "broadcast"}
    assert all(one["error_held_out"]["points"] == 9 for one in shown["fits"])
