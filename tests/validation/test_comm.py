"""Links and peaks: near what was measured, and dense figures only."""

from __future__ import annotations

import pytest

from validation.predict import rows_of
from validation.published import comm, records
from validation.published.records import SkipError
from validation.published.rows import PREDICTED

RECORDS = {r.id: r for r in records.load() if r.kind in ("comm", "hw_spec")}


@pytest.mark.parametrize("ep", [8, 16, 32, 64, 128, 256])
def test_low_latency_exchange(ep: int) -> None:
    (figure,) = comm.convert(RECORDS[f"deepep-ll-{ep}"])
    assert figure.predicted == pytest.approx(figure.measured, rel=0.15)


def test_figures_with_sparsity_are_left_out() -> None:
    found = comm.convert(RECORDS["hw-verl-mtp-doc"])
    assert [f.quantity for f in found] == ["bf16_peak H20"]


def test_unknown_nodes_are_listed() -> None:
    with pytest.raises(SkipError):
        comm.convert(RECORDS["stas-allreduce-4n"])


def test_what_the_catalog_states_is_no_prediction() -> None:
    rows = [row for record in RECORDS.values() for row in rows_of(record, {}) if row.kind == "hw_spec"]
    predicted = {row.quantity for row in rows if row.status == PREDICTED}
    assert predicted == {"matmul_rate"}
