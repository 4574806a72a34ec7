"""Every record predicted: rows for the report, from the profiles as shipped.

A source has its own converter where its form needs one; other files go by kind, so that any folder of records runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rlsim.catalog.profiles import Profile, profile
from rlsim.costs.spreads import (
    FSDP_SYNC,
    ROLLOUT,
    UPDATE,
    WEIGHT_SYNC,
    ParameterDraws,
    Parts,
    Rules,
    multipliers,
)
from rlsim.errors import UserError
from validation import fits
from validation.published import (
    automodel,
    comm,
    inference,
    megatron_bridge,
    nemo_rl,
    prime_rl,
    rl,
    rl_price,
    simulation,
    simumax,
    torchtitan,
    train_misc,
    training,
    weight_sync,
)
from validation.published.records import Record, SkipError
from validation.published.rows import FITTED, PREDICTED, REPEAT, Row
from validation.published.training import TrainingCase

TRAINING: Mapping[str, Callable[[Record], TrainingCase]] = {
    "megatron_bridge_h100_training": megatron_bridge.convert,
    "nemo_automodel_h100_training": automodel.convert,
    "prime_rl_trainer_benchmarks": prime_rl.convert,
    "simumax_b200_training": simumax.convert,
    "torchtitan_training": torchtitan.convert,
}
SYNC_KINDS, TRAIN_KINDS = ("weight_sync", "offload"), ("train_only", "train_mfu")
LINK_KINDS = ("comm", "hw_spec")
RELATIVE = {
    "rl_relative": "relative: no time of its own",
    "config_only": "a configuration without a measurement",
}
BROKEN = (RuntimeError, KeyError, TypeError, ValueError, ZeroDivisionError)
"""What a record of an unknown form may run into inside a converter."""

HeldOut = Mapping[str, Mapping[str, float]]


def predict(records: Iterable[Record], held_out: HeldOut | None = None, processes: int = 1) -> list[Row]:
    """Rows of all records. `held_out`: model -> profile values of a fit that never saw it."""
    known = list(records)
    one = partial(rows_of, held_out=held_out or {})
    if processes == 1:
        return [row for record in known for row in one(record)]
    with ProcessPoolExecutor(processes) as pool:
        # long ones first would be better balanced, but rows keep the order of their files
        return [row for rows in pool.map(one, known, chunksize=4) for row in rows]


def rows_of(record: Record, held_out: HeldOut) -> list[Row]:
    """The rows of one record: predicted, or listed with the reason why not."""
    row = Row(
        id=record.id,
        source=record.source,
        kind=record.kind,
        spec=record.spec,
        quantity=_quantity(record),
        unit="s",
        group=model_of(record),
        mode=record.source,
        measured=0.0,
        framework=rl.framework(record) if record.kind.startswith("rl_") else record.source,
        gpu=str(record.config.get("gpu") or "not stated").split(" ")[0],
    )
    if record.spec == "C":
        return [row.skipped("grade C: listed, not scored")]
    try:
        if record.kind in RELATIVE:
            raise SkipError(RELATIVE[record.kind])
        return list(_rows(record, row, held_out))
    except SkipError as why:
        return [row.skipped(str(why))]
    except UserError as why:
        return [row.skipped(f"not a scenario of rlsim's: {why.message}")]
    except BROKEN as why:
        return [row.skipped(f"not understood: {type(why).__name__} {why}")]


def _rows(record: Record, row: Row, held_out: HeldOut) -> Iterator[Row]:
    if "resolved_recipe" in record.config:
        yield nemo_row(record, row, held_out)
    elif record.kind in TRAIN_KINDS:
        yield from training_rows(record, row)
    elif record.kind == "infer_only":
        yield from inference_rows(record, row)
    elif record.kind in SYNC_KINDS:
        yield from weight_sync_rows(record, row)
    elif record.kind in LINK_KINDS:
        yield from link_rows(record, row)
    elif record.kind.startswith("rl_"):
        yield from rl_rows(record, row)
    else:
        raise SkipError(f"kind {record.kind} is not known")


def _quantity(record: Record) -> str:
    """What an unpredicted record is listed under."""
    kinds = {"train_only": "update_s", "train_mfu": "update_s", "infer_only": "rate", "weight_sync": "sync_s"}
    return kinds.get(record.kind, "switch_s" if record.kind == "offload" else "step_time_s")


def model_of(record: Record) -> str:
    """The model's bare name: what is held out together."""
    c = record.config.get("resolved_recipe", record.config)
    return str(c.get("model") or c.get("case") or c.get("gpu") or "").rsplit("/", 1)[-1]


