"""The folder or archive of a reduced pair, put into its place once all of it is there."""

from __future__ import annotations

from pytest_modelperf.files.folders import write_folder
from pytest_modelperf.graph.run_plan import PLAN_FILE, PROGRAM_FILE, write_run
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE
from pytest_modelperf.reducing.files import PairFiles
from pytest_modelperf.reducing.readme import write_readme
from pytest_modelperf.reducing.records import Reduction
from pytest_modelperf.reducing.repro import write_repro

_README_FILE, _REPRO_FILE = "README.md", "repro.py"
# The files that are written into a folder, or removed from it.
REPLACED_FILES = (
    _README_FILE, _REPRO_FILE, PROGRAM_FILE, PLAN_FILE,
    *(f"{side}.{kind}" for side in (BEFORE, AFTER) for kind in ("onnx", "weights")),
)  # fmt: skip


def deliver(found: Reduction, files: PairFiles, target: str, machine: MachineFacts) -> None:
    """Complete the files of a pair by the programs and the README, and put them into their place.

    A name that ends in `.zip` is an archive. Weights that were drawn for an earlier pair go.
    """
    write_run(files.plan, files.folder)
    texts = {
        _README_FILE: write_readme(found, machine),
        _REPRO_FILE: write_repro(is_upgrade=found.is_upgrade),
    }
    contents = {path.name: path.read_bytes() for path in sorted(files.folder.iterdir())}
    write_folder(
        contents | {name: text.encode() for name, text in texts.items()},
        target,
        stale=[model.weights_file for model in files.plan.models],
    )
