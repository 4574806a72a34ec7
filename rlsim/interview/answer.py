"""An answer: the question's text with the figures that the simulation gives at the moment of asking."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsim.errors import UserError
from rlsim.interview.bank import LANGUAGES, Question, Text, find, questions
from rlsim.interview.facts import FACTS
from rlsim.interview.figure import Facts, Figure, Pick
from rlsim.interview.lab import Lab, Unanswerable, lab_of, players, shipped

WAITING = 8
"""Questions of a sheet that are worked on at the same time."""
PLACE = re.compile(r"\{([a-z0-9_]+)\}")
NOTE = Text(
    "Your system cannot answer this ({reason}); this is the answer for the shipped scenario.",
    "你的系统回答不了这个问题（{reason}）；以下是内置场景的答案。",
)


@dataclass(frozen=True)
class Answer:
    """A rendered answer. `note` is not empty when the user's own system could not give it.

    numbers  (label, value) lines
    figures  every figure by name, whether shown or not
    commands what to run to see it
    """

    id: str
    topic: str
    kind: str
    lang: str
    question: str
    system: str
    note: str
    short: str
    numbers: tuple[tuple[str, str], ...]
    derivation: tuple[str, ...]
    changes: tuple[str, ...]
    commands: tuple[str, ...]
    figures: Mapping[str, Figure]

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `rlsim interview ask --json`."""
        return {
            "id": self.id,
            "topic": self.topic,
            "kind": self.kind,
            "lang": self.lang,
            "question": self.question,
            "system": self.system,
            "note": self.note,
            "short": self.short,
            "numbers": [{"label": label, "value": value} for label, value in self.numbers],
            "derivation": list(self.derivation),
            "changes": list(self.changes),
            "commands": list(self.commands),
            "figures": {
                name: {"value": f.value, "unit": f.unit, "text": f.text(self.lang)} for name, f in self.figures.items()
            },
        }


def ask(
    question: str | Question,
    *,
    lang: str = "en",
    scenario: str | Path | None = None,
    steps: int | None = None,
    jobs: int | None = None,
) -> Answer:
    """Answer one question, on the shipped scenario or on the user's own.

    steps  measured steps of every simulation (default: the file's)
    jobs   processes that simulate (default: one for every core)

    Raises `UserError` for an unknown question or language and for a wrong scenario file.
    """
    asked = find(question) if isinstance(question, str) else question
    _known(lang)
    with players(jobs or os.cpu_count() or 1) as where:
        return _asked(asked, lang, scenario, steps, where)


def sheet(
    *,
    lang: str = "en",
    scenario: str | Path | None = None,
    topic: str | None = None,
    steps: int | None = None,
    jobs: int | None = None,
    done: Callable[[], None] | None = None,
) -> tuple[Answer, ...]:
    """All answers (of a topic), in the bank's order; `done` is called after each. `steps` and `jobs` as in `ask`.

    A simulation that several questions need is played once.
    """
    _known(lang)

    def one(question: Question) -> Answer:
        answer = _asked(question, lang, scenario, steps, where)
        if done is not None:
            done()
        return answer

    asked = [question for question in questions() if topic in (None, question.topic)]
    with players(jobs or os.cpu_count() or 1) as where:
        if where is None:
            return tuple(map(one, asked))
        with ThreadPoolExecutor(WAITING) as waiting:  # the threads only wait for the processes
            return tuple(waiting.map(one, asked))


def _known(lang: str) -> None:
    if lang not in LANGUAGES:
        raise UserError(f"no language {lang!r}", key="--lang", fix=" or ".join(LANGUAGES))


def _asked(
    asked: Question, lang: str, scenario: str | Path | None, steps: int | None, where: Executor | None
) -> Answer:
    reason = ""
    if scenario is not None:
        lab = lab_of(Path(scenario), steps).played_by(where)
        try:
            return _answer(asked, lang, lab, _facts(asked, lab), "")
        except Unanswerable as error:
            reason = NOTE.of(lang).format(reason=error.missing.of(lang))
        except UserError as error:  # the file is right, but not with what the question changes in it
            reason = NOTE.of(lang).format(reason=error.message)
    lab = lab_of(shipped(asked.system), steps).played_by(where)
    return _answer(asked, lang, lab, _facts(asked, lab), reason)


def _facts(question: Question, lab: Lab) -> Facts:
    if question.id not in lab.facts:
        lab.facts[question.id] = FACTS[question.id](lab)
    return lab.facts[question.id]


def _answer(question: Question, lang: str, lab: Lab, facts: Facts, note: str) -> Answer:
    shared = {"file": Figure(lab.file, "word"), "model": Figure(lab.model.name.split("/")[-1], "word")}
    known: Facts = {**shared, **facts}

    def fill(text: str) -> str:
        return _fill(text, known, question, lang)

    def fill_all(texts: Sequence[Text]) -> tuple[str, ...]:
        return tuple(filled for t in texts if (filled := fill(t.of(lang))))

    return Answer(
        id=question.id,
        topic=question.topic,
        kind=question.kind,
        lang=lang,
        question=question.question.of(lang),
        system=lab.title(lang),
        note=note,
        short=fill(question.short.of(lang)),
        numbers=tuple((fill(row.label.of(lang)), fill(row.value.of(lang))) for row in question.rows),
        derivation=fill_all(question.derivation),
        changes=fill_all(question.changes),
        commands=tuple(fill(command) for command in question.show),
        figures={name: fact for name, fact in known.items() if isinstance(fact, Figure)},
    )


def _fill(text: str, facts: Facts, question: Question, lang: str) -> str:
    """Figures and phrases in the place of their names; a phrase may hold figures itself."""

    def one(match: re.Match[str]) -> str:
        fact = facts[match[1]]
        if isinstance(fact, Pick):
            return _fill(question.phrases[match[1]][fact.key].of(lang), facts, question, lang)
        return fact.text(lang)

    return PLACE.sub(one, text).strip()
