"""Scenario files: schema, units, variants, overrides, and errors that name file, line and key."""

from rlsim.scenario.dump import dump_yaml, to_dict
from rlsim.scenario.inert import inert_blocks
from rlsim.scenario.load import ScenarioFile, load_scenario, loads_scenario, scenario_from_dict
from rlsim.scenario.schema import Scenario

__all__ = [
    "Scenario",
    "ScenarioFile",
    "dump_yaml",
    "inert_blocks",
    "load_scenario",
    "loads_scenario",
    "scenario_from_dict",
    "to_dict",
]
