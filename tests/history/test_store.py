"""The files of a history: nothing is lost, and broken lines are skipped with a note."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.history.records import ChainedLine, FiguresLine, HistoryLine, P50Line, P95Line
from pytest_modelperf.history.store import MAX_LINE_BYTES, HistoryFile, HistoryStore
from tests.history.lines import commit_of, make_line


def file_in(folder: Path) -> HistoryFile:
    return HistoryStore(folder).file("models--encoder", "linux-x86_64-2c")


@given(
    texts=st.lists(st.text(max_size=20), max_size=3),
    ratio=st.floats(min_value=1e-6, max_value=1e6),
    error=st.floats(min_value=0, max_value=1),
    day=st.integers(min_value=0, max_value=10_000),
)
def test_a_line_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], ratio: float, error: float, day: int
) -> None:
    line = make_line(day, ratio, error, reasons=tuple(texts))
    file = file_in(tmp_path_factory.mktemp("history"))
    file.append([line])
    file.append([line])
    assert list(file.read(HistoryLine)) == [line, line]
    assert file.notes == []


def test_lines_go_to_the_files_of_their_models_and_machines(tmp_path: Path) -> None:
    other = msgspec.structs.replace(make_line(), model="other", machine="linux-arm-4c")
    store = HistoryStore(tmp_path)
    store.append([make_line(1), other, make_line(2)])
    found = [str(file.path.relative_to(tmp_path)) for file in store.files()]
    assert found == ["models--encoder/linux-x86_64-2c.jsonl", "other/linux-arm-4c.jsonl"]
    assert [file.machine for file in store.files("other")] == ["linux-arm-4c"]
    assert list(file_in(tmp_path).read(HistoryLine)) == [make_line(1), make_line(2)]


@given(data=st.data())
def test_a_torn_line_is_skipped_with_a_note_and_the_next_write_mends_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = file_in(tmp_path_factory.mktemp("history"))
    file.append([make_line(1), make_line(2)])
    first = msgspec.json.encode(make_line(1))
    whole = file.path.read_bytes()
    kept = data.draw(st.integers(min_value=len(first) + 2, max_value=len(whole) - 3))
    file.path.write_bytes(whole[:kept])
    assert list(file.read(HistoryLine)) == [make_line(1)]
    assert file.notes == [f"{file.path}: line 2 skipped, incomplete, or not a line of a history"]
    file.append([make_line(3)])
    assert list(file.read(HistoryLine)) == [make_line(1), make_line(3)]
    assert file.path.read_bytes().endswith(b"\n")


def test_a_line_without_only_its_line_break_is_whole(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.append([make_line(1)])
    file.path.write_bytes(file.path.read_bytes()[:-1])
    file.append([make_line(2)])
    assert list(file.read(HistoryLine)) == [make_line(1), make_line(2)]
    assert file.notes == []


def test_runs_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    def write(worker: int) -> None:
        for day in range(50):
            file_in(tmp_path).append([make_line(50 * worker + day)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    file = file_in(tmp_path)
    commits = sorted(line.commit or "" for line in file.read(HistoryLine))
    assert commits == [commit_of(day) for day in range(200)]
    assert file.notes == []


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (b'{"schema": 2, "date": 7}', "written by a newer version: upgrade pytest-modelperf"),
        (b'{"schema": 1}', "incomplete, or not a line of a history"),
        (b"\xff\xfe", "incomplete, or not a line of a history"),
        (b"[" * 100_000, "incomplete, or not a line of a history"),
        (b"<<<<<<< HEAD", "incomplete, or not a line of a history"),
    ],
)
def test_a_foreign_line_is_skipped_with_a_note(tmp_path: Path, text: bytes, note: str) -> None:
    file = file_in(tmp_path)
    file.append([make_line(1)])
    file.path.write_bytes(text + b"\n\n" + file.path.read_bytes())
    assert list(file.read(HistoryLine)) == [make_line(1)]
    assert file.notes == [f"{file.path}: line 1 skipped, {note}"]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("confidence", 1e-17, "p50.confidence: expected float >= 0.5"),
        ("confidence", 1 - 1e-16, "p50.confidence: expected float <= 0.999999999999"),
        ("low", 1e-300, "p50.low: expected float >= 1e-09"),
        ("ratio", "1", "p50.ratio: expected float, got str"),
    ],
)
def test_a_line_with_a_figure_out_of_bounds_is_skipped_and_its_key_named(
    tmp_path: Path, key: str, value: object, problem: str
) -> None:
    """Else a quantile of the confidence, or a logarithm of the ratio, would end the listing."""
    file = file_in(tmp_path)
    file.append([make_line(1)])
    line = msgspec.json.decode(file.path.read_bytes())
    line["p50"][key] = value
    file.path.write_bytes(file.path.read_bytes() + msgspec.json.encode(line) + b"\n")
    assert [each.commit for each in file.read(P50Line)] == [commit_of(1)]
    assert file.notes == [f"{file.path}: line 2 skipped, {problem}"]


def test_a_count_below_zero_is_skipped_and_its_key_named(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.append([make_line(1, macs=-5)])
    assert list(file.read(FiguresLine)) == []
    assert file.notes == [f"{file.path}: line 1 skipped, figures.macs: expected int >= 0"]


def test_unknown_keys_of_a_line_are_ignored(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.append([make_line(1)])
    text = file.path.read_text("utf-8")
    file.path.write_text(text.replace('{"schema"', '{"later":1,"schema"'), "utf-8")
    assert list(file.read(HistoryLine)) == [make_line(1)]


def test_a_link_is_neither_read_nor_written(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_text("mine")
    file = file_in(tmp_path / "history")
    file.path.parent.mkdir(parents=True)
    file.path.symlink_to(target)
    with pytest.raises(OutputError, match="cannot write"):
        file.append([make_line()])
    with pytest.raises(UsageError, match="cannot be read"):
        list(file.read(HistoryLine))
    assert target.read_text() == "mine"


def test_a_pipe_is_neither_waited_for_nor_read(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.path.parent.mkdir(parents=True)
    os.mkfifo(file.path)
    with pytest.raises(OutputError, match="Not a file"):
        file.append([make_line()])
    with pytest.raises(UsageError, match="Not a file"):
        list(file.read(HistoryLine))


@pytest.mark.parametrize("model", [None, "models--encoder", "../other"])
def test_the_error_of_a_missing_history_names_the_command_that_writes_one(
    tmp_path: Path, model: str | None
) -> None:
    with pytest.raises(UsageError, match=r"--modelperf-history|cannot be a folder"):
        HistoryStore(tmp_path / "history").files(model)


def test_a_line_may_lack_its_explanations_and_its_run_alone() -> None:
    whole = msgspec.to_builtins(make_line())
    for key in set(whole) - {"reasons", "unlinked", "run_url"}:
        without = {name: value for name, value in whole.items() if name != key}
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(without, HistoryLine)


def test_a_newer_version_may_judge_by_something_that_has_another_word(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.append([make_line(how="duet"), make_line(how="another"), make_line(how=None)])
    assert [line.how for line in file.read(HistoryLine)] == ["duet", "another", None]
    assert file.notes == []


@pytest.mark.parametrize("lines", [0, 1, 700])
def test_reading_the_lines_hashes_the_whole_content(tmp_path: Path, lines: int) -> None:
    """Also a torn last line, and a file that is larger than what is read at once."""
    file = file_in(tmp_path)
    file.append(make_line(day) for day in range(lines))
    with file.path.open("ab") as opened:
        opened.write(b'{"schema":1')
    hasher = hashlib.sha256()
    again = hashlib.sha256()
    assert len(list(file.read(HistoryLine, hasher))) == lines
    file.add_to(again)
    whole = hashlib.sha256(file.path.read_bytes())
    assert hasher.digest() == again.digest() == whole.digest()
    assert file.has_bytes(1 << 18) == (lines == 700)


@pytest.mark.parametrize("place", [0, 1, 350, 699, 700])
def test_a_broken_line_is_named_wherever_it_is(tmp_path: Path, place: int) -> None:
    """The file is larger than what is decoded at once, and has an empty line."""
    file = file_in(tmp_path)
    stored = [msgspec.json.encode(make_line(day)) for day in range(700)]
    file.append_raw([b"", *stored[:place], b'{"schema": 7}', *stored[place:], b"{"])
    assert list(file.read(HistoryLine)) == [make_line(day) for day in range(700)]
    newer = "written by a newer version: upgrade pytest-modelperf"
    broken, skipped = file.notes
    assert broken.startswith(f"{file.path}: line 703 skipped, ")
    assert skipped == f"{file.path}: line {place + 2} skipped, {newer}"


def test_a_line_that_is_too_long_is_skipped_and_reported_once(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.append_raw([msgspec.json.encode("x" * (3 * MAX_LINE_BYTES))])
    file.append([make_line(1)])
    assert list(file.read(HistoryLine)) == [make_line(1)]
    (note,) = file.notes
    assert note.startswith(f"{file.path}: line 1 skipped, ")


@pytest.mark.parametrize("line_type", [P50Line, P95Line, FiguresLine])
def test_a_part_of_a_line_has_what_the_whole_line_has(
    tmp_path: Path, line_type: type[ChainedLine]
) -> None:
    file = file_in(tmp_path)
    file.append([make_line(1, reasons=("because",))])
    (whole,), (part,) = file.read(HistoryLine), file.read(line_type)
    fields = line_type.__struct_fields__
    assert [getattr(part, name) for name in fields] == [getattr(whole, name) for name in fields]