# --- whole steps ------------------------------------------------------------------------------------------------------
def nemo_row(record: Record, row: Row, held_out: HeldOut) -> Row:
    """Step time of one NeMo-RL recipe. Steps of a recipe fitted in another version are repeats, new layouts are not."""
    stored = fits.nemo_rl()
    status = FITTED if record.id in stored["rows"] else PREDICTED
    if status == PREDICTED and stored["layouts"].get(nemo_rl.recipe_name(record)) == list(nemo_rl.layout(record)):
        status = REPEAT
    row = replace(row, mode=nemo_rl.mode(record), measured=float(record.measured["total_step_time_s"]), status=status)
    row = replace(row, framework="nemo-rl", gpu="H100", recipe=nemo_rl.recipe_name(record))
    r = record.config["resolved_recipe"]
    workload = [r[k] for k in ("num_prompts_per_step", "num_generations_per_prompt", "max_total_sequence_length")]
    axes = {"mode": row.mode, "gpus": r["num_nodes"] * r["gpus_per_node"]}
    row = replace(row, same=f"{row.source} {row.group} {nemo_rl.version(record)} {workload}", axes=axes)
    scenario = nemo_rl.scenario(record)
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
    without = {"framework": simulation.predict({**scenario, "framework": "generic"}).seconds}
    if row.group in held_out:
        without["model"] = simulation.predict(scenario, held_out[row.group]).seconds
    return replace(row, without=without)


def rl_rows(record: Record, row: Row) -> Iterator[Row]:
    """The published quantities of one run."""
    case = rl.convert(record)
    priced, found = rl_price.price(case)
    mode = f"{row.framework} {case.scenario['schedule']}"
    memory = "memory model: needs more than there is" if found.note else ""
    note = "; ".join(filter(None, [case.note, memory]))
    work, cluster = case.scenario["workload"], case.scenario["cluster"]
    sizes = [work["prompts"], work["group_size"], work["response_tokens"]["max"], case.scenario["trainer"]["backend"]]
    c = record.config
    axes = {
        "mode": case.scenario["schedule"],
        "gpus": cluster["gpus"],
        "staleness": c.get("staleness_threshold"),
        "batches": c.get("require_batches"),
        "gpu": cluster["gpu"],
    }
    row = replace(row, same=f"{row.source} {row.group} {sizes}", axes=axes)
    for quantity, seconds in case.measured.items():
        one = replace(row, quantity=quantity, measured=seconds, mode=f"{mode} {quantity}", note=note)
        if quantity not in priced:
            yield one.skipped("no such phase in the scenario")
            continue
        p = priced[quantity]
        whole = quantity == "step_time_s"
        share = 1.0 if whole else min(1.0, p.seconds / found.seconds)
        yield replace(
            one,
            predicted=p.seconds,
            p10=p.p10,
            p90=p.p90,
            parts=p.phases,
            floor=found.floor if whole else None,
            work=found.work * share,
        )


