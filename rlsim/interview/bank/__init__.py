"""The questions: one YAML file per topic, both languages side by side, no number typed in where one is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlsim.errors import UserError

LANGUAGES = ("en", "zh")
TOPICS: Mapping[str, Mapping[str, str]] = {
    "step": {"en": "The step and its frameworks", "zh": "训练步与框架"},
    "placement": {"en": "Placement and memory", "zh": "部署方式与显存"},
    "rollout": {"en": "Rollout and its long tail", "zh": "Rollout 与长尾"},
    "engine": {"en": "What RL asks of an inference engine", "zh": "RL 对推理引擎的要求"},
    "sync": {"en": "Weight sync and resharding", "zh": "权重同步与重切分"},
    "async": {"en": "Asynchrony and staleness", "zh": "异步与 staleness"},
    "scale": {"en": "Scale, failures, cost", "zh": "规模、故障与成本"},
}


@dataclass(frozen=True)
class Text:
    """The same sentence in both languages; `{name}` stands for a figure or a phrase."""

    en: str
    zh: str

    def of(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en


@dataclass(frozen=True)
class Row:
    """A line of the numbers: what it is, and its figures."""

    label: Text
    value: Text


@dataclass(frozen=True)
class Question:
    """kind: core (asked of everybody), exercise, follow-up. system: the shipped scenario that it is answered on.

    phrases: name -> wording -> text; the facts pick the wording.
    """

    id: str
    topic: str
    kind: str
    system: str
    question: Text
    short: Text
    rows: tuple[Row, ...]
    derivation: tuple[Text, ...]
    changes: tuple[Text, ...]
    show: tuple[str, ...]
    phrases: Mapping[str, Mapping[str, Text]]


@cache
def questions() -> tuple[Question, ...]:
    """All questions, by topic."""
    return tuple(_question(entry, topic) for topic in TOPICS for entry in _read(topic))


def find(name: str) -> Question:
    """The question of that id. Raises `UserError` with near ids."""
    from difflib import get_close_matches

    known = {q.id: q for q in questions()}
    if name not in known:
        near = get_close_matches(name, known, 3, 0.4)
        raise UserError(
            f"no question {name!r}", fix=f"for example {', '.join(near or list(known)[:3])}; see `rlsim interview list`"
        )
    return known[name]


def _read(topic: str) -> list[dict[str, Any]]:
    files = sorted(Path(__file__).parent.glob(f"{topic}*.yaml"))
    return [entry for file in files for entry in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)]


def _text(value: Mapping[str, str]) -> Text:
    return Text(str(value["en"]).strip(), str(value["zh"]).strip())


def _either(value: str | Mapping[str, str]) -> Text:
    """A text that is the same in both languages, but for the brackets that Chinese has, or one for each."""
    if isinstance(value, str):
        return Text(value, value.replace(" (", "（").replace(")", "）"))
    return _text(value)


def _question(entry: Mapping[str, Any], topic: str) -> Question:
    return Question(
        id=entry["id"],
        topic=topic,
        kind=entry["kind"],
        system=entry["system"],
        question=_text(entry["question"]),
        short=_text(entry["short"]),
        rows=tuple(Row(_text(row), _either(row["value"])) for row in entry["numbers"]),
        derivation=tuple(_text(t) for t in entry["derivation"]),
        changes=tuple(_text(t) for t in entry["changes"]),
        show=tuple(entry["show"]),
        phrases={
            name: {key: _text(t) for key, t in wordings.items()} for name, wordings in entry.get("phrases", {}).items()
        },
    )
