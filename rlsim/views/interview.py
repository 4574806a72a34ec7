"""Answers as Markdown, which is also what a terminal shows, and as a page to print."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from rlsim.interview import TOPICS, Answer
from rlsim.views.html import STYLE

HEADS: Mapping[str, Mapping[str, str]] = {
    "numbers": {"en": "Numbers", "zh": "数字"},
    "derivation": {"en": "Derivation", "zh": "推导"},
    "changes": {"en": "What would change it", "zh": "什么会改变结论"},
    "show": {"en": "See it", "zh": "亲自验证"},
}
PRINT = "h3{margin-top:2rem}table{border-collapse:collapse}td{padding:.15rem 1.2rem .15rem 0;vertical-align:top}" \
    "article{break-inside:avoid}.system{color:#767676}@media print{pre{white-space:pre-wrap}}"  # fmt: skip


def markdown(answers: Sequence[Answer]) -> str:
    """All answers, a heading per topic."""
    parts, topic = [], ""
    for answer in answers:
        if answer.topic != topic:
            topic = answer.topic
            parts.append(f"## {TOPICS[topic][answer.lang]}\n")
        parts.append(one(answer))
    return "\n".join(parts)


def one(answer: Answer) -> str:
    """One answer."""
    heads = {key: names[answer.lang] for key, names in HEADS.items()}
    lines = [f"### {answer.question}", "", f"_{answer.system}_", ""]
    lines += [f"> {answer.note}", ""] if answer.note else []
    lines += [answer.short, "", f"**{heads['numbers']}**", ""]
    colon = "：" if answer.lang == "zh" else ": "
    lines += [f"- {label}{colon}{value}" for label, value in answer.numbers]
    lines += ["", f"**{heads['derivation']}**", "", *[f"- {text}" for text in answer.derivation]]
    lines += ["", f"**{heads['changes']}**", "", *[f"- {text}" for text in answer.changes]]
    lines += ["", f"**{heads['show']}**", "", *[f"    {command}" for command in answer.commands], ""]
    return "\n".join(lines)


def page(answers: Sequence[Answer]) -> str:
    """The sheet as one HTML file."""
    lang = answers[0].lang if answers else "en"
    body, topic = [], ""
    for answer in answers:
        if answer.topic != topic:
            topic = answer.topic
            body.append(f"<h1>{escape(TOPICS[topic][lang])}</h1>")
        body.append(_article(answer))
    title = "rlsim interview"
    return (
        f'<!doctype html><html lang="{lang}"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}{PRINT}</style></head><body>{''.join(body)}</body></html>"
    )


def _article(answer: Answer) -> str:
    heads = {key: escape(names[answer.lang]) for key, names in HEADS.items()}
    rows = "".join(f"<tr><td>{_inline(label)}</td><td>{_inline(value)}</td></tr>" for label, value in answer.numbers)
    note = f"<p><em>{_inline(answer.note)}</em></p>" if answer.note else ""
    return (
        f"<article><h3>{_inline(answer.question)}</h3><p class=system>{_inline(answer.system)}</p>{note}"
        f"<p>{_inline(answer.short)}</p><h4>{heads['numbers']}</h4><table>{rows}</table>"
        f"<h4>{heads['derivation']}</h4>{_bullets(answer.derivation)}"
        f"<h4>{heads['changes']}</h4>{_bullets(answer.changes)}"
        f"<h4>{heads['show']}</h4><pre>{escape(chr(10).join(answer.commands))}</pre></article>"
    )


def _bullets(texts: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_inline(text)}</li>" for text in texts) + "</ul>"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
