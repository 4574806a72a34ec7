"""Rewards by hand."""

from __future__ import annotations

from validation.minigrpo.task import prompt, reward


def test_reward_is_the_share_of_right_successors() -> None:
    # vocab 16: after 15 comes 1; the end token does not count
    assert reward((3, 14), (15, 1, 2, 0), 16) == 1.0
    assert reward((3, 14), (15, 2, 3, 7, 0), 16) == 0.5  # 15 and 3 (after 2) of four tokens
    assert reward((3, 5), (5, 0), 16) == 0.0


def test_prompts_are_their_numbers_own_and_without_the_end_token() -> None:
    assert prompt(7, 50, 16, 0) == prompt(7, 50, 16, 0) != prompt(8, 50, 16, 0)
    assert set(prompt(7, 500, 16, 0)) == set(range(1, 16))
