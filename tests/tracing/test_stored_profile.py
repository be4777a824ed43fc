"""A stored profile is a trace whose rounds are at the times they ran, as far as these were kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.tracing.files.opening import read_stored_profile
from pytest_modelperf.tracing.records import Category, Span
from tests.support.profiles import make_measurement
from tests.tracing.test_chrome_trace import started_round, with_measurement


def started() -> Profile:
    rounds = (started_round(7000, (10, 20), (0, 10)), started_round(90_000, (30,), (0,)))
    return with_measurement(make_measurement(rounds=rounds))


def stored(path: Path, profile: Profile, **changed: object) -> Path:
    """The profile in a file, with the fields `changed` of its first round."""
    document = json.loads(dump_profile(profile))
    document["cases"][0]["raw"][0] |= changed
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def spans_of(path: Path) -> list[tuple[str, int, int]]:
    return [
        (event.name, event.start_ns, event.end_ns)
        for event in read_stored_profile(path).events()
        if isinstance(event, Span) and event.category is not Category.SESSION
    ]


def test_rounds_are_at_the_times_they_ran(tmp_path: Path) -> None:
    assert spans_of(stored(tmp_path / "profile.json", started())) == [
        ("round 1", 0, 5030),
        ("load", 0, 1000),
        ("first inference", 2000, 2500),
        ("warm-up", 3500, 4000),
        ("inference", 5000, 5010),
        ("inference", 5010, 5030),
        ("round 2", 83_000, 88_030),
        ("load", 83_000, 84_000),
        ("first inference", 85_000, 85_500),
        ("warm-up", 86_500, 87_000),
        ("inference", 88_000, 88_030),
    ]


def test_the_session_of_a_case_holds_its_rounds(tmp_path: Path) -> None:
    profile = started()
    late = make_measurement(rounds=(started_round(500_000, (10,), (0,)),))
    second = replace(profile.cases[0], case=replace(profile.cases[0].case, cores=2), measured=late)
    path = stored(tmp_path / "profile.json", replace(profile, cases=(*profile.cases, second)))
    sessions = [
        (event.start_ns, event.end_ns)
        for event in read_stored_profile(path).events()
        if isinstance(event, Span) and event.category is Category.SESSION
    ]
    assert sessions == [(0, 88_030), (493_000, 498_010)]


@pytest.mark.parametrize("form", ["none", "null", "a clock that goes back"])
def test_without_starts_rounds_follow_each_other(tmp_path: Path, form: str) -> None:
    began = {"load": 95_000, "first": 97_000, "warmup": None, "warmup_end": None, "block": 99_000}
    path = stored(tmp_path / "profile.json", started(), begun_ns=None if form == "null" else began)
    if form == "none":
        document = json.loads(path.read_text(encoding="utf-8"))
        for made in document["cases"][0]["raw"]:
            del made["begun_ns"]
        path.write_text(json.dumps(document), encoding="utf-8")
    assert [span for span in spans_of(path) if span[0].startswith("round")] == [
        ("round 1", 0, 1530),
        ("round 2", 1530, 3060),
    ]


@pytest.mark.parametrize(
    ("began", "problem"),
    [
        (7, r"begun_ns: expected object \| null, got int"),
        ({"load": 1, "first": "2", "block": 3}, r"begun_ns\.first: expected int, got str"),
        ({"load": -1}, r"begun_ns\.load: expected int >= 0"),
        ({"load": 1, "first": 2}, r"begun_ns: object missing required field block"),
    ],
)
def test_the_error_of_an_invalid_start_names_the_place(
    tmp_path: Path, began: object, problem: str
) -> None:
    path = stored(tmp_path / "profile.json", started(), begun_ns=began)
    with pytest.raises(UsageError, match=rf"cases\[0\]\.raw\[0\]\.{problem}"):
        read_stored_profile(path)
