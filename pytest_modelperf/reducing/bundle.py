"""The folder or archive of a reduced pair, put into its place once all of it is there."""

from __future__ import annotations

from pytest_modelperf.files.folders import write_folder
from pytest_modelperf.graph.run_plan import write_run
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.reducing.files import PairFiles
from pytest_modelperf.reducing.readme import write_readme
from pytest_modelperf.reducing.records import Reduction
from pytest_modelperf.reducing.repro import write_repro


def deliver(found: Reduction, files: PairFiles, target: str, machine: MachineFacts) -> None:
    """Complete the files of a pair by the programs and the README, and put them into their place.

    A name that ends in `.zip` is an archive. Weights that were drawn for an earlier pair go.
    """
    write_run(files.plan, files.folder)
    texts = {
        "README.md": write_readme(found, machine),
        "repro.py": write_repro(is_upgrade=found.is_upgrade),
    }
    contents = {path.name: path.read_bytes() for path in sorted(files.folder.iterdir())}
    write_folder(
        contents | {name: text.encode() for name, text in texts.items()},
        target,
        stale=[model.weights_file for model in files.plan.models],
    )
