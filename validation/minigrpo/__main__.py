"""`python -m validation.minigrpo --placement async --steps 50`: train for real, print rewards and stage times."""

from __future__ import annotations

import argparse

from validation.minigrpo.driver import STAGES, Driver, Step
from validation.minigrpo.setting import PLACEMENTS, setting
from validation.minigrpo.world import world


def main() -> None:
    parser = argparse.ArgumentParser(prog="validation.minigrpo")
    parser.add_argument("--placement", choices=PLACEMENTS, default="colocated")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.4, help="of a core to each of the four devices; 0: no limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=4e-3)
    run(parser.parse_args())


def run(options: argparse.Namespace) -> None:
    """One real run."""
    one = setting(options.placement, options.seed, options.lr)
    with world(one, options.share or None) as processes:
        driver = Driver(processes, one)
        print("step  reward    gap  weight  stale   step s " + " ".join(f"{name:>12}" for name in STAGES))
        for i, step in enumerate(driver.run(options.steps)):
            print(line(i, step))


def line(number: int, step: Step) -> str:
    stages = " ".join(f"{1e3 * step.phases[name]:9.0f} ms" for name in STAGES)
    late = f"{step.staleness[0]:4.1f}/{step.staleness[1]}"
    return f"{number:4d}  {step.reward:6.3f} {step.gap:6.4f}  {step.weight:6.3f} {late:>6} {step.seconds:8.2f} {stages}"


if __name__ == "__main__":
    main()
