"""The index of large files: it lists what the files say, whatever happened to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_modelperf.history.records import (
    LISTED_POINTS,
    ChainedLine,
    History,
    HistoryLine,
    HistoryMetric,
)
from pytest_modelperf.history.report import history_report
from pytest_modelperf.history.store import (
    FoundCases,
    Hasher,
    HistoryFile,
    HistoryIndex,
    HistoryStore,
)
from pytest_modelperf.history.summary import HistoryQuery, read_history
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from tests.history.lines import make_line

RUNS = 60
Line = TypeVar("Line", bound=ChainedLine)


@pytest.fixture
def file(tmp_path: Path) -> HistoryFile:
    store = HistoryStore(tmp_path / "history")
    store.append(make_line(day, 1.0 if day < 40 else 1.1) for day in range(RUNS))
    (found,) = store.files()
    return found


def listed(file: HistoryFile, query: HistoryQuery | None = None) -> tuple[History, bool]:
    """Return what the index lists, and whether it read the lines for it."""
    root = file.path.parent.parent
    index = HistoryIndex(root.parent / "index", least_bytes=1)
    read: list[Path] = []

    class CountingFile(HistoryFile):
        def read(self, line_type: type[Line], hasher: Hasher | None = None) -> Iterator[Line]:
            read.append(self.path)
            return super().read(line_type, hasher)

    class CountingStore(HistoryStore, frozen=True):
        def files(self, model: str | None = None) -> list[HistoryFile]:
            return [CountingFile(each.path) for each in super().files(model)]

    found = read_history(CountingStore(root), query or HistoryQuery(), index)
    return found, bool(read)


def test_the_first_listing_reads_a_file_for_its_lines_alone(
    file: HistoryFile, tmp_path: Path
) -> None:
    digested: list[Path] = []

    class CountingFile(HistoryFile):
        def add_to(self, hasher: Hasher) -> None:
            digested.append(self.path)
            super().add_to(hasher)

    def read(hasher: Hasher | None) -> FoundCases:
        assert list(counting.read(HistoryLine, hasher))
        return FoundCases(ids=("first",), cases=(), notes=())

    def read_again(_: Hasher | None) -> FoundCases:
        raise AssertionError("the entry was not used")

    counting = CountingFile(file.path)
    index = HistoryIndex(tmp_path / "index", least_bytes=1)
    found = index.look_up(counting, HistoryQuery(), read)
    assert digested == []
    assert index.look_up(counting, HistoryQuery(), read_again) == found
    assert digested == [file.path]


def text_of(history: History) -> str:
    return render_report(history_report(history), TextStyle(160))


def plain(file: HistoryFile, query: HistoryQuery | None = None) -> str:
    return text_of(read_history(HistoryStore(file.path.parent.parent), query or HistoryQuery()))


def test_the_second_listing_is_the_same_and_reads_no_line(file: HistoryFile) -> None:
    first, has_read = listed(file)
    again, has_read_again = listed(file)
    assert (has_read, has_read_again) == (True, False)
    assert text_of(first) == text_of(again) == plain(file)
    (case,) = again.cases
    assert (case.count, len(case.points)) == (RUNS, LISTED_POINTS)
    assert case.since_first.change == pytest.approx(0.1)
    assert len(case.steps) == 1


def append(file: HistoryFile) -> None:
    file.append([make_line(RUNS, 1.3)])


def change_a_number(file: HistoryFile) -> None:
    """The size and the time of the file stay what they are."""
    before = file.path.stat()
    content = file.path.read_bytes()
    file.path.write_bytes(content.replace(b'"ratio":1.1,', b'"ratio":1.2,'))
    os.utime(file.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def tear(file: HistoryFile) -> None:
    file.path.write_bytes(file.path.read_bytes()[:-20])


@pytest.mark.parametrize("change", [append, change_a_number, tear])
def test_a_changed_file_is_read_again(
    file: HistoryFile, change: Callable[[HistoryFile], None]
) -> None:
    before = text_of(listed(file)[0])
    change(file)
    found, has_read = listed(file)
    assert has_read
    assert text_of(found) == plain(file) != before


@pytest.mark.parametrize(
    "query",
    [HistoryQuery(metric=HistoryMetric.MACS), HistoryQuery(since=make_line(45).date)],
    ids=["metric", "since"],
)
def test_another_query_does_not_get_the_answer_of_the_first(
    file: HistoryFile, query: HistoryQuery
) -> None:
    listed(file)
    found, has_read = listed(file, query)
    assert has_read
    assert text_of(found) == plain(file, query)


def test_skipped_lines_are_reported_from_the_index_too(file: HistoryFile) -> None:
    tear(file)
    notes = listed(file)[0].notes
    again, has_read = listed(file)
    assert not has_read
    assert notes == again.notes != ()


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x81\xa3key\x01", b"\xff" * 100])
def test_an_entry_that_is_broken_is_made_again(file: HistoryFile, content: bytes) -> None:
    listed(file)
    (entry,) = (file.path.parent.parent.parent / "index").iterdir()
    entry.write_bytes(content)
    found, has_read = listed(file)
    assert has_read
    assert text_of(found) == plain(file)
    assert listed(file)[1] is False


def test_an_answer_is_not_kept_if_lines_were_added_while_it_was_made(file: HistoryFile) -> None:
    index = HistoryIndex(file.path.parent.parent.parent / "index", least_bytes=1)

    def read_while_a_run_writes(hasher: Hasher | None) -> FoundCases:
        assert list(file.read(HistoryLine, hasher))
        append(file)
        return FoundCases(ids=(), cases=(), notes=("too early",))

    index.look_up(file, HistoryQuery(), read_while_a_run_writes)
    found, has_read = listed(file)
    assert has_read
    assert found.notes == ()


def test_a_folder_that_cannot_be_written_is_reported(file: HistoryFile) -> None:
    (file.path.parent.parent.parent / "index").write_text("mine")
    found, _ = listed(file)
    assert any("cannot be written" in note for note in found.notes)
    assert text_of(found).startswith(plain(file).rstrip()[:40])


def test_a_small_file_needs_no_entry(file: HistoryFile, tmp_path: Path) -> None:
    index = HistoryIndex(tmp_path / "index")
    read_history(HistoryStore(file.path.parent.parent), HistoryQuery(), index)
    assert not index.folder.exists()
