"""Answers: both languages hold the same figures, the figures are the simulation's, quoted commands run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rlsim
from rlsim import interview
from rlsim.cli import app
from rlsim.errors import UserError
from rlsim.interview.bank import Question, Text
from rlsim.interview.facts import FACTS
from rlsim.views import interview as view

SCENARIOS = Path(__file__).parents[2] / "scenarios"
STEPS = 2
IDS = [q.id for q in interview.questions()]
MEASURED = re.compile(r"\d[\d,.]*(%|×| (s|ms|GB|GiB|GB/s|B|TB)(?!\w))")


def _texts(q: Question) -> list[Text]:
    phrases = [t for wordings in q.phrases.values() for t in wordings.values()]
    return [q.short, *q.derivation, *q.changes, *phrases]


def _all(answer: interview.Answer) -> str:
    return "\n".join([answer.short, *(v for _, v in answer.numbers), *answer.derivation, *answer.changes])


def test_every_question_has_facts() -> None:
    assert sorted(IDS) == sorted(FACTS)


@pytest.mark.parametrize("name", IDS)
def test_no_measure_is_typed_in(name: str) -> None:
    for text in _texts(interview.find(name)):
        assert not MEASURED.search(text.en)
        assert not MEASURED.search(text.zh)


@pytest.mark.parametrize("name", IDS)
def test_both_languages_hold_the_same_figures(name: str) -> None:
    en, zh = (interview.ask(name, lang=lang, steps=STEPS) for lang in ("en", "zh"))
    assert en.figures == zh.figures
    assert [value for _, value in en.numbers] == [value for _, value in zh.numbers]
    assert re.findall(r"\{\w+\}", _all(en) + _all(zh)) == []
    known = {str(figure) for figure in en.figures.values()}
    for answer in (en, zh):
        for match in MEASURED.finditer(_all(answer)):
            assert any(match[0].strip() in text for text in known), match[0]


def test_figures_are_the_simulation_s() -> None:
    answer = interview.ask("placement-7b", steps=STEPS)
    file = rlsim.load_scenario(SCENARIOS / "7b_64gpu.yaml")
    step = {v.variant: rlsim.simulate(v, steps=STEPS).summary()["step_time_s"]["mean"] for v in file.variants}
    assert answer.figures["shared"].value == step["colocated-sync"]
    assert answer.figures["apart"].value == step["disaggregated-sync"]
    assert answer.figures["async_gain"].value == step["colocated-sync"] / step["async"]
    assert str(answer.figures["shared"]) in answer.short


def test_the_floor_on_paper() -> None:
    """70.55 B parameters in bf16 are 141.1 GB; a TP=8 engine takes 17.6 GB into a GPU; 50 GB/s make that 0.35 s."""
    figures = interview.ask("sync-floor", steps=STEPS).figures
    assert figures["model_bytes"].value == pytest.approx(141.1e9, rel=1e-3)
    assert figures["floor"].value == pytest.approx(0.353, rel=1e-2)


@pytest.mark.parametrize("name", IDS)
def test_commands_run(name: str) -> None:
    for command in interview.ask(name, steps=STEPS).commands:
        words = shlex.split(command)
        assert words.pop(0) == "rlsim"
        words += ["--steps", "1"] if words[0] == "run" else []
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output


def test_own_system(tmp_path: Path) -> None:
    """A file without variants: the regimes are made from its base, and the answer is another one."""
    text = (SCENARIOS / "7b_64gpu.yaml").read_text().split("variant: ")[0].replace("prompts: 1024", "prompts: 64")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text)
    answer = interview.ask("placement-7b", scenario=mine, steps=STEPS)
    assert not answer.note
    assert answer.figures["shared"] != interview.ask("placement-7b", steps=STEPS).figures["shared"]


def test_own_system_that_cannot_answer() -> None:
    """A mixture of experts with latent attention has no fused QKV."""
    answer = interview.ask("qkv-reshard", scenario=SCENARIOS / "600b_moe.yaml", steps=STEPS)
    assert "no fused QKV" in answer.note


def test_sheet_as_a_page() -> None:
    answers = interview.sheet(topic="sync", lang="zh", steps=STEPS)
    page = view.page(answers)
    assert "权重同步" in page
    assert page.count("<article>") == len(answers)


def test_unknown_question() -> None:
    with pytest.raises(UserError, match="placement-7b"):
        interview.ask("placement-7")
