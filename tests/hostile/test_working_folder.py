"""A Python file next to a model is not imported by the worker that runs the model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import start_worker

# The second two are imported by what runs in the worker, before it can say where not to look.
MODULES = ("numpy", "onnxruntime", *(("random", "platform") if sys.version_info >= (3, 11) else ()))


def test_a_worker_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's project may have a `numpy.py` at its top, and one's own a `random.py`."""
    marker = tmp_path / "imported"
    project = tmp_path / "project"
    project.mkdir()
    for name in MODULES:
        (project / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    setup = Setup()

    with start_worker(setup, cores=1) as worker:
        described = worker.use_engine(setup.engine, {})

    assert described["version"]
    assert not marker.exists()
