"""Records are read as they are, and refused by name where they are not records."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.errors import UserError
from validation.published import records


def test_ids_are_unique_and_kinds_known() -> None:
    found = records.load()
    assert len({r.id for r in found}) == len(found)
    kinds = {"rl_step", "rl_total", "rl_throughput", "rl_relative", "config_only", "train_only", "infer_only"}
    assert {r.kind for r in found} <= kinds | {"weight_sync", "offload", "comm", "hw_spec"}
    assert {r.spec for r in found} <= {"A", "B", "C"}


def test_a_folder_of_the_same_form_is_read(tmp_path: Path) -> None:
    text = "records:\n- {id: a, kind: train_only, spec: B, config: {model: x}, measured: {s: 1}}\n"
    (tmp_path / "mine.yaml").write_text(text)
    (record,) = records.load(tmp_path)
    assert (record.id, record.source, record.notes) == ("a", "mine", ())


def test_null_is_not_stated(tmp_path: Path) -> None:
    text = "records:\n- {id: a, kind: train_only, spec: B, config: {model: x, ep: null}, measured: {s: 1, mfu: null}}\n"
    (tmp_path / "mine.yaml").write_text(text)
    (record,) = records.load(tmp_path)
    assert (record.config, record.measured) == ({"model": "x"}, {"s": 1})


@pytest.mark.parametrize("text", ["[]", "records: {}", "records:\n- {id: a, kind: train_only}\n"])
def test_another_form_is_a_users_mistake(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=r"mine\.yaml"):
        records.load(tmp_path)


def test_an_empty_folder_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        records.load(tmp_path)
