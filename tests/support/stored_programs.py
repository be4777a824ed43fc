"""Baselines of programs, and repositories that have the program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_modelperf.baselines.program import (
    CallWork,
    InferenceWork,
    ProgramFigures,
    ProgramSources,
    SeenModel,
    SessionWork,
    StoredProgram,
    StoredRow,
)
from pytest_modelperf.baselines.program_store import program_name, program_path, write_program
from tests.support.project import write_dense
from tests.support.repository import git

TEST = "tests/test_read.py::test_page"
READER = """\
import numpy as np
import onnxruntime as ort

class Reader:
    def __init__(self, path):
        self.path = path
        self.session = ort.InferenceSession(path)

    def read(self, rows):
        return self.session.run(None, {"x": np.ones((rows, 3), np.float32)})
"""


def seen_of(files: Mapping[str, bytes], **others: Any) -> ProgramSources:  # noqa: ANN401  # its other fields
    digests = {place: sha256(content).hexdigest() for place, content in files.items()}
    facts = {"distributions": {}, "models": (), "python": "3.11.9", **others}
    return ProgramSources(files=digests, **facts)


def stored_program(
    seen: ProgramSources, commit: str | None = None, test: str = TEST
) -> StoredProgram:
    session = SessionWork(
        model="rec.onnx",
        sha256="a" * 64,
        options={"intra_op_num_threads": "1"},
        inferences=(InferenceWork(inputs=("x: 1x3 float32",), count=3, macs=12),),
    )
    return StoredProgram(
        test=test,
        commit=commit,
        recorded="2026-11-29T07:00:00+00:00",
        machine="linux-x86_64-icelake-2c",
        seen=seen,
        work=CallWork(sessions=(session,)),
        figures=ProgramFigures(p50_ms=17.25, peak_rss_bytes=4096),
        rows=(StoredRow(name="rec.onnx", calls=3.0, ms=12.5),),
    )


def seen_model(name: str, path: str | None, content: bytes) -> SeenModel:
    return SeenModel(name=name, path=path, sha256=sha256(content).hexdigest())


class ProgramRepository:
    """A repository with a program, and the baseline of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        git(path, "init", "--quiet", "--initial-branch=main")

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def commit(self, title: str, files: Mapping[str, bytes] | None = None) -> str:
        """Write the files; return the id of the commit that has them."""
        self.write(files or {})
        git(self.path, "add", "--all")
        git(self.path, "commit", "--quiet", "--allow-empty", "--message", title)
        return git(self.path, "rev-parse", "HEAD")

    def record(self, stored: StoredProgram) -> Path:
        """Store a baseline in the work tree; return its file."""
        root, name = self.path / "baselines", program_name(stored.test)
        write_program(root, name, stored)
        return program_path(root, name)


def reader_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tests: str
) -> ProgramRepository:
    """The working folder, a repository of a program that runs, with its model and tests."""
    monkeypatch.setenv("MODELPERF_CACHE_DIR", str(folder / "cache"))
    made = ProgramRepository(folder / "project")
    write_dense(made.path / "model.onnx")
    files = {
        "reader.py": READER,
        "test_read.py": dedent(tests),
        ".gitignore": "__pycache__\n.pytest_cache\nrun.json\n",
    }
    made.commit("First", {name: text.encode() for name, text in files.items()})
    monkeypatch.chdir(made.path)
    return made


def isolate_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the settings of the user who runs the tests."""
    for name in tuple(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.resolve()))
