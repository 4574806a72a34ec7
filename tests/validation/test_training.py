"""Training-only converters: layout, batch and time of the record; every price above its floor."""

from __future__ import annotations

import pytest

from rlsim.model import parameters
from validation.predict import TRAINING, rows_of
from validation.published import records, simumax, torchtitan, training
from validation.published.records import Record
from validation.published.rows import SKIPPED

RECORDS = {r.id: r for r in records.load() if r.source in TRAINING}
ROWS = {id_: row for id_, record in RECORDS.items() for row in rows_of(record, {})}


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_predictions_respect_physics(row) -> None:
    if row.status == SKIPPED:
        assert row.note
        return
    assert row.predicted > row.floor > 0
    assert row.measured > row.work > 0, "the published run would be above the peak"
    assert sum(row.parts.values()) == pytest.approx(row.predicted)


def test_torchtitan_table_1() -> None:
    case = torchtitan.convert(RECORDS["titan-8b-8-1"])
    system = training.system(case, "none")
    # 16 sequences of 8,192 tokens at 6,667 tokens/s on each of 8 GPUs
    assert (case.samples, case.length, case.measured) == (16, 8192, pytest.approx(16 * 8192 / (6667 * 8)))
    assert (system.trainer.shard, system.trainer.tp) == (8, 1)
    assert (system.trainer_pool.gpu.watts, system.trainer_pool.gpu.hbm_bandwidth) == (500.0, 2.4e12)
    assert system.profile.value("elementwise_eager") == training.COMPILED["elementwise_eager"]


def test_simumax_cuts_models() -> None:
    case = simumax.convert(RECORDS["simumax-b200-deepseekv3_l4_tp1_ep4_pp2_dp4_mbc8_cef"])
    system = training.system(case, "none")
    assert (case.samples, case.length) == (4 * 8, 4096)
    assert [layer.moe for layer in system.model.layers] == [False, True, True, True]
    assert (system.trainer.pp, system.trainer.ep, system.trainer.dp) == (2, 4, 4)


def test_deepseek_v2_counts() -> None:
    case = simumax.convert(RECORDS["simumax-b200-deepseekv2_tp1_ep8_pp1_dp8_l4_mbc4_cef"])
    whole = training.truncated("deepseek-v2", 60)
    from rlsim import catalog

    # 235.7 B parameters (its paper: 236 B)
    assert parameters(catalog.model(whole)) == pytest.approx(235.7e9, rel=0.002)
    assert training.system(case, "none").model.num_layers == 4


def test_values_reach_the_price() -> None:
    case = torchtitan.convert(RECORDS["titan-8b-8-0"])
    plain, _, _ = training.price(case)
    slow, _, _ = training.price(case, {"gemm_derate": 1.35})
    assert slow > plain


def test_every_source_has_a_record() -> None:
    sources: set[str] = {record.source for record in _all()}
    assert set(TRAINING) <= sources


def _all() -> tuple[Record, ...]:
    return records.load()
