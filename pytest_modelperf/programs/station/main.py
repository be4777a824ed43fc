"""Begins a station: takes its standard streams, sets its import paths, and runs pytest."""

from __future__ import annotations

import os
import sys
from typing import IO

from pytest_modelperf.programs.messages import BEGINNINGS, Begin, read_message
from pytest_modelperf.programs.station.reads import Reads
from pytest_modelperf.programs.trees import SideFinder, SideTree
from pytest_modelperf.systems.process import OWN_PROCESS

_PYTHONPATH = "PYTHONPATH"


def main() -> None:
    orders, answers = _take_streams()
    begin = read_message(orders, BEGINNINGS)
    if begin is None:
        # The parent has ended.
        return
    place = begin.place
    tree = SideTree(place.tree, place.worktree)
    _set_import_paths(begin, tree)
    reads = Reads(tree, place.scratch)
    reads.begin()
    # A station may be paused, and should end with the parent even then.
    OWN_PROCESS.settle()
    if place.cores is not None:
        OWN_PROCESS.use_processors(place.cores)
    sys.argv = ["pytest", place.test]
    # Imported here: this imports pytest, which is found by the import paths.
    from pytest_modelperf.programs.station.pytest_run import run_test
    from pytest_modelperf.programs.station.served import ServedTest
    from pytest_modelperf.programs.station.serving import Pipe
    from pytest_modelperf.tracing.first_import import when_imported

    test = ServedTest(begin, Pipe(orders, answers), tree, reads)
    when_imported("onnxruntime", test.sessions.wrap_runtime)
    run_test(test, tree)


def _take_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Standard input and output for the messages; the program has the null device and the log."""
    orders = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return orders, answers


def _set_import_paths(begin: Begin, tree: SideTree) -> None:
    place = begin.place
    given = sys.path if place.sys_path is None else place.sys_path
    sys.path[:] = tree.import_paths(given, place.paths)
    inherited = os.environ.get(_PYTHONPATH, "").split(os.pathsep)
    for_children = tree.import_paths(inherited, place.paths)
    if for_children:
        os.environ[_PYTHONPATH] = os.pathsep.join(for_children)
    if tree.is_other:
        sys.meta_path.insert(0, SideFinder(tree))


if __name__ == "__main__":
    main()
