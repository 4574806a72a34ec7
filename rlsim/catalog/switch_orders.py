"""What each framework does with the memory of a shared GPU between training and rollout.

Memory (what stays on the GPU, what lies on the host) and the price of the switch both read these habits here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SwitchOrder:
    """A framework's habits.

    sleep_level        1: the engine's weights are copied to the host and back; 2: they are dropped, the sync
                       brings new ones
    optimizer_pinned   optimizer states go to pinned host memory (a scenario may still say pageable)
    parameters_pinned  parameters too
    moves_gradients    gradients are copied, not dropped
    keeps_parameters   low-precision parameters stay on the GPU whatever the scenario says
    host_copy          a pinned copy of the parameters is the source of the sync, made once per step
    source             where this was read
    """

    sleep_level: int
    optimizer_pinned: bool
    parameters_pinned: bool
    moves_gradients: bool
    keeps_parameters: bool
    host_copy: bool
    source: str

    def pageable(self) -> SwitchOrder:
        """The same habits with pageable host memory."""
        return replace(self, optimizer_pinned=False, parameters_pinned=False)


ORDERS: Mapping[str, SwitchOrder] = {
    "generic": SwitchOrder(2, True, True, False, False, False, "gradients dropped, states pinned, weights dropped"),
    "verl": SwitchOrder(2, True, True, False, False, False, "verl 1dda039: sleep level 2, gradient buffer freed"),
    "verl-megatron": SwitchOrder(
        2,
        False,
        True,
        False,
        False,
        False,
        "verl 1dda039: Megatron optimizer goes to pageable memory by .to('cpu')",
    ),
    "slime": SwitchOrder(
        2,
        True,
        True,
        False,
        False,
        True,
        "slime 624b824: torch_memory_saver, pinned copy of the actor each step",
    ),
    "openrlhf": SwitchOrder(
        1, True, True, True, True, False, "OpenRLHF 3c3be62: ds.enable_sleep, low-precision parameters stay"
    ),
    "nemo-rl": SwitchOrder(
        1,
        True,
        True,
        True,
        False,
        False,
        "NeMo-RL 7ea279a: gradients and optimizer out, vLLM's default sleep level",
    ),
    "areal": SwitchOrder(2, True, True, False, False, False, "AReaL 4aef98d: enable_offload per role"),
    "trl": SwitchOrder(2, True, True, False, True, False, "TRL f2cd577: vLLM sleep level 2, trainer states stay"),
}


def order_of(framework: str, backend: str) -> SwitchOrder:
    """A framework's habits on a trainer back end; `generic` for one that has none of its own."""
    return ORDERS.get(f"{framework}-{backend}", ORDERS.get(framework, ORDERS["generic"]))
