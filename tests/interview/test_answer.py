"""Answers: both languages hold the same figures, the figures are the simulation's, quoted commands run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import rlsim
from rlsim import interview
from rlsim.cli import app
from rlsim.errors import UserError
from rlsim.interview.bank import Question, Text
from rlsim.interview.facts import FACTS
from rlsim.interview.figure import slower
from rlsim.interview.lab import lab_of
from rlsim.views import interview as view

SCENARIOS = Path(__file__).parents[2] / "scenarios"
STEPS = 1
IDS = [q.id for q in interview.questions()]
PLACE = re.compile(r"\{(\w+)\}")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
LATIN_STOPS = re.compile(r"[\u4e00-\u9fff][,;:?!(]")
MEASURED = re.compile(r"\d[\d,.]*(%|×| (s|ms|GB|GiB|GB/s|B|TB)(?!\w))")


def _texts(q: Question) -> list[Text]:
    phrases = [t for wordings in q.phrases.values() for t in wordings.values()]
    rows = [text for row in q.rows for text in (row.label, row.value)]
    return [q.short, *rows, *q.derivation, *q.changes, *phrases]


def _ask(name: str, lang: str = "en", scenario: Path | None = None) -> interview.Answer:
    """Simulated here, each simulation once for all tests."""
    return interview.ask(name, lang=lang, scenario=scenario, steps=STEPS, jobs=1)


def _all(answer: interview.Answer) -> str:
    rows = [text for row in answer.numbers for text in row]
    return "\n".join([answer.short, *rows, *answer.derivation, *answer.changes])


def test_every_question_has_facts() -> None:
    assert sorted(IDS) == sorted(FACTS)


@pytest.mark.parametrize("name", IDS)
def test_no_measure_is_typed_in(name: str) -> None:
    for text in _texts(interview.find(name)):
        assert not MEASURED.search(text.en)
        assert not MEASURED.search(text.zh)


def test_enough_questions_on_every_topic() -> None:
    assert len(IDS) >= 42
    assert len(set(IDS)) == len(IDS)
    assert {q.topic for q in interview.questions()} == set(interview.TOPICS)


@pytest.mark.parametrize("name", IDS)
def test_every_part_in_both_languages(name: str) -> None:
    q = interview.find(name)
    assert q.kind in ("core", "exercise", "follow-up")
    assert len(q.rows) >= 3
    assert q.derivation
    assert q.changes
    assert q.show
    for text in (q.question, *_texts(q)):
        assert text.en
        assert not CHINESE.search(text.en)
    for text in (q.question, q.short, *q.derivation, *q.changes):
        assert CHINESE.search(text.zh) or text.zh.strip("{}") in q.phrases
        assert not LATIN_STOPS.search(text.zh), "full-width punctuation after Chinese"


@pytest.mark.parametrize("name", IDS)
def test_both_languages_hold_the_same_figures(name: str) -> None:
    """No place is left unfilled, nothing measured is there that no figure says, and what figures one language shows
    the other shows too."""
    q = interview.find(name)
    for text in _texts(q):
        assert sorted(set(PLACE.findall(text.en))) == sorted(set(PLACE.findall(text.zh))), text
    en, zh = (_ask(name, lang) for lang in ("en", "zh"))
    assert en.figures == zh.figures
    assert not en.note
    for answer in (en, zh):
        assert PLACE.findall(_all(answer)) == []
        known = [figure.text(answer.lang) for figure in answer.figures.values()]
        for match in MEASURED.finditer(_all(answer)):
            assert any(match[0].strip() in text for text in known), match[0]


def test_figures_are_the_simulation_s() -> None:
    answer = _ask("placement-7b")
    file = rlsim.load_scenario(SCENARIOS / "7b_64gpu.yaml")
    step = {v.variant: rlsim.simulate(v, steps=STEPS).summary()["step_time_s"]["mean"] for v in file.variants}
    assert answer.figures["shared"].value == step["colocated-sync"]
    assert answer.figures["apart"].value == step["disaggregated-sync"]
    assert answer.figures["async_gain"].value == step["colocated-sync"] / step["async"]
    assert str(answer.figures["shared"]) in answer.short


def test_the_floor_on_paper() -> None:
    """70.55 B parameters in bf16 are 141.1 GB; a TP=8 engine takes 17.6 GB into a GPU; 50 GB/s make that 0.35 s."""
    figures = _ask("sync-floor").figures
    assert figures["model_bytes"].value == pytest.approx(141.1e9, rel=1e-3)
    assert figures["floor"].value == pytest.approx(0.353, rel=1e-2)


@pytest.mark.parametrize("name", IDS)
def test_commands_parse(name: str) -> None:
    """The command line knows every command, option and key that an answer shows; nothing is simulated."""
    for line in _ask(name).commands:
        words = shlex.split(line)
        assert words.pop(0) == "rlsim"
        command = typer.main.get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        found = command.make_context("rlsim", words).params
        if "set_" in found:
            file = found["file"] if "file" in found else found["files"][0]
            rlsim.load_scenario(file, found["set_"] or [], found.get("variant"))


@pytest.mark.parametrize("name", ["gate-up-reshard", "will-it-fit", "buckets", "trust", "checkpoints", "routing"])
def test_commands_run(name: str) -> None:
    for line in _ask(name).commands:
        words = shlex.split(line)[1:]
        words += ["--steps", "1"] if words[0] == "run" else []
        result = CliRunner().invoke(app, words)
        assert result.exit_code in ((0, 2) if words[0] == "check" else (0,)), result.output
        assert "Traceback" not in result.output


def test_a_command_shows_the_answer_s_figure() -> None:
    """What the command of an answer prints is what the answer says."""
    answer = _ask("checkpoints")
    words = [*shlex.split(answer.commands[0])[1:], "--steps", str(STEPS), "--json"]
    shown = json.loads(CliRunner().invoke(app, words).output)["variants"][0]
    assert shown["step_time_s"]["mean"] == answer.figures["behind"].value


def test_own_system(tmp_path: Path) -> None:
    """A file without variants: the regimes are made from its base, and the answer is another one."""
    text = (SCENARIOS / "7b_64gpu.yaml").read_text().split("variant: ")[0].replace("prompts: 1024", "prompts: 64")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text)
    answer = _ask("placement-7b", scenario=mine)
    assert not answer.note
    assert answer.figures["shared"] != _ask("placement-7b").figures["shared"]


def test_own_system_that_cannot_answer() -> None:
    """A mixture of experts with latent attention has no fused QKV."""
    answer = _ask("qkv-reshard", scenario=SCENARIOS / "600b_moe.yaml")
    assert "no fused QKV" in answer.note


def test_sheet_as_a_page() -> None:
    answers = interview.sheet(topic="sync", lang="zh", steps=STEPS, jobs=1)
    page = view.page(answers)
    assert "权重同步" in page
    assert page.count("<article>") == len(answers)


def test_processes_give_the_same_answers() -> None:
    """In two processes, each simulation once; `done` is called after each answer."""
    done: list[int] = []
    answers = interview.sheet(topic="step", steps=2, jobs=2, done=lambda: done.append(1))
    assert len(done) == len(answers) == sum(q.topic == "step" for q in interview.questions())
    again = {a.id: a for a in interview.sheet(topic="step", steps=2, jobs=1)}
    assert all(again[a.id].figures == a.figures for a in answers)


def test_settings_that_are_the_same_are_played_once() -> None:
    lab = lab_of(SCENARIOS / "routing.yaml", STEPS)
    case = lab.base
    assert lab.start(case) is lab.start(case & ("routing=least-loaded",))
    assert lab.start(case) is not lab.start(case & ("routing=round-robin",))


def test_changes_in_words() -> None:
    """12 s for 10 s is 20% longer, 9 s 10% shorter."""
    assert slower(12, 10).text("en") == "20% longer"
    assert slower(9, 10).text("zh") == "缩短 10%"
    assert slower(10, 10).text("en") == "the same"


def test_unknown_question() -> None:
    with pytest.raises(UserError, match="placement-7b"):
        interview.ask("placement-7")
