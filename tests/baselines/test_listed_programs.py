"""Programs among the baselines of a folder: listed, compared with a commit, and pruned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.program import ProgramFigures, ProgramSources
from pytest_modelperf.baselines.program_store import (
    program_name,
    program_names,
    program_path,
    write_program,
)
from tests.support.command import run
from tests.support.repository import needs_git
from tests.support.stored_programs import (
    TEST,
    ProgramRepository,
    isolate_git,
    seen_model,
    seen_of,
    stored_program,
)

pytest_plugins = ("pytester",)

STORED = stored_program(seen_of({"reader.py": b""}), "a" * 40)
NAME = program_name(TEST)


def test_programs_are_listed(tmp_path: Path) -> None:
    write_program(tmp_path, NAME, STORED)
    result = run("baselines", "--dir", str(tmp_path))
    assert result.exit_code == 0
    assert f"1 baseline in {tmp_path}" in result.out
    (line,) = (line for line in result.out.splitlines() if TEST in line)
    assert line.split() == [TEST, "a" * 12, "3", "17.25", "ms", "2026-11-29"]


def test_the_list_as_json_has_the_programs(tmp_path: Path) -> None:
    write_program(tmp_path, NAME, STORED)
    (found,) = json.loads(run("baselines", "--dir", str(tmp_path), "--json", "-").out)["programs"]
    assert found == {
        "name": NAME,
        "test": TEST,
        "commit": "a" * 40,
        "recorded": "2026-11-29T07:00:00+00:00",
        "machine": "linux-x86_64-icelake-2c",
        "p50_ms": 17.25,
    }


def test_a_broken_program_is_named(tmp_path: Path) -> None:
    write_program(tmp_path, NAME, STORED)
    program_path(tmp_path, NAME).write_text("{")
    result = run("baselines", "--dir", str(tmp_path))
    assert result.exit_code == 2
    assert f"broken {NAME}" in result.out


@needs_git
def test_a_changed_program_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_git(tmp_path, monkeypatch)
    repository = ProgramRepository(tmp_path / "repository")
    repository.record(STORED)
    repository.record(stored_program(STORED.seen, "a" * 40, "test_same.py::test_same"))
    repository.commit("first")
    repository.record(replace(STORED, commit="b" * 40, figures=ProgramFigures(p50_ms=20.5)))
    repository.record(stored_program(STORED.seen, "c" * 40, "test_new.py::test_new"))
    result = run("baselines", "--dir", str(repository.path / "baselines"), "--diff", "HEAD")
    assert result.exit_code == 0
    assert "2 of 3 baselines" in result.out
    text = " ".join(result.out.split())
    assert f"changed {TEST}" in text
    assert "commit aaaaaaaaaaaa → bbbbbbbbbbbb; p50 17.25 ms → 20.50 ms" in text
    assert "new test_new.py::test_new" in text
    assert "test_same" not in text


@needs_git
@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            seen_of({"reader.py": b"1"}, distributions={"magika": "1.0.3", "onnx": "1.19.0"}),
            "now imports magika 1.0.3, now imports onnx 1.19.0; other content of reader.py",
        ),
        (seen_of({"reader.py": b""}, python="3.12.1"), "Python 3.11.9 → 3.12.1"),
        (
            seen_of({"reader.py": b""}, models=(seen_model("rec.onnx", "rec.onnx", b"1"),)),
            "other content of rec.onnx",
        ),
    ],
)
def test_a_line_has_what_a_program_reads_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: ProgramSources, words: str
) -> None:
    isolate_git(tmp_path, monkeypatch)
    monkeypatch.setenv("COLUMNS", "200")
    repository = ProgramRepository(tmp_path / "repository")
    repository.record(STORED)
    repository.commit("first")
    repository.record(replace(STORED, seen=seen))
    result = run("baselines", "--dir", str(repository.path / "baselines"), "--diff", "HEAD")
    assert result.out.splitlines()[-1] == f"changed {TEST}: {words}"


@needs_git
def test_sessions_with_other_options_are_a_change_although_the_counts_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate_git(tmp_path, monkeypatch)
    repository = ProgramRepository(tmp_path / "repository")
    repository.record(STORED)
    repository.commit("first")
    (session,) = STORED.work.sessions
    sessions = (replace(session, options={"intra_op_num_threads": "8"}),)
    repository.record(replace(STORED, work=replace(STORED.work, sessions=sessions)))
    result = run("baselines", "--dir", str(repository.path / "baselines"), "--diff", "HEAD")
    assert "sessions with other models, options or inputs" in " ".join(result.out.split())


PROJECT = """
def test_page(modelperf):
    pass
"""


def test_a_program_without_a_test_is_pruned(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_read=PROJECT)
    root = pytester.path / "baselines"
    kept, gone = "test_read.py::test_page", "test_read.py::test_gone"
    for test in (kept, gone):
        write_program(root, program_name(test), stored_program(STORED.seen, "a" * 40, test))
    pytester.runpytest("--modelperf", "--modelperf-json=run.json")
    run_document = json.loads((pytester.path / "run.json").read_text())
    assert run_document["baselines"]["unused"] == [f"{program_name(gone)}: {gone}"]
    assert program_names(root) == tuple(sorted(map(program_name, (kept, gone))))
    # A run of some tests does not know.
    pytester.runpytest("--modelperf", "--modelperf-prune", "-k", "gone")
    assert len(program_names(root)) == 2
    result = pytester.runpytest("--modelperf", "--modelperf-prune")
    result.stdout.fnmatch_lines([f"*removed the baseline of {gone}*"])
    assert program_names(root) == (program_name(kept),)
