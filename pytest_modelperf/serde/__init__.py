"""Records to JSON, with the keys that others rely on: a value that could not be had is null."""

from pytest_modelperf.serde.checkups import dump_checkups
from pytest_modelperf.serde.comparison import comparison_to_json, dump_comparison
from pytest_modelperf.serde.profile import dump_profile, profile_to_json
from pytest_modelperf.serde.run import dump_run, run_to_json
from pytest_modelperf.serde.sweep import dump_sweep, sweep_to_json
from pytest_modelperf.serde.values import SCHEMA, Json
from pytest_modelperf.serde.whatif import dump_whatif, whatif_to_json

__all__ = [
    "SCHEMA",
    "Json",
    "comparison_to_json",
    "dump_checkups",
    "dump_comparison",
    "dump_profile",
    "dump_run",
    "dump_sweep",
    "dump_whatif",
    "profile_to_json",
    "run_to_json",
    "sweep_to_json",
    "whatif_to_json",
]
