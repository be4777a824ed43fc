"""The baselines of programs: the names of their folders, and what is read and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.baselines.program import ProgramFigures
from pytest_modelperf.baselines.program_store import (
    program_name,
    program_names,
    program_path,
    read_program,
    remove_program,
    write_program,
)
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.errors import BaselineError, UsageError
from pytest_modelperf.files.names import folder_name, is_safe_name
from tests.support.known import known
from tests.support.stored_programs import TEST, seen_model, seen_of, stored_program

NAME = "tests--test_read.py++test_page"
SEEN = seen_of(
    {"reader.py": b"def read(): ...\n", "tests/test_read.py": b"def test_page(): ...\n"},
    distributions={"magika": "1.0.2"},
    models=(seen_model("rec.onnx", "~/.cache/rec.onnx", b"model"),),
)
PROGRAM = stored_program(SEEN, "0" * 40)


@pytest.mark.parametrize(
    ("test", "name"),
    [
        (TEST, NAME),
        ("test_a.py::TestRead::test_page", "test_a.py+++test+read++test_page"),
        ("test_a.py::test_page[a4-small]", "test_a.py++test_page+-a4-small"),
        ("test_a.py::test_page[a/b]", "test_a.py++test_page+-a--b"),
        ("test_a.py::test_page[-x]", "test_a.py++test_page+-%2dx"),
        ("test_a.py::test_page[a::b]", "test_a.py++test_page+-a%3a%3ab"),
        ("con.py::test_page", "%63on.py++test_page"),
    ],
)
def test_the_folder_of_a_test_is_readable_and_safe(test: str, name: str) -> None:
    assert program_name(test) == name
    assert is_safe_name(name)


@pytest.mark.parametrize("test", ["", "test_a.py", "/a/test_a.py::test_b", "::test_b", "a::\0"])
def test_a_text_that_is_not_the_id_of_a_test_names_no_folder(test: str) -> None:
    with pytest.raises(UsageError, match="cannot name a program"):
        program_name(test)


_PARTS = st.text("aA[]/:+-._%é ", min_size=1, max_size=8)


@given(st.tuples(_PARTS, _PARTS), st.tuples(_PARTS, _PARTS))
def test_different_tests_have_different_folders(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    def named(parts: tuple[str, str]) -> tuple[str, str] | None:
        test = "::".join(parts)
        if test.startswith(("/", "::")):
            return None
        return test, program_name(test)

    first, second = named(one), named(other)
    if first is not None and second is not None:
        assert (first[0] == second[0]) == (first[1] == second[1])
        assert is_safe_name(first[1])


@given(_PARTS, _PARTS)
def test_no_model_has_the_folder_of_a_test(file: str, test: str) -> None:
    if file.startswith(("/", ":")):
        return
    name = program_name(f"{file}::{test}")
    for path in (f"{file}::{test}", f"{file}{test}", file, test.lstrip("/") or "a"):
        try:
            model = folder_name(path)
        except UsageError:
            continue
        assert name != model


def test_written_content_is_read_back(tmp_path: Path) -> None:
    assert write_program(tmp_path, NAME, PROGRAM)
    assert read_program(tmp_path, NAME) == PROGRAM
    assert program_names(tmp_path) == (NAME,)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_the_same_program_is_the_same_bytes(tmp_path: Path) -> None:
    write_program(tmp_path, NAME, PROGRAM)
    path = program_path(tmp_path, NAME)
    before = path.stat().st_mtime_ns, path.read_bytes()
    shuffled = dict(reversed(list(SEEN.files.items())))
    assert not write_program(tmp_path, NAME, replace(PROGRAM, seen=replace(SEEN, files=shuffled)))
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before


def test_a_changed_file_changes_one_line(tmp_path: Path) -> None:
    write_program(tmp_path, NAME, PROGRAM)
    before = program_path(tmp_path, NAME).read_text().splitlines()
    files = {**SEEN.files, "reader.py": "b" * 64}
    assert write_program(tmp_path, NAME, replace(PROGRAM, seen=replace(SEEN, files=files)))
    after = program_path(tmp_path, NAME).read_text().splitlines()
    assert [new for old, new in zip(before, after, strict=True) if old != new] == [
        f'  "reader.py": "{"b" * 64}",'
    ]


def test_figures_are_rounded(tmp_path: Path) -> None:
    write_program(tmp_path, NAME, replace(PROGRAM, figures=ProgramFigures(p50_ms=17.123456789)))
    assert known(read_program(tmp_path, NAME)).figures.p50_ms == 17.1235


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "ends too early"),
        (b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> b\n", "merge conflict was not resolved"),
        (b"[]", "expected an object"),
        (b'{"schema": 99}', "reads up to 1"),
    ],
)
def test_a_broken_file_is_reported_and_never_written_over(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = program_path(tmp_path, NAME)
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(BaselineError, match=problem):
        read_program(tmp_path, NAME)
    with pytest.raises(BaselineError, match=problem):
        write_program(tmp_path, NAME, PROGRAM)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("commit", "HEAD", "commit"),
        ("commit", "0" * 39, "commit"),
        ("commit", "0" * 40 + "\n", "commit"),
        ("commit", "--output=x", "commit"),
        ("further", 1, "further"),
        ("files", {"../x.py": "a" * 64}, "outside of the project"),
        ("files", {"/etc/x": "a" * 64}, "outside of the project"),
        ("files", {"x.py": "a"}, "SHA-256"),
        ("test", "tests/test_read.py::test_other", "its folder should be"),
        ("test", "x", "cannot name a program"),
    ],
)
def test_a_forged_value_is_refused(tmp_path: Path, key: str, value: object, problem: str) -> None:
    write_program(tmp_path, NAME, PROGRAM)
    path = program_path(tmp_path, NAME)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(BaselineError, match=problem):
        read_program(tmp_path, NAME)


def test_no_link_is_followed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "baselines", tmp_path / "elsewhere"
    write_program(elsewhere, NAME, PROGRAM)
    root.mkdir()
    (root / NAME).symlink_to(elsewhere / NAME)
    with pytest.raises(BaselineError, match="is a link"):
        read_program(root, NAME)
    (root / NAME).unlink()
    (root / NAME).mkdir()
    (root / NAME / "program.json").symlink_to(elsewhere / NAME / "program.json")
    with pytest.raises(BaselineError, match="is a link"):
        read_program(root, NAME)
    with pytest.raises(BaselineError, match="is a link"):
        write_program(root, NAME, replace(PROGRAM, commit=None))
    assert read_program(elsewhere, NAME) == PROGRAM


def test_a_folder_without_the_file_has_no_program(tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    assert read_program(tmp_path, "encoder") is None
    assert program_names(tmp_path) == ()
    assert program_names(tmp_path / "missing") == ()


def test_removing_takes_the_folder(tmp_path: Path) -> None:
    write_program(tmp_path, NAME, PROGRAM)
    remove_program(tmp_path, NAME)
    assert list(tmp_path.iterdir()) == []
    remove_program(tmp_path, NAME)


def test_the_store_of_models_passes_programs_by(tmp_path: Path) -> None:
    write_program(tmp_path, NAME, PROGRAM)
    store = BaselineStore(tmp_path)
    store.tidy()
    assert store.names() == ()
    assert store.read(NAME) is None
    assert read_program(tmp_path, NAME) == PROGRAM
