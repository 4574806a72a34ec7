"""Engine geometry, `gpus_per_engine = pp·attn_tp·attn_dp = pp·moe_tp·moe_ep`, from the part that is written.

`tp: n` is short for attn_tp = moe_tp = n; with `ep: e`, moe_ep = e and moe_tp = n/e.
"""

from __future__ import annotations

from typing import Any

from rlsim.scenario.quantity import MistakeError

LONG = ("attn_tp", "attn_dp", "moe_tp", "moe_ep")


def engine_geometry(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with attn_tp, attn_dp, moe_tp and moe_ep all set and without `tp` and `ep`.

    Values that are no positive whole numbers are left for the schema to refuse.
    """
    given = {key: entry[key] for key in ("tp", "ep", *LONG) if entry.get(key) is not None}
    if any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in given.values()):
        return entry
    rest = {key: value for key, value in entry.items() if key not in given and key not in ("tp", "ep")}
    return {**rest, **_solve(given)}


def _solve(given: dict[str, int]) -> dict[str, int]:
    if "tp" in given:
        clash = [key for key in LONG if key in given]
        if clash:
            raise MistakeError(
                f"tp is short for attn_tp and moe_tp, but {clash[0]} is given too",
                f"one way of writing it (in a variant, `{clash[0]}: null` deletes the inherited key)",
            )
        tp, ep = given["tp"], given.get("ep", 1)
        if tp % ep:
            raise MistakeError(f"ep {ep} does not divide tp {tp}", "moe_tp = tp/ep is a whole number")
        return {"attn_tp": tp, "attn_dp": 1, "moe_tp": tp // ep, "moe_ep": ep}
    if "ep" in given:
        if "moe_ep" in given:
            raise MistakeError("ep is short for moe_ep, but moe_ep is given too", "one of them")
        given = {**given, "moe_ep": given["ep"]}
    attention = given.get("attn_tp", 1) * given.get("attn_dp", 1)
    experts = given.get("moe_tp", 1) * given.get("moe_ep", 1)
    attn_tp, attn_dp = given.get("attn_tp", 1), given.get("attn_dp", 1)
    moe_tp, moe_ep = given.get("moe_tp", 1), given.get("moe_ep", 1)
    if "moe_tp" not in given and attention % moe_ep == 0 and ("attn_tp" in given or attention >= moe_ep):
        moe_tp = attention // moe_ep
    elif "moe_ep" not in given and "moe_tp" in given and attention % moe_tp == 0 and attention >= moe_tp:
        moe_ep = attention // moe_tp
    elif "attn_tp" not in given and experts % attn_dp == 0:
        attn_tp = experts // attn_dp
    if attn_tp * attn_dp != moe_tp * moe_ep:
        raise MistakeError(
            f"attn_tp·attn_dp = {attn_tp}·{attn_dp} = {attn_tp * attn_dp}, "
            f"but moe_tp·moe_ep = {moe_tp}·{moe_ep} = {moe_tp * moe_ep}",
            "both products are the GPUs of one pipeline stage of an engine",
        )
    return {"attn_tp": attn_tp, "attn_dp": attn_dp, "moe_tp": moe_tp, "moe_ep": moe_ep}
