"""The cache of peaks: what is kept is found again, and what is broken is never more than a note."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.roofline.peaks import KeptPeaks, find_peaks, keep_peaks
from pytest_modelperf.roofline.records import Bandwidth, Peaks
from tests.support.known import known

KEY = "linux-x86_64-zen4-2c"
PEAKS = Peaks(
    machine_key=KEY, engine="onnxruntime", version="1.31.1",
    options={"graph_optimization_level": "all"}, cores=2,
    macs_per_second={"float32": 95.25e9, "int8": 210e9},
    runs_as={"float32": "float32", "float16": "float32"},
    bandwidths=(Bandwidth(1 << 20, 120e9), Bandwidth(128 << 20, 11e9)),
    measured=dt.date(2026, 11, 21),
)  # fmt: skip


def file_in(folder: Path) -> Path:
    return folder / f"{KEY}.json"


def test_kept_peaks_are_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "peaks"
    assert keep_peaks(folder, PEAKS) is None
    assert find_peaks(folder, KEY) == KeptPeaks((PEAKS,))
    assert find_peaks(folder, "another") == KeptPeaks()
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.json"]


def test_peaks_take_the_place_of_those_of_the_same_setup_only(tmp_path: Path) -> None:
    others = (
        replace(PEAKS, cores=1), replace(PEAKS, version="1.20.1"), replace(PEAKS, version=None),
        replace(PEAKS, engine="openvino"), replace(PEAKS, options={}),
    )  # fmt: skip
    later = replace(PEAKS, macs_per_second={"float32": 99e9})
    for peaks in (PEAKS, *others, later):
        assert keep_peaks(tmp_path, peaks) is None
    assert find_peaks(tmp_path, KEY).peaks == (*others, later)


def bandwidth(nbytes: int, rate: float) -> dict[str, float]:
    return {"bytes": nbytes, "bytes_per_second": rate}


def entry() -> dict[str, object]:
    """Return the content of a file of the peaks above."""
    return {
        "machine": KEY, "engine": "onnxruntime", "version": "1.31.1", "options": {}, "cores": 2,
        "macs_per_second": {"float32": 1e9}, "runs_as": {}, "bandwidths": [bandwidth(1024, 1e9)],
        "measured": "2026-11-21",
    }  # fmt: skip


def test_the_entry_that_the_broken_ones_are_made_of_is_sound(tmp_path: Path) -> None:
    file_in(tmp_path).write_text(json.dumps({"schema": SCHEMA, "peaks": [entry()]}))
    found = find_peaks(tmp_path, KEY)
    assert (len(found.peaks), found.note) == (1, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": "another"}, {"engine": 3}, {"cores": 0}, {"cores": True}, {"cores": "2"},
        {"macs_per_second": {"float32": 0}}, {"macs_per_second": {"float32": -1.0}},
        {"macs_per_second": {"float32": float("nan")}}, {"macs_per_second": {"float32": "fast"}},
        {"macs_per_second": {"float32": float("inf")}}, {"macs_per_second": {"float32": 10**400}},
        {"macs_per_second": {"float32": 1e-308}}, {"macs_per_second": []}, {"bandwidths": []},
        {"bandwidths": [{"bytes": 1024}]}, {"bandwidths": [bandwidth(1024, 0.0)]},
        {"bandwidths": [bandwidth(0, 1.0)]},
        {"bandwidths": [bandwidth(1024, 1.0), bandwidth(10**400, 1.0)]},
        {"bandwidths": [bandwidth(1024, 1e-308)]}, {"bandwidths": {"1024": 1.0}},
        {"measured": "yesterday"}, {"options": {"a": 1}},
    ],
)  # fmt: skip
def test_an_entry_that_makes_no_sense_is_a_note(tmp_path: Path, changes: dict[str, object]) -> None:
    document = {"schema": SCHEMA, "peaks": [entry() | changes]}
    file_in(tmp_path).write_text(json.dumps(document))
    found = find_peaks(tmp_path, KEY)
    assert found.peaks == ()
    assert known(found.note).endswith("has no peaks that can be read: they are measured again")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe", '{"schema": 1, "peaks": []}'.encode("utf-16"),
        b'{"schema": 1, "peaks": [], "\xed\xa0\x80": 1}', b"[]", b"3", b"{}",
        b'{"schema": "1", "peaks": []}', b'{"schema": 1}', b'{"schema": 1, "peaks": [3]}',
        b'{"schema": 2, "peaks": [], "peaks": []}', b"[" * 100_000, b" " * (2 << 20),
    ],
)  # fmt: skip
def test_a_broken_file_is_a_note_and_is_written_over(tmp_path: Path, content: bytes) -> None:
    file_in(tmp_path).write_bytes(content)
    found = find_peaks(tmp_path, KEY)
    assert found.peaks == ()
    assert str(file_in(tmp_path)) in known(found.note)
    assert keep_peaks(tmp_path, PEAKS) is None
    assert find_peaks(tmp_path, KEY) == KeptPeaks((PEAKS,))


@given(st.binary(max_size=200))
def test_no_content_of_a_file_is_an_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        file_in(Path(name)).write_bytes(content)
        assert find_peaks(Path(name), KEY).peaks == ()


def test_the_file_of_a_later_version_stays_as_it_is(tmp_path: Path) -> None:
    content = json.dumps({"schema": SCHEMA + 1, "summits": []})
    file_in(tmp_path).write_text(content)
    found = find_peaks(tmp_path, KEY)
    assert found.peaks == ()
    assert "later version" in known(found.note)
    assert keep_peaks(tmp_path, PEAKS) is None
    assert file_in(tmp_path).read_text() == content


def test_a_folder_that_cannot_be_made_or_read_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    note = known(keep_peaks(tmp_path / "file" / "peaks", PEAKS))
    assert note.endswith("The peaks are not kept")
    file_in(tmp_path).mkdir()
    found = find_peaks(tmp_path, KEY)
    assert "cannot be read" in known(found.note)
    note = known(keep_peaks(tmp_path, PEAKS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", f"{KEY}.json"]
