"""Every record predicted: rows for the report, from the profiles as shipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from validation.published import (
    automodel,
    inference,
    megatron_bridge,
    nemo_rl,
    prime_rl,
    simulation,
    simumax,
    torchtitan,
    training,
    weight_sync,
)
from validation.published.records import Record, SkipError
from validation.published.rows import FITTED, PREDICTED, REPEAT, Row
from validation.published.training import TrainingCase

NEMO_RL, INFERENCE = "nemo_rl_perf_summary", "inference_only"
TRAINING: Mapping[str, Callable[[Record], TrainingCase]] = {
    "megatron_bridge_h100_training": megatron_bridge.convert,
    "nemo_automodel_h100_training": automodel.convert,
    "prime_rl_trainer_benchmarks": prime_rl.convert,
    "simumax_b200_training": simumax.convert,
    "torchtitan_training": torchtitan.convert,
}
INFORMED = frozenset(set(TRAINING) - {"prime_rl_trainer_benchmarks"})
"""Training sources that the generic profile's priors were set with: their rows without LoRA count as fitted."""
FITTED_VERSION = "v0.4.0"
"""The version of NeMo-RL that its profile is fitted on."""

HeldOut = Mapping[str, Mapping[str, float]]


def predict(records: Iterable[Record], held_out: HeldOut | None = None) -> list[Row]:
    """Rows of all records of the known sources. `held_out`: model -> profile values of a fit that never saw it."""
    known = list(records)
    fitted = {nemo_rl.recipe_name(r): nemo_rl.layout(r) for r in known if _in_fit(r)}
    rows: list[Row] = []
    for record in known:
        if record.source == NEMO_RL:
            rows.append(nemo_row(record, fitted, held_out or {}))
        elif record.source == INFERENCE:
            rows += inference_rows(record)
        elif record.source in TRAINING:
            rows.append(training_row(record))
        elif record.source in weight_sync.SOURCES:
            rows += weight_sync_rows(record)
    return rows


def _in_fit(record: Record) -> bool:
    return record.source == NEMO_RL and nemo_rl.version(record) == FITTED_VERSION


def model_of(record: Record) -> str:
    """The model's bare name: what is held out together."""
    return str(record.config.get("resolved_recipe", record.config)["model"]).rsplit("/", 1)[-1]


def nemo_row(record: Record, fitted: Mapping[str, Sequence[object]], held_out: HeldOut) -> Row:
    """Step time of one NeMo-RL row. Steps of a recipe fitted in another version are repeats, new layouts are not."""
    model = model_of(record)
    status = FITTED if _in_fit(record) else PREDICTED
    if status == PREDICTED and fitted.get(nemo_rl.recipe_name(record)) == nemo_rl.layout(record):
        status = REPEAT
    row = Row(
        id=record.id,
        source=record.source,
        kind=record.kind,
        spec=record.spec,
        quantity="step_time_s",
        unit="s",
        group=model,
        mode=nemo_rl.mode(record),
        measured=float(record.measured["total_step_time_s"]),
        status=status,
    )
    try:
        scenario = nemo_rl.scenario(record)
    except SkipError as why:
        return row.skipped(str(why))
    found = simulation.predict(scenario)
    row = replace(
        row,
        predicted=found.seconds,
        p10=found.p10,
        p90=found.p90,
        floor=found.floor,
        work=found.work,
        note=found.note,
        parts=found.phases,
    )
    if model in held_out:
        row = replace(row, held_out=simulation.predict(scenario, held_out[model]).seconds)
    return row


def training_row(record: Record) -> Row:
    """Seconds of one training record's update (or micro-batch)."""
    row = Row(
        id=record.id,
        source=record.source,
        kind=record.kind,
        spec=record.spec,
        quantity="update_s",
        unit="s",
        group=str(record.config.get("model") or record.config["case"]),
        mode=record.source,
        measured=0.0,
        status=FITTED if record.source in INFORMED and not record.config.get("lora") else PREDICTED,
    )
    try:
        case = TRAINING[record.source](record)
    except SkipError as why:
        return row.skipped(str(why))
    seconds, floor, parts = training.price(case)
    work = training.work(case)
    return replace(row, measured=case.measured, predicted=seconds, floor=floor, work=work, parts=parts, note=case.note)


def inference_rows(record: Record) -> list[Row]:
    """Rates of one inference record."""
    row = Row(
        id=record.id,
        source=record.source,
        kind=record.kind,
        spec=record.spec,
        quantity="rate",
        unit="tokens/s",
        group=str(record.config["model"]),
        mode="prefill" if record.config.get("phase") == "prefill" else "decode",
        measured=0.0,
    )
    try:
        cases = inference.convert(record)
    except SkipError as why:
        return [row.skipped(str(why))]
    rows = []
    for case in cases:
        rate, ceiling = inference.price(case)
        rows.append(
            replace(
                row,
                quantity=case.quantity,
                measured=case.measured,
                predicted=rate,
                floor=ceiling,
                work=ceiling,
                note=case.note,
            )
        )
    return rows


SET_PRIORS = ("ckptengine-", "verl-ckptengine-", "verl-delta-", "verl-ckptbench-")
"""Weight-sync rows that the profiles' rates were set with."""


def weight_sync_rows(record: Record) -> list[Row]:
    """Seconds of one published synchronisation."""
    row = Row(
        id=record.id,
        source=record.source,
        kind=record.kind,
        spec=record.spec,
        quantity="sync_s",
        unit="s",
        group=str(record.config.get("model", "")),
        mode="weight sync",
        measured=0.0,
        status=FITTED if record.id.startswith(SET_PRIORS) else PREDICTED,
    )
    if record.spec == "C":
        return [row.skipped("grade C: listed, not scored")]
    try:
        cases = weight_sync.convert(record)
    except SkipError as why:
        return [row.skipped(str(why))]
    rows = []
    for case in cases:
        seconds, floor, parts = weight_sync.price(case)
        rows.append(
            replace(
                row,
                quantity=case.quantity,
                measured=case.measured,
                predicted=seconds,
                floor=floor,
                work=floor,
                parts=parts,
                note=case.note,
            )
        )
    return rows


def timed(records: Iterable[Record], held_out: HeldOut | None = None) -> tuple[list[Row], float]:
    """Rows, and the seconds that they took."""
    start = time.perf_counter()
    rows = predict(records, held_out)
    return rows, time.perf_counter() - start
