from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlsim.errors import UserError
from rlsim.scenario.schema_lengths import LengthSpec, SecondsSpec
from rlsim.scenario.schema_workload import Reward, Turns, Workload
from rlsim.trace import read_trace
from rlsim.workload import sample_batch, workload_lengths

RNG = np.random.default_rng


def _workload(path: Path, **changes: object) -> Workload:
    given = {
        "prompts": 64,
        "group_size": 8,
        "prompt_tokens": LengthSpec(trace=str(path)),
        "response_tokens": LengthSpec(trace=str(path), max=1000),
        **changes,
    }
    return Workload(**given)  # type: ignore[arg-type]


def _trace(path: Path, prompts: int = 500, group: int = 8, correlation: float = 0.5) -> pd.DataFrame:
    """A run whose longer prompts have longer responses."""
    rng = RNG(4)
    ids = np.repeat(np.arange(prompts), group)
    shared = rng.standard_normal(prompts)
    z = np.sqrt(correlation) * shared[ids] + np.sqrt(1 - correlation) * rng.standard_normal(len(ids))
    frame = pd.DataFrame(
        {
            "prompt_id": ids,
            "prompt_tokens": np.rint(np.exp(4 + 0.5 * shared))[ids].astype(int),
            "response_tokens": np.rint(np.exp(6 + 0.5 * z)).astype(int),
        }
    )
    frame["reward_seconds"] = frame["response_tokens"] / 100
    frame["turns"] = 1 + frame["response_tokens"] // 500
    frame["environment_seconds"] = frame["turns"] * 2.0
    if path.suffix == ".csv":
        path.write_text("# made for a test\n" + frame.to_csv(index=False))
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in frame.to_dict("records")))
    else:
        frame.to_parquet(path)
    return frame


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_kinds_of_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"lengths.{kind}"
    frame = _trace(path)
    trace = read_trace(str(path))
    assert (trace.column("response_tokens") == frame["response_tokens"]).all()
    assert trace.correlation("response_tokens") == pytest.approx(0.5, abs=0.06)
    known = workload_lengths(_workload(path))
    lengths = frame["response_tokens"]
    batch = sample_batch(known, RNG(5), 0)
    assert set(np.unique(batch.response_tokens)) <= set(np.minimum(lengths, 1000))
    assert known.response.clip_ratio == pytest.approx((lengths >= 1000).mean())
    assert known.response.mean == pytest.approx(np.minimum(lengths, 1000).mean())


@pytest.mark.parametrize(
    ("group_size", "changes"),
    [(8, {}), (4, {}), (16, {}), (8, {"group_correlation": 0.5})],
    ids=["whole prompts", "parts of prompts", "more than a prompt has", "correlation given"],
)
def test_rows_are_drawn_jointly(tmp_path: Path, group_size: int, changes: dict[str, object]) -> None:
    """Means, correlation within groups, and dependence on the prompt's length are the trace's; the other columns are
    of the very row."""
    path = tmp_path / "lengths.parquet"
    frame = _trace(path)
    known = workload_lengths(_workload(path, prompts=8000, group_size=group_size, **changes))
    batch = sample_batch(known, RNG(6), 0)
    capped = np.minimum(frame["response_tokens"], 1000)
    assert batch.response_tokens.mean() == pytest.approx(capped.mean(), rel=0.02)
    assert batch.prompt_tokens.mean() == pytest.approx(frame["prompt_tokens"].mean(), rel=0.02)
    logs = np.log(batch.response_tokens)
    first, second = logs[:, 0], logs[:, 1]
    whole = np.log(capped.to_numpy()).reshape(-1, 8)
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(np.corrcoef(whole[:, 0], whole[:, 1])[0, 1], abs=0.08)
    with_prompt = np.corrcoef(np.log(frame["prompt_tokens"]), np.log(capped))[0, 1]
    for one in (first, second):
        assert np.corrcoef(np.log(batch.prompt_tokens), one)[0, 1] == pytest.approx(with_prompt, abs=0.05)
    assert batch.reward_seconds is not None
    assert (np.minimum(batch.reward_seconds * 100, 1000) == pytest.approx(batch.response_tokens)) is True
    assert batch.turns is not None
    assert batch.environment_seconds is not None
    assert (batch.environment_seconds == 2.0 * batch.turns).all()


