"""A project with a model, in one tree or two, and stations in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_modelperf.programs.messages import Side, StationPlace
from pytest_modelperf.programs.sides import SideStation
from tests.support.project import write_dense

_IMPORTS = "import numpy as np\nimport onnxruntime as ort\n"


class Project:
    """The files of a project, written into the work tree and the tree of an older commit."""

    def __init__(self, folder: Path, *, stations: list[SideStation]) -> None:
        self.folder = folder
        self.worktree = folder / "work"
        self.older = folder / "older"
        self._stations = stations
        for tree in (self.worktree, self.older):
            write_dense(tree / "model.onnx")

    def write(self, files: Mapping[str, str], *, older: Mapping[str, str] | None = None) -> None:
        for tree, texts in (
            (self.worktree, files),
            (self.older, files if older is None else older),
        ):
            for name, text in texts.items():
                path = tree / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(dedent(text), "utf-8")

    def start(
        self,
        test: str = "test_it",
        side: Side = "after",
        *,
        options: Mapping[str, object] | None = None,
        sys_path: tuple[str, ...] = (),
        paths: tuple[str, ...] = (),
    ) -> SideStation:
        """Start a station for a test of `test_program.py`."""
        tree = self.worktree if side == "after" else self.older
        station = SideStation(
            StationPlace(
                side=side,
                tree=str(tree),
                worktree=str(self.worktree),
                test=test if ".py" in test else f"test_program.py::{test}",
                python=sys.executable,
                options={"plugins": ["pytest_modelperf.plugin"], **(options or {})},
                sys_path=(*sys_path, *(each for each in sys.path if each)),
                paths=paths,
                scratch=str(self.folder / f"scratch-{len(self._stations)}"),
            )
        )
        self._stations.append(station)
        return station

    def reach(self, text: str, test: str = "test_it", **files: str) -> SideStation:
        """Start a station for a test with this text, and wait for the call."""
        self.write({"test_program.py": f"{_IMPORTS}{text}", **files})
        station = self.start(test)
        station.wait_reached()
        return station


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    # Other plugins take a second to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    stations: list[SideStation] = []
    yield Project(tmp_path, stations=stations)
    for station in stations:
        station.kill()
