"""Every mistake is one message with file, line, key and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.errors import NotModelled, UserError
from rlsim.scenario import load_scenario, loads_scenario
from rlsim.system import resolve

from .text import BASE, changed


def _error(text: str, overrides: tuple[str, ...] = ()) -> UserError:
    with pytest.raises(UserError) as caught:
        loads_scenario(text, "case.yaml", overrides)
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "says", "fix"),
    [
        ("tp: 2, pp", "tpp: 2, pp", 12, "trainer.tpp", "unknown key", "tp"),
        ("placement: dis", "placment: dis", 9, "placment", "unknown key", "placement"),
        ("placement: disagg", "placement: dissagg", 9, "placement", "is not one of", "disaggregated"),
        ("nic: 50 GB/s", "nic: 50 GB", 3, "cluster.nic", "a bandwidth is needed", "50 GB/s"),
        ("nic: 50 GB/s", "nic: 50", 3, "cluster.nic", "has no unit", "50 GB/s"),
        ("gpus: 16, nic", "gpus: -16, nic", 3, "cluster.gpus", "-16 is not possible", "≥ 1"),
        ("gpus: 16, nic", "gpus: 16.5, nic", 3, "cluster.gpus", "not a whole number", "whole number"),
        ("gpus: 16, nic", "gpus: 20, nic", 3, "cluster.gpus", "not whole nodes of 8", "24"),
        ("gpu: h100-sxm, ", "", 3, "cluster", "gpu is missing", "h100-sxm"),
        ("  prompts: 32\n", "", 4, "workload.prompts", "missing", "prompts per step"),
        ("gpus: 8, tp", "gpus: 10, tp", 13, "rollout.gpus", "the cluster has 16", "rollout.gpus: 8"),
        ("gpus: 8, tp: 2", "gpus: 8, tp: 2, memory_utilization: 1.5", 13, "rollout.memory_utilization", "1.5", "≤ 1"),
        ("p99: 1900, max: 2048", "p99: 1900, max: 400", 8, "workload.response_tokens", "above max 400", "p99 ≤ max"),
        ("mean: 500, p99: 1900, ", "mean: 5000, ", 8, "workload.response_tokens", "mean 5000 is above max",
         "mean ≤ max"),
        ("mean: 500, p99: 1900, ", "mean: 500, p99: 400, ", 8, "workload.response_tokens", "no lognormal",
         "mean between"),
        ("mean: 500, p99: 1900, max: 2048", "mean: 500", 8, "workload.response_tokens", "max is missing", "max"),
        ("group_size: 8", "group_size: 8\n  updates: {mini_batches: 7}", 7, "workload.updates.mini_batches",
         "do not divide 256", "4"),
        ("group_size: 8", "group_size: 8\n  reward: {kind: sandbox, workers: 8}", 7, "workload.reward",
         "needs seconds", "2 s"),
        ("group_size: 8", "group_size: 8\n  reference_model: no", 7, "workload.reference_model",
         "not true or false", "true"),
        ("tp: 2, pp: 2}", "tp: 2, pp: 2, vpp: 0}", 12, "trainer.vpp", "0 is not possible", "≥ 1"),
        ("backend: megatron", "backend: fsdp2", 12, "trainer.pp", "has no pipeline", "megatron"),
        ("pp: 2}", "pp: 2, pp_layers: {firts: 3}}", 12, "trainer.pp_layers.firts", "unknown key", "first"),
        ("trainer: {gpus: 16}", "trainer: {gpus: 8}", 16, "variants.together.rollout.gpus", "co-located", "16"),
        ("schedule: sync,", "schedul: sync,", 16, "variants.together.schedul", "unknown key", "schedule"),
        ("schedule: sync,", "", 16, "schedule", "async needs GPUs for each role", "sync"),
        ("rollout: {gpus: 8, tp: 2}", "rollout: 8", 13, "rollout", "not a mapping", "key: value"),
        ("trainer: {gpus: 8, ", "trainer: {micro_batch_tokens: 9, micro_batch_size: 1, gpus: 8, ", 12,
         "trainer", "both", "null"),
        ("model: Qwen/Qwen2.5-7B", "model: {base: x, bse: y}", 2, "model.bse", "unknown key", "base"),
        ("name: small", "name: 3", 1, "name", "3 is not text", "quotes"),
        ("max_staleness: 2", "max_staleness: 2, partial_rollout: false, on_sync: in-flight", 11,
         "async.on_sync", "partial", "drain"),
        ("schedule: async\n", "schedule: async\nweight_sync: {strategy: ipc}\n", 11, "weight_sync.strategy",
         "ipc", "auto"),
        ("group_size: 8", "group_size: 8\n  dynamic_sampling: {refill: batch}", 7, "workload.dynamic_sampling",
         "pass_rate is missing", "pass_rate: {mean: 0.5"),
        ("group_size: 8", "group_size: 8\n  dynamic_sampling: {}\n  pass_rate: 1", 8, "workload.pass_rate.mean",
         "at 1 all samples", "between 0 and 1"),
        ("group_size: 8", "group_size: 1\n  dynamic_sampling: {}\n  pass_rate: 0.5", 6, "workload.group_size",
         "keeps none", "at least 2"),
    ],
)  # fmt: skip
def test_mistakes(old: str, new: str, line: int, key: str, says: str, fix: str) -> None:
    error = _error(changed((old, new)))
    assert not isinstance(error, NotModelled)
    assert (error.file, error.key) == ("case.yaml", key)
    assert error.line == line or key == "schedule"
    assert says in error.message
    assert fix in str(error.fix)
    assert str(error).startswith(f"case.yaml:{error.line}: {key}: ")


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "says", "fix"),
    [
        ("gpus: 8, backend", "gpus: 6, backend", 12, "trainer.gpus", "tp 2 · pp 2 = 4", "of 4 or 8; or tp of 1, 3"),
        ("gpus: 8, tp", "gpus: 7, tp", 13, "rollout.gpus", "do not divide 7 rollout GPUs", "6 or 8"),
        ("gpus: 8, tp: 2", "gpus: 8, attn_tp: 3", 13, "rollout.gpus", "engines of 3 GPUs", "6 or 9"),
        ("tp: 2, pp: 2}", "tp: 2, pp: 2, vpp: 3}", 12, "trainer.vpp", "does not divide the layers", "vpp of 1, 2"),
        ("backend: megatron", "ulysses: 2, backend: megatron", 12, "trainer.ulysses", "has no ulysses", "cp instead"),
        ("backend: megatron", "backend: zero", 12, "trainer.pp", "has no pp", "tp instead"),
        ("tp: 2, pp: 2}", "tp: 2, pp: 2, pp_layers: [14, 15]}", 12, "trainer.pp_layers", "29 layers", "28"),
        ("backend: megatron, tp: 2, pp: 2", "backend: fsdp2, fsdp_size: 3", 12, "trainer.fsdp_size", "3 does not", "4"),
    ],
)
def test_layouts_that_do_not_divide(old: str, new: str, line: int, key: str, says: str, fix: str) -> None:
    """Found when the layout is built, at the file's line all the same."""
    scenario = loads_scenario(changed((old, new)), "case.yaml", variant="base").variants[0]
    with pytest.raises(UserError) as caught:
        resolve(scenario)
    error = caught.value
    assert (error.file, error.line, error.key) == ("case.yaml", line, key)
    assert says in error.message
    assert fix in str(error.fix)


