"""The README is true: its tables are what the scenarios give today, its example runs, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from validation.readme import README, generated

ROOT = Path(__file__).parents[1]
TEXT = README.read_text(encoding="utf-8")


def test_generated_parts_are_up_to_date() -> None:
    """Mend with `python -m validation.readme`."""
    assert generated(TEXT) == TEXT


def test_the_python_example_runs() -> None:
    code = re.search(r"```python\n(.*?)```", TEXT, flags=re.S)
    assert code is not None
    exec(code.group(1).replace('"scenarios/', f'"{ROOT}/scenarios/'), {})


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_every_scenario_is_listed_and_begins_with_its_question() -> None:
    for file in (ROOT / "scenarios").glob("*.yaml"):
        assert f"`{file.name}`" in TEXT
        first = file.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# ")
        assert first.endswith("?")
