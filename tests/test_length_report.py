"""`rlsim lengths`: of a trace, of a scenario, as table, JSON and page; mistakes are one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlsim.cli import app
from rlsim.errors import UserError

ROOT = Path(__file__).parents[1]
TRACE = str(ROOT / "scenarios" / "traces" / "gsm8k_math_7b.csv")
SCENARIO = str(ROOT / "scenarios" / "length_drift.yaml")


def test_a_trace_as_table_and_page(tmp_path: Path) -> None:
    page = tmp_path / "tail.html"
    result = CliRunner().invoke(app, ["lengths", TRACE, "--html", str(page)])
    assert result.exit_code == 0, result.output
    for words in (
        "2,560 samples",
        "clip ratio",
        "KS distance",
        "{distribution: lognormal, p50:",
        "group_correlation: 0.2",
    ):
        assert words in result.stdout
    text = page.read_text()
    assert "Plotly.newPlot" in text
    assert 'src="http' not in text


def test_a_scenario_without_a_trace_shows_what_it_draws() -> None:
    result = CliRunner().invoke(app, ["lengths", SCENARIO, "--json", "--column", "response_tokens"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["lengths"]
    assert [one["max"] for one in told] == [1024, 4096]  # the cap-4096 variant; the others have the base's
    assert all(one["fits"] == [] and one["mean"] == pytest.approx(212, rel=0.02) for one in told)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.csv",), "no such trace"),
        (("nowhere.yaml",), "no such file"),
        ((TRACE, "--column", "reward"), "no lengths in column"),
        ((SCENARIO, "--cap", "5"), "a scenario has its own cap"),
        ((TRACE, "--html", "/nowhere/x.html"), "cannot write to /nowhere/x.html"),
        ((TRACE, "--html", "/dev/full"), "cannot write to /dev/full"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["lengths", *arguments])
    assert isinstance(result.exception, UserError), result.output
    assert words in str(result.exception)
