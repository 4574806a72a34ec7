"""What a scenario's workload may get wrong that only its trace or its fitted distributions show."""

from __future__ import annotations

from rlsim.distributions import UnreachableError
from rlsim.scenario.schema import Scenario
from rlsim.workload import growth, length_model, rewards_from_trace


def check_workload(s: Scenario) -> None:
    """Raises `UserError` at the key that is wrong."""
    _rewards_have_a_time(s)
    _drift_stays_below_the_cap(s)


def _rewards_have_a_time(s: Scenario) -> None:
    """Sandboxes and models take what the scenario, or the trace of the responses, says; never both."""
    reward, observed = s.workload.reward, rewards_from_trace(s.workload)
    simulated = reward.kind == "model" and s.roles.reward_model is not None
    if reward.kind in ("sandbox", "model") and reward.seconds is None and not observed and not simulated:
        message = f"a {reward.kind} reward needs seconds, and the trace has no column reward_seconds"
        raise s.error("workload.reward", message, "for example seconds: 2 s")
    if observed and reward.timeout is not None:
        raise s.error(
            "workload.reward.timeout",
            "reward_seconds of the trace are what rewards took in all, time-outs and retries included",
            "delete timeout and retries, or give seconds",
        )


def _drift_stays_below_the_cap(s: Scenario) -> None:
    """The longest mean of the run can be reached under the cap, which stays."""
    drift = s.workload.drift
    if drift is None:
        return
    last = s.run.steps - 1
    step = max((0, last, *(at for at in drift.table or {} if at < last)), key=lambda at: growth(drift, at))
    try:
        length_model(s.workload.response_tokens).times(growth(drift, step))
    except UnreachableError as error:
        raise s.error("workload.drift", f"at step {step} {error.message}", error.fix) from None
