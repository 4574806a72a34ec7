"""Predicted against measured: `python -m validation.report` prints the tables and writes `docs/validation.md`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from validation.fit_nemo import load as load_fit
from validation.page import markdown
from validation.predict import predict
from validation.published import records
from validation.published.rows import Row
from validation.summary import as_dict

PAGE = Path(__file__).parents[1] / "docs" / "validation.md"
FINDINGS = Path(__file__).parent / "findings.md"
"""What falls short and why: written by hand, without figures of its own that could go stale."""


def rows(folder: Path = records.FOLDER) -> list[Row]:
    """All rows of a folder of records, NeMo-RL's with their held-out predictions."""
    return predict(records.load(folder), load_fit().get("held_out"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict all records, print, and write the page."""
    parser = argparse.ArgumentParser(description="Predict the published records and compare.")
    parser.add_argument("--records", type=Path, default=records.FOLDER, help="folder of record files")
    parser.add_argument("--json", action="store_true", help="print JSON, write nothing")
    parser.add_argument("--out", type=Path, default=PAGE, help="the Markdown page")
    chosen = parser.parse_args(arguments)
    found = rows(chosen.records)
    if chosen.json:
        sys.stdout.write(json.dumps(as_dict(found), indent=1) + "\n")
        return
    text = markdown(found, FINDINGS.read_text(encoding="utf-8") if FINDINGS.exists() else "")
    chosen.out.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
