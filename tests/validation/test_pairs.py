"""Pairs of rows that differ in one thing, and the page's own Markdown as HTML."""

from __future__ import annotations

from validation.html import html_of
from validation.pairs import judged, pairs
from validation.published.rows import Row

from .rows_by_hand import row as by_hand


def row(id_: str, measured: float, predicted: float, **axes: object) -> Row:
    return by_hand(id_, measured, predicted=predicted, same="w", axes=axes)


def test_pairs_differ_in_one_thing() -> None:
    a = row("a", 200.0, 180.0, mode="sync", gpus=32)
    b = row("b", 100.0, 100.0, mode="async", gpus=32)
    c = row("c", 60.0, 120.0, mode="async", gpus=64)
    found = pairs([a, b, c])
    assert [(p.a, p.b, p.axis) for p in found] == [("a", "b", "mode"), ("b", "c", "gpus")]
    assert (found[0].measured, found[0].predicted) == (2.0, 1.8)
    verdict = judged(found)
    assert (verdict["mode"]["right"], verdict["gpus"]["right"]) == (1.0, 0.0)


def test_markdown_becomes_html() -> None:
    page = html_of("## A\n\nx *y* `z<1`\n\n| a | b |\n|---|--:|\n| 1 | 2 |")
    assert page.splitlines()[0] == "<h2>A</h2>"
    assert "<i>y</i> <code>z&lt;1</code>" in page
    assert "<td class=n>2</td>" in page