# --- parts ------------------------------------------------------------------------------------------------------------
def training_rows(record: Record, row: Row) -> Iterator[Row]:
    """Seconds of one training record's updates (or micro-batches)."""
    own = TRAINING.get(record.source)
    fitted = record.id in fits.training()["rows"]
    for case in (own(record),) if own else train_misc.convert(record):
        seconds, floor, parts = training.price(case)
        low, high = _spread(parts, UPDATE, profile("generic").with_values(**case.profile))
        trainer = case.scenario["trainer"]
        layout = {k: v for k, v in trainer.items() if k in ("tp", "pp", "vpp", "cp", "ep", "precision")}
        yield replace(
            row,
            same=f"{row.source} {case.scenario['model']} {trainer['gpus']} {case.length}",
            axes={"layout": str(layout)},
            quantity=case.quantity,
            measured=case.measured,
            predicted=seconds,
            p10=seconds * low,
            p90=seconds * high,
            floor=None if case.hidden else floor,
            work=training.work(case),
            parts=parts,
            note=case.note,
            status=FITTED if fitted else PREDICTED,
            without=_training_without(record, case) if fitted else {},
        )


def _training_without(record: Record, case: TrainingCase) -> dict[str, float]:
    """Predictions of the fits that never saw the record's model, or its source: a framework and a GPU at once."""
    stored = fits.training()
    held, model = stored["held_out"], stored["models"][record.id]
    return {
        "model": training.price(case, held["model"][model])[0],
        "source": training.price(case, held["source"][record.source])[0],
    }


def inference_rows(record: Record, row: Row) -> Iterator[Row]:
    """Rates of one inference record."""
    row = replace(row, unit="tokens/s", mode="prefill" if record.config.get("phase") == "prefill" else "decode")
    for case in inference.convert(record):
        rate, ceiling = inference.price(case)
        low, high = _spread({"kernels": 0.85, "host_base": 0.1, "host_per_sequence": 0.05}, ROLLOUT, profile("generic"))
        yield replace(
            row,
            quantity=case.quantity,
            measured=case.measured,
            predicted=rate,
            p10=rate / high,
            p90=rate / low,
            floor=ceiling,
            work=ceiling,
            note=case.note,
        )


def weight_sync_rows(record: Record, row: Row) -> Iterator[Row]:
    """Seconds of one published synchronisation."""
    row = replace(row, mode="weight sync", status=FITTED if record.id in fits.weight_sync() else PREDICTED)
    for case in weight_sync.convert(record):
        seconds, floor, parts = weight_sync.price(case)
        rules = FSDP_SYNC if case.scenario["trainer"].get("backend") == "fsdp2" else WEIGHT_SYNC
        low, high = _spread(parts, rules, profile(_profile_name(case.scenario)))
        yield replace(
            row,
            quantity=case.quantity,
            measured=case.measured,
            predicted=seconds,
            p10=seconds * low,
            p90=seconds * high,
            floor=floor,
            work=floor,
            parts=parts,
            note=case.note,
        )


def _profile_name(scenario: Mapping[str, Any]) -> str:
    name = scenario.get("framework", "generic")
    return name if name in ("verl", "nemo-rl", "slime", "openrlhf") else "generic"


def _spread(parts: Parts, rules: Rules, known: Profile) -> tuple[float, float]:
    """(p10, p90) of a duration over the predicted one: drawn parameters and the noise between versions."""
    draws = ParameterDraws(known)
    low, middle, high = np.quantile(
        multipliers(parts, rules, draws) * draws.stretch("software_noise", 1), (0.1, 0.5, 0.9)
    )
    return float(low / middle), float(high / middle)


def link_rows(record: Record, row: Row) -> Iterator[Row]:
    """Rates and times of links, peaks of GPUs; what the catalog states itself counts as fitted."""
    for figure in comm.convert(record):
        yield replace(
            row,
            quantity=figure.quantity,
            unit=figure.unit,
            measured=figure.measured,
            predicted=figure.predicted,
            mode=record.kind,
            note=figure.note,
            status=FITTED if figure.given else PREDICTED,
        )


def timed(records: Sequence[Record], held_out: HeldOut | None = None) -> tuple[list[Row], float]:
    """Rows, and the seconds that they took."""
    start = time.perf_counter()
    rows = predict(records, held_out)
    return rows, time.perf_counter() - start