def test_expert_parallel_size_names_the_nearest_that_divides() -> None:
    text = changed(("Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B"), ("tp: 2, pp: 2}", "tp: 2, pp: 2, ep: 4}"))
    with pytest.raises(UserError) as caught:
        resolve(loads_scenario(text, "case.yaml", variant="base").variants[0])
    assert (caught.value.line, caught.value.key) == (12, "trainer.ep")
    assert "etp 2 · ep 4 · pp 2 = 16" in caught.value.message
    assert str(caught.value.fix).startswith("ep of 1, 2, or etp: 1")


def test_the_first_mistake_and_how_many_more() -> None:
    error = _error(changed(("gpus: 16, nic: 50 GB/s", "gpus: 16, nic: 50"), ("tp: 2, pp", "tpp: 2, pp")))
    assert (error.line, error.key) == (3, "cluster.nic")
    assert error.message.endswith("(and 1 more)")


def test_a_variant_is_named_where_the_base_is_to_blame() -> None:
    error = _error(changed(("trainer: {gpus: 16}, rollout: {gpus: 16}", "trainer: {gpus: 16, pp: 1}")))
    assert error.line == 13
    assert error.key == "rollout.gpus"
    assert "(variant together)" in error.message


def _bomb(first: str, before: str, after: str) -> str:
    """Nine anchors, each ten times in the next: 10^9 values."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{i}: &a{i} {before}{', '.join([f'*a{i - 1}'] * 10)}{after}" for i in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", None, "empty"),
        ("# only a comment\n", None, "empty"),
        ("- a\n- b\n", 1, "not a mapping"),
        ("just text\n", 1, "not a mapping"),
        ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
        ("a: b: c\n", 1, "not valid YAML"),
        ("a:\n\tb: 1\n", 2, "not valid YAML"),
        ("a: *nowhere\n", 1, "not valid YAML"),
        ("a: &x [*x]\n", 1, "an anchor contains itself"),
        ("a: 1\nb: " + "[" * 100_000 + "]" * 100_000, 2, "nested too deeply"),
        ("\n".join(" " * i + "a:" for i in range(1000)), 33, "nested too deeply"),
        ("b: '" + "[" * 50 + "'\na: &x {<<: *x}\n", 2, "nested too deeply"),
        ("a: !!float x\n", 1, "could not convert"),
        ("a: 1\nb: !!int abc\n", 2, "not valid YAML"),
        ("a: \x00\n", None, "not valid YAML"),
        (_bomb("[x, x, x, x, x, x, x, x, x, x]", "[", "]"), 1, "more than 100,000 values"),
        (_bomb("{x: 1}", "{<<: [", "]}"), 1, "more than 100,000 values"),
        ("run: {steps: 1}\nrun: {steps: 2}\n", 2, "duplicate key"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
    ],
)
def test_files_that_are_no_scenarios(text: str, line: int | None, says: str) -> None:
    error = _error(text)
    assert (error.file, error.line) == ("case.yaml", line)
    assert says in error.message


def test_tabs_are_named() -> None:
    assert _error("a:\n\tb: 1\n").fix == "indent with spaces, not tabs"


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(BASE)
    with pytest.raises(UserError, match="no such file") as caught:
        load_scenario(tmp_path / "csae.yaml")
    assert caught.value.fix == str(tmp_path / "case.yaml")
    with pytest.raises(UserError, match="folder"):
        load_scenario(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        load_scenario(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("override", "key", "says", "fix"),
    [
        ("trainer.tpp=4", "trainer.tpp", "unknown key", "tp"),
        ("traner.tp=4", "traner", "unknown key", "trainer"),
        ("cluster.nic=25", "cluster.nic", "has no unit", "50 GB/s"),
        ("async.max_staleness=-1", "async.max_staleness", "-1 is not possible", "≥ 0"),
        ("async.max_staleness=.nan", "async.max_staleness", "not a finite number", "finite"),
    ],
)
def test_mistakes_in_overrides(override: str, key: str, says: str, fix: str) -> None:
    error = _error(BASE, (override,))
    assert error.key == key
    assert says in error.message
    assert fix in str(error.fix)
    if key != "trainer.gpus":
        assert str(error).startswith(f"--set {override.split('=')[0]}: ")


def test_an_override_needs_key_and_value() -> None:
    assert "KEY=VALUE" in _error(BASE, ("trainer.tp",)).message
    assert "not valid YAML" in _error(BASE, ("trainer.tp=[1",)).message


def test_scenario_error_finds_the_line() -> None:
    base, together = loads_scenario(BASE, "case.yaml", ["cluster.nic=25 GB/s"]).variants
    assert str(base.error("trainer.tp", "wrong", "right")) == "case.yaml:12: trainer.tp: wrong. Fix: right"
    assert base.error("rollout[0].attn_tp", "wrong").line == 13
    assert base.error("trainer.etp", "wrong").line == 12  # not written: the block
    assert str(together.error("trainer.gpus", "wrong")) == "case.yaml:16: variants.together.trainer.gpus: wrong"
    assert str(together.error("trainer.tp", "wrong")) == "case.yaml:12: trainer.tp: wrong (variant together)"
    assert base.error("cluster.nic", "wrong").file == "--set cluster.nic"


def test_anchors_and_merge_keys() -> None:
    text = changed(("trainer: {gpus: 16}, rollout: {gpus: 16}", "trainer: &all {gpus: 16}, rollout: {<<: *all}"))
    assert loads_scenario(text).variant("together").rollout[0].gpus == 16