def test_turns_of_a_trace_are_not_ignored_silently(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    _trace(path)
    texts = workload_lengths(_workload(path)).assumptions
    assert texts == tuple(
        f"{name} of the trace are not played: every sample is one turn" for name in ("turns", "environment_seconds")
    )


def test_turns_of_a_trace_with_turns_in_the_scenario(tmp_path: Path) -> None:
    """Counts and environment seconds are the rows' own: 2 s a turn, the last turn waits for nothing."""
    path = tmp_path / "lengths.csv"
    _trace(path)
    turns = Turns(count=LengthSpec(mean=3, max=9), tokens=LengthSpec(distribution="constant", mean=10))
    work = _workload(path, turns=turns, response_tokens=LengthSpec(trace=str(path), max=4000))
    batch = sample_batch(work, RNG(0), 0)
    assert batch.turns is not None
    assert batch.environment_seconds is not None
    assert batch.plan is not None
    assert (np.diff(batch.plan.first) == batch.turns.ravel()).all()
    several = batch.turns.ravel() > 1
    waited = np.add.reduceat(batch.plan.waits, batch.plan.first[:-1])
    np.testing.assert_allclose(waited[several], batch.environment_seconds.ravel()[several])
    assert (waited[~several] == 0).all()
    unused = "response_tokens of the trace are not used: workload.turns says what a sample generates"
    assert unused in workload_lengths(work).assumptions


def test_a_group_of_one_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("prompt_tokens,response_tokens\n10,500\n20,30\n30,900\n")
    batch = sample_batch(_workload(path, group_size=1, prompts=50), RNG(0), 0)
    pairs = set(zip(batch.prompt_tokens.tolist(), batch.response_tokens[:, 0].tolist(), strict=True))
    assert pairs == {(10, 500), (20, 30), (30, 900)}


def test_whole_prompts_come_without_repeats(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    rows = [f"{prompt},{10 * prompt + answer}" for prompt in (1, 2) for answer in range(3)]
    path.write_text("prompt_id,response_tokens\n" + "\n".join(rows))
    work = _workload(path, group_size=3, prompt_tokens=LengthSpec(mean=50, max=100))
    drawn = sample_batch(work, RNG(0), 0).response_tokens
    assert {tuple(sorted(group)) for group in drawn.tolist()} == {(10, 11, 12), (20, 21, 22)}


def test_equal_lengths_in_file_order_are_no_correlation(tmp_path: Path) -> None:
    """Half of the samples at the cap, whatever their prompt."""
    path = tmp_path / "capped.csv"
    lengths = RNG(0).choice([100, 1000], 4000)
    path.write_text("prompt_id,response_tokens\n" + "\n".join(f"{i // 4},{tokens}" for i, tokens in enumerate(lengths)))
    assert read_trace(str(path)).correlation("response_tokens") == pytest.approx(0.0, abs=0.05)


def test_reward_seconds_give_way_to_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    _trace(path)
    given = Reward(kind="sandbox", seconds=SecondsSpec(mean="2 s", p99="9 s"), workers=8)
    for reward in (given, Reward(kind="environment")):
        assert sample_batch(_workload(path, reward=reward), RNG(0), 0).reward_seconds is None


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("b.csv", "prompt_id,response_tokens\n0,-5\n", "response_tokens is '-5' in row 1"),
        ("e.csv", "prompt_id,response_tokens\n0,5\n1,many\n2,\n", r"'many' in row 2 \(and 1 more rows\)"),
        ("f.csv", "prompt_id,response_tokens\n0,inf\n", "'inf' in row 1"),
        ("g.csv", "prompt_id,response_tokens\n", "no rows"),
        ("h.csv", "prompt_id,response_tokens\n,5\n", "prompt_id is missing in row 1"),
        ("i.csv", "response_tokens,reward_seconds\n5,-1\n", "reward_seconds is '-1'"),
        ("j.jsonl", '{"response_tokens": [1]}\n', "row 1"),
        ("k.jsonl", '{"response_tokens": 1, "prompt_id": [1]}\n', "prompt_id is not one value a row"),
        ("l.jsonl", "{not json}\n", "cannot be read"),
        ("m.parquet", "not parquet", "cannot be read"),
        ("n.csv", "response_tokens\n1,2\n3,4\n", "cannot be read"),
        ("o.csv", '"response_tokens\n1\n', "cannot be read"),
        ("p.csv", "response_tokens\n1e300\n", "'1e\\+300' in row 1"),
        ("q.jsonl", '{"response_tokens": null}\n', "row 1"),
        ("c.txt", "5", "unknown kind of trace"),
        ("d.csv", "", "cannot be read"),
    ],
)
def test_mistakes_in_traces(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=says) as caught:
        read_trace(str(tmp_path / name))
    assert caught.value.file == str(tmp_path / name)


def test_a_mistake_in_a_row_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "remarks.csv"
    path.write_text("# a remark\nprompt_id,response_tokens\n0,5\n0,many\n")
    with pytest.raises(UserError) as caught:
        read_trace(str(path))
    assert str(caught.value).startswith(f"{path}:4: response_tokens is 'many' in row 2. Fix: ")


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt_id,tokens\n0,5\n")
    with pytest.raises(UserError, match="no column response_tokens") as caught:
        read_trace(str(tmp_path / "a.csv")).column("response_tokens")
    assert "it has prompt_id, tokens" in str(caught.value.fix)


def test_missing_trace() -> None:
    with pytest.raises(UserError, match="no such trace"):
        read_trace("/nowhere/lengths.csv")
