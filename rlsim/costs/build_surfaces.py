"""Price the engines of the shipped scenarios: `python -m rlsim.costs.build_surfaces [FILE...]`.

Writes `data/surface-*.npz`, to be run again when tables, fits, catalog figures or the composition of a step change.
Files of engines that no scenario uses any more are deleted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rlsim.costs import rollout, surface_table
from rlsim.costs.kernels import kernels_for
from rlsim.scenario.load import load_scenario
from rlsim.system import resolve

SCENARIOS = Path(__file__).parent.parent.parent / "scenarios"


def main(files: list[str]) -> None:
    """One stored table per distinct engine over all variants of `files` (default: every shipped scenario)."""
    written: set[Path] = set()
    for file in files or sorted(str(p) for p in SCENARIOS.glob("*.yaml")):
        for scenario in load_scenario(file).variants:
            system = resolve(scenario)
            for part in system.rollout:
                mode = scenario.costs.kernels
                for one in rollout.priced_shapes(system, part):
                    limits = (one.max_num_seqs, one.max_tokens)
                    name = surface_table.key(part.pool.gpu, part.entry.engine, one.shape, *limits, mode)
                    path = surface_table.SHIPPED / f"surface-{name[:20]}.npz"
                    if path not in written:
                        k = kernels_for(part.pool.gpu, part.entry.engine, roofline_only=mode == "roofline")
                        surface_table.save(surface_table.build(k, one.shape, *limits), name, path)
                        written.add(path)
                        print(f"{Path(file).name} {scenario.variant}: {path.name} {path.stat().st_size} bytes")
    if not files:
        for path in set(surface_table.SHIPPED.glob("surface-*.npz")) - written:
            path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
