"""verl's logs in their formats, and what is no log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlsim.errors import UserError
from rlsim.frameworks import verl_log

LOGS = Path(__file__).parent / "logs"


def test_console_lines_with_prefix_and_colours() -> None:
    log = verl_log.read([LOGS / "gpg_qwen2_7b_megatron.log"])
    assert (len(log.steps), log.steps[0], log.steps[-1]) == (52, 2, 104)
    assert log.column("timing_s/gen")[0] == 50.878  # step 2
    assert log.column("response_length/clip_ratio")[0] == 0.001


def test_lines_of_the_file_logger() -> None:
    log = verl_log.read([LOGS / "gpg_qwen2_7b_fsdp.jsonl"])
    assert (len(log.steps), log.steps[0]) == (70, 1)
    assert log.metrics[0]["timing_s/update_actor"] == 140.568
    assert np.isnan(log.column("timing_s/save_checkpoint")[0])


def test_numpy_values_old_names_and_doubled_prefixes(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        "INFO nothing here\n"
        "step:1 - timing_s/gen:np.float64(12.5) - perf/throughput:1.5e+03 - actor/lr:tensor(1e-06)\n"
        "step:2 - timing/gen:13 - timing_s/timing_s/param_sync:4.25 - response_length/mean:-0.5\n"
    )
    log = verl_log.read([path])
    assert log.column("timing_s/gen").tolist() == [12.5, 13.0]
    assert log.metrics[0]["perf/throughput"] == 1500.0
    assert log.metrics[1]["timing_s/param_sync"] == 4.25


def test_columns_of_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "wandb.csv"
    path.write_text("step,timing_s/gen,timing_s/step,note\n1,10,20,\n2,11,,x\n")
    log = verl_log.read([path])
    assert log.metrics == ({"timing_s/gen": 10.0, "timing_s/step": 20.0}, {"timing_s/gen": 11.0})


def test_lines_of_one_step_belong_together_and_validation_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("step:0 - val/acc:0.1\nstep:1 - timing_s/gen:5\nstep:1 - val/acc:0.2\n")
    log = verl_log.read([path])
    assert log.metrics == ({"timing_s/gen": 5.0, "val/acc": 0.2},)
    assert "1 lines without timers" in log.notes[0]


def test_a_restart_keeps_the_later_steps(tmp_path: Path) -> None:
    lines = [f"step:{s} - timing_s/gen:{10 + s}" for s in range(40)] + ["step:39 - timing_s/gen:7"]
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines))
    log = verl_log.read([path])
    assert log.column("timing_s/gen")[-1] == 7.0
    assert "restart" in log.notes[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello\nworld\n", "not a run's log"),
        ("", "not a run's log"),
        ('{"a": 1}\n{"broken\n', "not a run's log"),
        ("step:1 - actor/loss:0.3 - critic/score:0.1\n", "no timers in the log"),
        ("".join(f"step:{s} - timing_s/gen:{t}\n" for t in (5, 9) for s in range(9)), "more than one run: 9 of 9"),
    ],
)
def test_what_is_no_log_of_one_run(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(text)
    with pytest.raises(UserError, match=says) as caught:
        verl_log.read([path])
    assert caught.value.fix


def test_two_runs_in_two_files(tmp_path: Path) -> None:
    files = [LOGS / "gpg_qwen2_7b_megatron.log", tmp_path / "other.log"]
    files[1].write_text("".join(f"step:{s} - timing_s/gen:1\n" for s in range(2, 106)))
    with pytest.raises(UserError, match="more than one run"):
        verl_log.read(files)
    with pytest.raises(UserError, match="no such file"):
        verl_log.read([tmp_path / "nowhere.log"])
