"""GRPO's arithmetic on numbers worked out by hand."""

from __future__ import annotations

import math

import torch

from validation.minigrpo.loss import clipped_loss, group_advantages, truncated_weights


def test_advantages_are_within_the_group() -> None:
    # group 1: mean 2, squared deviations 1 + 0 + 1 over n - 1 = 2, std 1; group 2: all alike
    found = group_advantages(torch.tensor([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]), eps=0.0 + 1e-12)
    torch.testing.assert_close(found, torch.tensor([[-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))


def test_weights_are_ratios_up_to_the_cap() -> None:
    trainer = torch.log(torch.tensor([0.5, 0.2, 0.9]))
    engine = torch.log(torch.tensor([0.4, 0.4, 0.3]))
    # 0.5/0.4, 0.2/0.4, and 0.9/0.3 = 3 above the cap
    torch.testing.assert_close(truncated_weights(trainer, engine), torch.tensor([1.25, 0.5, 2.0]))


def test_the_clip_holds_where_the_ratio_has_gone_far_enough() -> None:
    new = torch.tensor([math.log(1.5), math.log(0.5), math.log(1.5)], requires_grad=True)
    advantage, weight = torch.tensor([1.0, -1.0, -1.0]), torch.tensor([1.0, 1.0, 0.5])
    # min(1.5, 1.2) = 1.2; min(-0.5, -0.8) = -0.8; half of min(-1.5, -1.2) = -0.75
    loss = clipped_loss(new, torch.zeros(3), advantage, weight)
    torch.testing.assert_close(loss.detach(), torch.tensor(-(1.2 - 0.8 - 0.75)))
    loss.backward()
    # only the third still pulls: d(0.5 · ratio)/d log-prob = 0.75
    torch.testing.assert_close(new.grad, torch.tensor([0.0, 0.0, 0.75]))
