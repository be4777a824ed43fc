"""Profiles under names: read back as they were written, refused if broken, laid side by side."""

from __future__ import annotations

import copy
import datetime as dt
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import Noise
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.request import profile_model
from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.profiler.shown.facts import describe_instruction_sets
from pytest_modelperf.profiler.shown.tables.layer_columns import MEASURED_COLUMNS
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.profiles.records import (
    SIDE_BY_SIDE,
    WORK_AND_TIME,
    NamedProfile,
    ProfileList,
    SideBySide,
    UnusableProfile,
)
from pytest_modelperf.profiles.report import profile_list_report, work_and_time_report
from pytest_modelperf.profiles.report_pairs import side_by_side_report
from pytest_modelperf.profiles.side_by_side import put_beside_work, put_side_by_side
from pytest_modelperf.profiles.store import (
    MAX_NAME,
    ProfileStore,
    check_name,
    dump_named,
    find_older,
    is_function,
    model_folder,
    project_root,
    relative_path,
)
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.roofline.records import place_layers
from pytest_modelperf.roofline.report import roofline_additions
from tests.support.known import known
from tests.support.peaks import make_peaks
from tests.support.profiles import (
    ENGINE,
    MACHINE,
    SHARES,
    make_measurement,
    make_rounds,
    measured_cases,
    measured_classifier,
    measured_function,
    static_classifier,
    with_layer_times,
)
from tests.support.rendered import render_named, render_profile
from tests.support.small_models import ones, parse, save_beside, zero

DATE = dt.datetime(2026, 1, 31, 12, 5, 9, tzinfo=dt.timezone.utc)
LATER = DATE + dt.timedelta(days=2)
VIEW = LayerView(MEASURED_COLUMNS, "ms", 20)
PLAIN = TextStyle()
MADE = {
    "one case": measured_classifier(),
    "no interval": measured_classifier(None),
    "several cases": measured_cases(),
    "a function": measured_function(),
}


def named(profile: Profile, name: str = "baseline", date: dt.datetime = DATE) -> NamedProfile:
    return NamedProfile(name=name, date=date, profile=profile)


def render_list(found: ProfileList, style: TextStyle) -> str:
    return render_report(profile_list_report(found), style)


def render_side_by_side(found: SideBySide, top: int | None, style: TextStyle) -> str:
    return render_report(side_by_side_report(found, top), style)


def timed(median_ms: float, batch_size: int = 1, cores: int = 1) -> Profile:
    """The classifier as it was measured once, with little that is stored of it."""
    counted = static_classifier((batch_size,))
    rounds = make_rounds(median_ms, rounds=2, samples=12)
    run = with_layer_times(make_measurement(batch_size=batch_size, rounds=rounds), SHARES)
    case = CaseProfile(Case(batch_size, cores), counted.cases[0].counted, run)
    return replace(counted, cases=(case,))


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "profiles", "classifier", "classifier.onnx")


def message_of(store: ProfileStore, name: str = "baseline") -> str:
    """Return the error of reading it, without the folder of this test."""
    with pytest.raises(UsageError) as caught:
        store.read(name)
    return str(caught.value).replace(str(store.root), "profiles")


def write(store: ProfileStore, content: str | bytes, name: str = "baseline") -> None:
    store.path.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    (store.path / f"{name}.json").write_bytes(data)


# -- read back


def approximately(value: Any) -> Any:  # noqa: ANN401  # what JSON has
    """Milliseconds become nanoseconds and back: the last digit may differ."""
    if isinstance(value, dict):
        return {key: approximately(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [approximately(inner) for inner in value]
    return pytest.approx(value, rel=1e-12) if isinstance(value, float) else value


@pytest.mark.parametrize("profile", MADE.values(), ids=MADE)
def test_a_profile_reads_back_as_it_was_kept(store: ProfileStore, profile: Profile) -> None:
    assert store.keep(named(profile)) is None
    found = store.read("baseline")
    assert (found.name, found.date) == ("baseline", DATE)
    written = json.loads(dump_profile(profile))
    again = json.loads(dump_profile(found.profile))
    assert again == approximately(written)
    # The file has the content that `modelperf profile --json` writes.
    assert json.loads(store.read_text("baseline"))["profile"] == written


@pytest.mark.parametrize("profile", MADE.values(), ids=MADE)
def test_a_kept_profile_is_shown_as_it_was_measured(store: ProfileStore, profile: Profile) -> None:
    store.keep(named(profile))
    shown = render_named(store.read("baseline"), VIEW, PLAIN)
    first, rest = shown.split("\n", 1)
    assert first == "baseline, kept 2026-01-31 12:05 UTC"
    assert rest.startswith(render_profile(profile, VIEW, PLAIN))


def test_keys_that_a_newer_version_added_to_a_profile_are_kept(store: ProfileStore) -> None:
    document = json.loads(dump_named(named(timed(5))))
    document["profile"]["cases"][0]["energy"] = {"joules": 1.0}
    write(store, json.dumps(document))
    assert store.read("baseline").profile.cases[0].case == Case(1, 1)
    assert json.loads(store.read_text("baseline")) == document


def roofed(profile: Profile, name: str = "baseline") -> NamedProfile:
    """The profile with the roofline of each case that has times of layers."""
    peaks = make_peaks()
    with_times = [case for case in profile.cases if case.measured and case.measured.layer_times]
    found = {case.case.id: place_layers(case, peaks) for case in with_times}
    return replace(named(profile, name), rooflines=found)


@pytest.mark.parametrize("profile", MADE.values(), ids=MADE)
def test_a_roofline_reads_back_and_is_shown_as_it_was_kept(
    store: ProfileStore, profile: Profile
) -> None:
    kept = roofed(profile)
    store.keep(kept)
    found = store.read("baseline")
    assert json.loads(dump_named(found)) == approximately(json.loads(dump_named(kept)))
    assert render_named(found, VIEW, PLAIN) == render_named(kept, VIEW, PLAIN)
    report = render_profile(profile, VIEW, PLAIN, roofline_additions(kept.rooflines, VIEW.top))
    assert render_named(found, VIEW, PLAIN).split("\n", 1)[1].startswith(report)


def test_a_profile_without_a_roofline_says_why_and_what_to_type() -> None:
    command = (
        "no roofline of b1-c1, b1-c2, b8-c1, b8-c2: none was kept\n"
        "with one: modelperf profile classifier.onnx --batch 1,8 --cores 1,2 --roofline "
        "--name NAME\n"
    )
    assert render_named(named(measured_cases()), VIEW, PLAIN).endswith(f"\n\n{command}")
    untimed = "\n\nno roofline of b1-c1: there are no times of layers\n"
    assert render_named(named(measured_function()), VIEW, PLAIN).endswith(untimed)
    assert "no roofline" not in render_named(roofed(measured_classifier()), VIEW, PLAIN)


def test_another_engine_and_dimensions_are_in_the_command() -> None:
    (case,) = with_engine(name="openvino").cases
    odd = replace(case, case=replace(case.case, dims=(("my seq", 4),)))
    text = render_named(named(replace(timed(5), cases=(odd,))), VIEW, PLAIN)
    command = text.splitlines()[-1]
    assert command.endswith("--dim 'my seq=4' --engine openvino --roofline --name NAME")


DOCUMENT: dict[str, Any] = json.loads(dump_named(roofed(timed(5))))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
)


def places_of(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every value of a document."""
    yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places_of(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:6]):
            yield from places_of(inner, (*place, index))


PLACES = [place for place in places_of(DOCUMENT) if place]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), value=st.one_of(st.just("missing"), SCALARS))
def test_a_changed_file_is_refused_or_shown_but_breaks_nothing(
    store: ProfileStore, place: tuple[str | int, ...], value: object
) -> None:
    document = copy.deepcopy(DOCUMENT)
    inner: Any = document
    for key in place[:-1]:
        inner = inner[key]
    if value == "missing":
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    write(store, json.dumps(document))
    contents = store.read_all()
    if contents.unusable:
        (refused,) = contents.unusable
        assert f"{store.path}/baseline.json" in refused.reason
        assert any(advice in refused.reason for advice in ("--remove", "pip install", "Name the"))
        return
    (found,) = contents.kept
    render_named(found, VIEW, PLAIN)
    render_side_by_side(put_side_by_side(found, named(timed(6))), 20, PLAIN)


MEND = (
    "Restore it from version control, or remove it with `modelperf profiles classifier.onnx "
    "--remove baseline` and measure again."
)
UPGRADE = (
    "It was written by a newer pytest-modelperf: "
    "`python -m pip install --upgrade pytest-modelperf`."
)
CASE = ("profile", "cases", 0)
# The place in a case, what is there, and the message about it.
BROKEN_CASES: list[tuple[tuple[str | int, ...], object, str]] = [
    (("latency", "p50_ms"), "fast", "latency.p50_ms: expected float | null, got str."),
    (("outcome",), "fine\x1b", "outcome: invalid enum value 'fine\\x1b'."),
    (("id",), "b2-c1", "id: a case of this batch size, cores and dims is b1-c1."),
    (("layers", 0, "fused"), ["x"], 'layers[0].fused[0]: there is no layer "x".'),
    (("layers", 0, "params"), None, "layers[0].params: expected a value, found null."),
    (("seconds",), None, "seconds: expected a value, found null."),
    (("raw", 0, "times_ns", 0), True, "raw[0].times_ns[0]: expected int, got bool."),
    (
        ("roofline", "peaks", "bandwidths"),
        [],
        "roofline.peaks.bandwidths: expected array of length >= 1.",
    ),
    (
        ("roofline", "peaks", "measured"),
        "2026-02-31",
        "roofline.peaks.measured: invalid RFC3339 encoded date.",
    ),
    (
        ("roofline", "peaks", "macs_per_second", "float32"),
        0,
        "roofline.peaks.macs_per_second[...]: expected float >= 1.0.",
    ),
    (("roofline", "layers", 0, "id"), "x", 'roofline.layers[0].id: there is no layer "x".'),
]
NEWER = "this file has schema 2, and this version reads up to 1."


@pytest.mark.parametrize(
    ("key", "value", "found", "advice"),
    [
        *(
            ((*CASE, *key), value, f", profile.cases[0].{found}", MEND)
            for key, value, found in BROKEN_CASES
        ),
        (("schema",), 2, f", schema: {NEWER}", UPGRADE),
        (("profile", "schema"), 2, f", profile.schema: {NEWER}", UPGRADE),
        (
            ("name",),
            "other",
            ', name: the name is "other", but the file is baseline.json.',
            "Name the file after the profile that is in it.",
        ),
        (("extra",), 1, ": object contains unknown field extra.", MEND),
        (("date",), "2026-02-31T00:00:00Z", ", date: invalid RFC3339 encoded datetime.", MEND),
        (
            ("date",),
            "2026-01-31T14:05:09+02:00",
            ", date: expected a time in UTC such as 2026-01-31T12:00:00Z.",
            MEND,
        ),
        (
            ("profile", "cases"),
            [],
            ", profile.cases: expected at least one case, found an empty list.",
            MEND,
        ),
        (
            ("profile", "model", "sha256"),
            f"{64 * 'a'}\n",
            ", profile.model.sha256: expected a SHA-256 digest of 64 hexadecimal digits.",
            MEND,
        ),
    ],
)
def test_an_error_names_file_place_found_and_expected(
    store: ProfileStore, key: tuple[str | int, ...], value: object, found: str, advice: str
) -> None:
    document = copy.deepcopy(DOCUMENT)
    inner: Any = document
    for part in key[:-1]:
        inner = inner[part]
    inner[key[-1]] = value
    write(store, json.dumps(document))
    assert message_of(store) == f"profiles/classifier/baseline.json{found} {advice}"


def keys_of(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every key of a type; keys of mappings such as `packages` are data."""
    data = {"opsets", "packages", "caches", "dims", "uncounted_ops", "options", "macs_per_second"}
    data |= {"runs_as", "balance"}
    if isinstance(value, dict) and not (place and place[-1] in data):
        for key, inner in value.items():
            yield (*place, key)
            yield from keys_of(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:1]):
            yield from keys_of(inner, (*place, index))


# These may be missing: facts of a machine that it may lack, keys that older versions did not
# write, and what a reader computes again.
OPTIONAL = {
    *MachineFacts.__struct_fields__,
    *("key", "load_ms", "first_load_ms", "first_inference_ms", "layer_types", "begun_ns"),
    *("items_per_second", "flops", "coverage", "elementwise_ops", "backward_macs"),
    *("effective_macs", "activation_bytes", "ratio", "roofline", "least_ms", "gain_ms", "share"),
    "gain_interval_ms",
    *("intensity", "achieved_per_second", "attainable_per_second", "achieved_bytes_per_second"),
    *("bytes_per_second", "balance", "given_dims", "total_bytes"),
    "function_file",
    *("phase", "prompt", "generate", "generation", "first_step"),
    *("workload", "every_ns", "streams", "late"),
    *Noise.__struct_fields__[1:],
}


def test_a_key_that_a_profile_is_made_from_may_not_be_missing(store: ProfileStore) -> None:
    checked = 0
    for *place, key in keys_of(DOCUMENT):
        if key in OPTIONAL or "layer_types" in place:
            continue
        document = copy.deepcopy(DOCUMENT)
        inner: Any = document
        for part in place:
            inner = inner[part]
        del inner[key]
        write(store, json.dumps(document))
        assert re.search(
            rf"(missing required field|the key) \"?{re.escape(str(key))}", message_of(store)
        )
        checked += 1
    assert checked > 80


def test_values_computed_from_others_may_be_missing(store: ProfileStore) -> None:
    document = copy.deepcopy(DOCUMENT)
    (case,) = document["profile"]["cases"]
    for key in ("load_ms", "first_load_ms", "first_inference_ms", "layer_types"):
        del case[key]
    del case["latency"]["items_per_second"], case["roofline"]["peaks"]["balance"]
    write(store, json.dumps(document))
    assert json.loads(dump_named(store.read("baseline"))) == approximately(DOCUMENT)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{\n"schema": 1,\n', r"baseline\.json, line 3: .*\. Restore "),
        (b"\xff", "line 1: a byte that is not UTF-8"),
        (
            json.dumps({**DOCUMENT, "profile": {"schema": 2, "models": []}}),
            "profile.schema: this file has schema 2",
        ),
    ],
    ids=["no JSON", "no UTF-8", "a newer schema, whatever else it has"],
)
def test_a_file_that_is_not_a_profile_of_this_version_is_refused(
    store: ProfileStore, content: str | bytes, message: str
) -> None:
    write(store, content)
    assert re.search(message, message_of(store))


def test_a_link_is_not_followed(store: ProfileStore, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    store.path.mkdir(parents=True)
    (store.path / "baseline.json").symlink_to(tmp_path / "secret.json")
    assert "is a link" in message_of(store)


def test_a_folder_that_is_a_link_is_not_written_into(store: ProfileStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    store.root.mkdir()
    (store.root / "classifier").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link"):
        store.keep(named(timed(5)))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_times_of_a_case_that_did_not_run_are_refused(store: ProfileStore) -> None:
    document = copy.deepcopy(DOCUMENT)
    document["profile"]["cases"][0].update(outcome="failed", reason="it crashed")
    write(store, json.dumps(document))
    assert "layers[0].ms: expected null in a case that did not run" in message_of(store)


# -- names and places


@given(st.text(max_size=70))
@settings(max_examples=50)
def test_a_name_that_is_allowed_is_the_name_of_one_file(name: str) -> None:
    try:
        check_name(name)
    except UsageError:
        return
    assert Path(f"{name}.json").name == f"{name}.json"
    assert name.isascii()
    assert name.isprintable()
    assert not name.startswith(".")
    assert len(name) <= MAX_NAME
    assert name.lower() != "flops"


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b", "é", "a\n", "x" * 65])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a profile"):
        check_name(name)


@pytest.mark.parametrize("name", ["flops", "FLOPS"])
def test_the_name_of_what_is_counted_is_reserved(name: str) -> None:
    with pytest.raises(UsageError, match="always there"):
        check_name(name)


def test_the_project_is_the_nearest_with_our_table_or_a_repository(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.modelperf]\n")
    assert project_root(inner) == tmp_path
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n")
    assert project_root(inner) == tmp_path
    (tmp_path / "a" / ".git").mkdir()
    assert project_root(inner) == tmp_path / "a"
    (inner / "pyproject.toml").write_text("[tool.modelperf]\n")
    assert project_root(inner) == inner


def test_a_model_has_one_folder_from_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    above = model_folder("models/net.onnx", tmp_path)
    monkeypatch.chdir(tmp_path / "models")
    assert model_folder("net.onnx", tmp_path) == above == "models--net"
    assert model_folder(str(tmp_path / "models" / "net.onnx"), tmp_path) == above
    outside = model_folder("../../net.onnx", tmp_path)
    assert outside not in {above, "net"}
    assert "/" not in outside


def test_a_function_is_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_function("my.module:infer")
    assert model_folder("my.module:infer", tmp_path.parent) == "my.module%3ainfer+"
    (tmp_path / "odd:name").touch()
    assert not is_function("odd:name")
    assert not is_function("model.onnx")


def test_a_path_on_another_drive_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, no relative path leads from one drive to another."""

    def relpath(path: str, start: Path) -> str:
        raise ValueError(f"{path} and {start} are on two drives")

    monkeypatch.setattr(os.path, "relpath", relpath)
    assert relative_path("net.onnx", Path("there")) == str(Path("net.onnx").absolute())


def test_an_empty_text_names_no_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot name a baseline"):
        model_folder("", tmp_path)


# -- keeping, replacing, removing


def test_a_name_is_taken_until_it_is_to_be_replaced(store: ProfileStore) -> None:
    store.keep(named(timed(5)))
    with pytest.raises(UsageError) as caught:
        store.keep(named(timed(6), date=LATER))
    assert str(caught.value) == (
        "classifier.onnx has a profile 'baseline' already. To replace it add --replace; to see it: "
        "modelperf profiles classifier.onnx --show baseline"
    )
    assert store.read("baseline").date == DATE
    assert store.keep(named(timed(6), date=LATER), replaces=True) == DATE
    assert store.read("baseline").date == LATER


def test_names_that_differ_in_capitals_are_not_kept_both(store: ProfileStore) -> None:
    store.keep(named(timed(5)))
    with pytest.raises(UsageError, match="some file systems do not distinguish from 'Baseline'"):
        store.check_free("Baseline", replaces=True)


def test_a_broken_profile_can_be_replaced_and_removed(store: ProfileStore) -> None:
    write(store, "{")
    assert store.keep(named(timed(5)), replaces=True) is not None
    assert store.read("baseline").date == DATE
    write(store, "{")
    store.remove("baseline")
    assert store.names() == ()


def test_keeping_and_removing_leave_nothing_else_and_take_nothing_of_others(
    store: ProfileStore,
) -> None:
    store.keep(named(timed(5)))
    assert [p.name for p in store.root.rglob("*")] == ["classifier", "baseline.json"]
    store.remove("baseline")
    assert list(store.root.rglob("*")) == []
    store.keep(named(timed(5)))
    (store.path / "notes.txt").write_text("mine")
    store.remove("baseline")
    assert [p.name for p in store.path.iterdir()] == ["notes.txt"]


def test_an_unknown_name_is_answered_with_the_nearest(store: ProfileStore) -> None:
    store.keep(named(timed(5)))
    expected = (
        "there is no profile 'baselin'. Did you mean 'baseline'? {}. "
        "To list them: modelperf profiles classifier.onnx"
    )
    assert message_of(store, "baselin") == expected.format("There are: flops, baseline")
    with pytest.raises(UsageError) as caught:
        store.remove("baselin")
    assert str(caught.value) == expected.format("Kept are: baseline")
    with pytest.raises(UsageError, match="None is kept"):
        replace(store, folder="other").check_there(["baseline"])


def test_one_that_cannot_be_read_hides_no_other(store: ProfileStore) -> None:
    store.keep(named(timed(5), "new", LATER))
    store.keep(named(timed(5), "old", DATE))
    write(store, "{", "broken")
    (store.path / "notes.txt").write_text("mine")
    (store.path / ".hidden").write_text("no concern")
    found = store.read_all()
    assert [each.name for each in found.kept] == ["old", "new"]
    assert [each.name for each in found.unusable] == ["broken", "notes.txt"]
    assert "line 1" in found.unusable[0].reason
    assert "does not end in .json" in found.unusable[1].reason


def test_a_place_that_cannot_be_written_is_reported_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="Give another --profile-dir"):
        ProfileStore(tmp_path / "file", "net", "net.onnx").check_writable()
    ProfileStore(tmp_path / "new" / "folder", "net", "net.onnx").check_writable()


def test_a_profile_of_other_external_weights_is_reported(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    text = "g (float[1,16] x) => (float[1,8] y) { y = MatMul(x, w) }"
    weights = save_beside(parse(text, weights={"w": ones(16, 8)}), model)
    kept = [named(profile_model(str(model)))]
    assert find_older(str(model), kept) == frozenset()
    zero(weights)
    assert find_older(str(model), kept) == frozenset({"baseline"})
    # A profile without a digest gets no note, and neither does a model that cannot be read.
    assert find_older(str(model), [named(timed(5), "unknown")]) is None
    model.write_bytes(b"")
    assert find_older(str(model), kept) is None


# -- side by side


def test_side_by_side_are_the_cases_that_both_have() -> None:
    found = put_side_by_side(named(measured_cases(), "all"), named(timed(5), "one"))
    assert [pair.id for pair in found.pairs] == ["b1-c1"]
    assert [(name, case.id) for name, case in found.single] == [
        *(("all", case_id) for case_id in ("b1-c2", "b8-c1", "b8-c2"))
    ]


def test_a_case_that_failed_in_one_profile_is_shown_for_the_other_alone() -> None:
    other = timed(4, cores=2).cases[0]
    failed = CaseProfile(other.case, None, None, Outcome.FAILED, "it crashed")
    before, after = (
        named(replace(timed(5), cases=(*timed(5).cases, case)), name)
        for case, name in ((failed, "before"), (other, "after"))
    )
    text = render_side_by_side(put_side_by_side(before, after), None, TextStyle())
    assert "b1-c2 was measured in after only: in before it failed" in text
    assert "measured in before only" not in text


@given(st.lists(st.floats(0.1, 9.0), min_size=5, max_size=5))
@settings(max_examples=20, deadline=None)
def test_the_largest_difference_comes_first_even_if_the_whole_got_faster(now: list[float]) -> None:
    """Kept profiles prove nothing, so a slowdown does not count less than a gain."""
    profile = measured_classifier()
    (case, *_) = profile.cases
    assert case.measured is not None
    times = case.measured.layer_times or ()
    moved = tuple(
        replace(time, ns=time.ns * factor) for time, factor in zip(times, now, strict=False)
    )
    after = replace(case, measured=replace(case.measured, layer_times=moved))
    (pair, *_) = put_side_by_side(
        named(replace(profile, cases=(case,)), "a"), named(replace(profile, cases=(after,)), "b")
    ).pairs
    for changes in (pair.layer_types, pair.layers):
        sizes = [abs(change.time.ns) for change in changes if change.time is not None]
        assert sizes == sorted(sizes, reverse=True)


def test_one_case_on_each_side_makes_a_pair() -> None:
    found = put_side_by_side(named(timed(5), "a"), named(timed(3, cores=4), "b"))
    (pair,) = found.pairs
    assert pair.id == "b1-c1 -> b1-c4"
    assert pair.ratio == pytest.approx(3 / 5, rel=1e-3)
    others = replace(measured_cases(), cases=measured_cases().cases[2:4])
    with pytest.raises(UsageError, match="no case in common: a has b1-c1; all has b8-c1, b8-c2"):
        put_side_by_side(named(timed(5), "a"), named(others, "all"))
    nothing = replace(timed(5), cases=())
    with pytest.raises(UsageError, match=r"a has b1-c1; none has no measured case\. Measure"):
        put_side_by_side(named(timed(5), "a"), named(nothing, "none"))


@given(st.floats(0.01, 100, allow_subnormal=False), st.floats(0.01, 100, allow_subnormal=False))
@settings(max_examples=20)
def test_the_differences_of_types_and_layers_add_up_to_the_whole(
    before_ms: float, after_ms: float
) -> None:
    (pair,) = put_side_by_side(named(timed(before_ms)), named(timed(after_ms), "b")).pairs
    old, new = pair.before.latency.median_ns, pair.after.latency.median_ns
    for changes in (pair.layer_types, pair.layers):
        times = [change.time for change in changes if change.time is not None]
        assert math.fsum(time.ns for time in times) == pytest.approx(new - old, abs=1.0)
        # No run took turns with another: no row may claim to explain anything.
        assert all((time.share, time.low_ns, time.high_ns) == (None,) * 3 for time in times)


def test_differences_between_the_runs_are_reported() -> None:
    before = timed(5)
    after = replace(
        with_engine(version="1.32.0"),
        model=replace(before.model, sha256="b" * 64),
        machine=replace(MACHINE, usable_cores=4, instruction_sets=("sse4_2",)),
    )
    before = replace(before, model=replace(before.model, sha256="a" * 64))
    found = put_side_by_side(named(before, "a"), named(after, "b"))
    assert [each.what for each in found.unlike] == [
        *("model file", "machine", "instruction sets", "engine")
    ]
    assert put_side_by_side(named(before, "a"), named(before, "b")).unlike == ()


def at_dims(given: tuple[tuple[str, int], ...] | None) -> NamedProfile:
    (case,) = timed(5).cases
    case = replace(case, case=replace(case.case, given_dims=given))
    return named(replace(timed(5), cases=(case,)))


def test_dimensions_of_one_size_are_reported_though_no_case_is_named_after_them(
    store: ProfileStore,
) -> None:
    short, long, own = at_dims((("seq", 64),)), at_dims((("seq", 128),)), at_dims(())
    assert put_side_by_side(short, short).unlike == ()
    (unlike,) = put_side_by_side(short, long).unlike
    assert (unlike.what, unlike.before, unlike.after) == ("dimensions", "seq=64", "seq=128")
    (unlike,) = put_side_by_side(short, own).unlike
    assert (unlike.before, unlike.after) == ("seq=64", "none given")
    # They read back, and profiles of older versions have none.
    store.keep(short)
    assert store.read("baseline").profile.cases[0].case == short.profile.cases[0].case
    older = json.loads(store.read_text("baseline"))
    del older["profile"]["cases"][0]["given_dims"]
    write(store, json.dumps(older))
    found = store.read("baseline")
    assert found.profile.cases[0].case.given_dims is None
    assert put_side_by_side(found, short).unlike == ()


def test_work_and_time_want_layers_with_times() -> None:
    found = put_beside_work(named(measured_cases()))
    assert [case.case.id for case in found.cases] == ["b1-c1", "b1-c2", "b8-c1", "b8-c2"]
    assert [case.id for case in found.without_times] == ["b1-c8", "b64-c2"]
    with pytest.raises(UsageError, match="no times of layers to compare with MACs"):
        put_beside_work(named(measured_function()))


# -- as text


def test_the_list_as_text() -> None:
    failed = CaseProfile(Case(2, 1), None, None, Outcome.FAILED, "it crashed")
    some = replace(timed(5), cases=(*timed(5).cases, failed))
    found = ProfileList(
        model="classifier.onnx",
        flops=NamedProfile(name="flops", date=None, profile=static_classifier((1, 8))),
        kept=(named(some), named(timed(3, cores=4), "four-cores", LATER)),
        unusable=(UnusableProfile("broken", "broken.json, line 1: no valid JSON."),),
        older=frozenset({"baseline"}),
    )
    assert render_list(found, TextStyle(100)) == snapshot("""\
classifier.onnx: 2.808 KiB, opset 21

profiles
profile     date          time   batch  cores  ms per batch  items/s     MACs  params
─────────────────────────────────────────────────────────────────────────────────────
flops       always there             1                                442.5 k     618
                                     8                                3.540 M     618
baseline *  2026-01-31    12:05      1      1         4.990    200.4  442.5 k     618
                                     2      1        failed
four-cores  2026-02-02    12:05      1      4         2.994    334.0  442.5 k     618
* measured with a different version of the model file

engine: onnxruntime 1.31.1
instruction sets: avx2 avx512f avx512_vnni

broken: broken.json, line 1: no valid JSON.
""")
    # The time of day gives way.
    assert "  2026-01-31        1      1         4.990" in render_list(found, TextStyle(80))


def test_each_condition_is_named_once_with_the_profiles_that_had_it() -> None:
    ours = named(timed(5), "ours")
    other = replace(with_engine(name="openvino", version="2026.4.1"), machine=None)
    kept = (ours, named(timed(4), "again"), named(other, "theirs"))
    found = ProfileList(model="classifier.onnx", flops=None, kept=kept)
    lines = render_list(found, TextStyle(80)).splitlines()
    engine, sets = lines[-2:]
    assert engine == "engine: onnxruntime 1.31.1 (ours, again), openvino 2026.4.1 (theirs)"
    assert sets == f"instruction sets: {ours_sets(ours)} (ours, again), ? (theirs)"


def ours_sets(of: NamedProfile) -> str:
    return describe_instruction_sets(known(of.profile.machine))


def test_a_time_that_too_little_was_measured_for_says_what_its_mark_means() -> None:
    profile = timed(5)
    short = make_measurement(rounds=make_rounds(5, rounds=1, samples=1))
    few = replace(profile, cases=(replace(profile.cases[0], measured=short),))
    found = ProfileList(model="classifier.onnx", flops=None, kept=(named(few),))
    mark = "? too few inferences to tell; a larger max-seconds makes time for more\n"
    lines = render_list(found, TextStyle(100))
    assert next(line for line in lines.splitlines() if line.startswith("baseline")).count("?") > 0
    assert mark in lines
    assert mark not in render_list(replace(found, kept=(named(profile),)), TextStyle(100))


def test_an_empty_list_says_what_to_type() -> None:
    flops = NamedProfile(name="flops", date=None, profile=static_classifier())
    found = ProfileList(model="my model.onnx", flops=flops, kept=())
    assert render_list(found, TextStyle(100)) == snapshot("""\
classifier.onnx: 2.808 KiB, opset 21

profiles
profile  date          batch     MACs  params
─────────────────────────────────────────────
flops    always there      1  442.5 k     618

none is kept
keep one: modelperf profile 'my model.onnx' --name baseline
""")
    elsewhere = render_list(replace(found, folder="of mine"), TextStyle(100))
    assert elsewhere.endswith(" --name baseline --profile-dir 'of mine'\n")


def test_side_by_side_as_text() -> None:
    before = timed(5)
    before = replace(before, model=replace(before.model, sha256="a" * 64))
    after = replace(timed(4), model=replace(before.model, sha256="b" * 64))
    both = replace(before, cases=(*before.cases, *timed(9, cores=2).cases))
    found = put_side_by_side(named(both), named(after, "pruned", LATER))
    assert render_side_by_side(found, 2, TextStyle(100)) == snapshot("""\
baseline → pruned
baseline, kept 2026-01-31 12:05 UTC
pruned, kept 2026-02-02 12:05 UTC
The profiles did not take turns, so no change here is tested: runs of one model that are apart in
  time differ by 6 to 28 % though nothing changed.

ms per batch
case   ms before  ms now  ratio  items/s before  items/s now  rounds differ by
──────────────────────────────────────────────────────────────────────────────
b1-c1      4.990   3.992  0.800           200.4        250.5      0.4 %, 0.4 %
rounds differ by: the slowest from the fastest, in their medians, before and now

model file: sha256 aaaaaaaaaaaa → sha256 bbbbbbbbbbbb
b1-c2 was measured in baseline only
none of this is shown to be a change
to know: modelperf compare OLD.onnx classifier.onnx --batch 1 --cores 1

time by layer type, in ms
layer type         count  before    now  change
─────────────────────────────────────────────────
Conv                   1   4.491  3.593  −0.898
layout                     0.200  0.160  −0.040
GlobalAveragePool      1   0.100  0.080  −0.020
runtime overhead           0.100  0.080  −0.020
Gemm                   1   0.097  0.078  −0.019
Flatten                1   0.002  0.002   0.000

total                      4.990  3.992  −0.998

layers that differ most, in ms
layer             type    before    now  difference
───────────────────────────────────────────────────
stem_convolution  Conv     4.491  3.593      −0.898
ReorderInput      layout   0.200  0.160      −0.040
4 more rows: --top 0 shows all
""")


def with_engine(**changed: Any) -> Profile:  # noqa: ANN401  # facts of any type
    """The classifier as another engine ran it."""
    profile = timed(5)
    run = known(profile.cases[0].measured)
    other = replace(run, engine=replace(ENGINE, **changed))
    return replace(profile, cases=(replace(profile.cases[0], measured=other),))


def with_dims(**sizes: int) -> Profile:
    """The classifier at given sizes, after which its case is named."""
    (case,) = timed(5).cases
    sized = replace(case, case=replace(case.case, dims=tuple(sizes.items())))
    return replace(timed(5), cases=(sized,))


def with_openvino(version: str, cores: int = 1) -> Profile:
    profile = with_engine(name="openvino", version=version)
    case = Case(2, cores, given_dims=(("seq", 64),))
    return replace(profile, cases=(replace(profile.cases[0], case=case),))


SWEEP = "sweep classifier.onnx --batch 1 --cores 1"
COMPARE = "compare classifier.onnx classifier.onnx"
# Another engine or another size than both have would answer another question.
OPENVINO = "--engine openvino --batch 2 --cores 1"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(*case, id=name)
        for name, case in {
            "the same": (timed(5), timed(5), "doctor classifier.onnx --batch 1 --cores 1"),
            "functions": (measured_function(), measured_function(), "doctor --cores 1"),
            "other cores": (timed(5), timed(5, cores=4), f"{SWEEP},4"),
            "a dimension given": (timed(5), with_dims(seq=128), f"{SWEEP} --dim seq=128"),
            "other sizes": (with_dims(seq=64), with_dims(seq=128), f"{SWEEP} --dim seq=64,128"),
            "other sizes that go together": (
                with_dims(seq=64, past=0),
                with_dims(seq=1, past=128),
                f"{SWEEP} --dim seq=64,past=0 --dim seq=1,past=128",
            ),
            "sizes that no id names": (
                at_dims((("seq", 64),)).profile,
                at_dims((("seq", 128),)).profile,
                f"{SWEEP} --dim seq=64,128",
            ),
            "other version": (
                timed(5),
                with_engine(version="2.0"),
                f"{COMPARE} --python-a OTHER_PYTHON --batch 1 --cores 1",
            ),
            "other engine": (
                timed(5),
                with_engine(name="openvino"),
                f"{COMPARE} --engine onnxruntime --engine-b openvino --batch 1 --cores 1",
            ),
            "other options": (
                timed(5),
                with_engine(
                    options={"graph_optimization_level": "all", "execution_mode": "parallel"}
                ),
                (
                    f"{COMPARE} --engine onnxruntime --engine-b onnxruntime "
                    "--engine-option graph_optimization_level=extended "
                    "--engine-option-b graph_optimization_level=all "
                    "--engine-option-b execution_mode=parallel --batch 1 --cores 1"
                ),
            ),
            "the same on the engine of both": (
                with_openvino("1"),
                with_openvino("1"),
                f"doctor classifier.onnx {OPENVINO} --dim seq=64",
            ),
            "other version of the engine of both": (
                with_openvino("1"),
                with_openvino("2"),
                f"{COMPARE} --python-a OTHER_PYTHON {OPENVINO} --dim seq=64",
            ),
            "other cores on the engine of both": (
                with_openvino("1"),
                with_openvino("1", cores=4),
                f"sweep classifier.onnx {OPENVINO},4 --dim seq=64",
            ),
        }.items()
    ],
)
def test_the_command_that_would_show_a_difference_is_named(
    before: Profile, after: Profile, expected: str
) -> None:
    found = put_side_by_side(named(before), named(after, "b"))
    lines = render_side_by_side(found, 2, PLAIN).splitlines()
    assert f"to know: modelperf {expected}" in lines


def test_a_profile_with_a_roofline_is_measured_at_the_given_dimensions() -> None:
    shown = render_named(at_dims((("seq", 64),)), VIEW, PLAIN)
    command = "modelperf profile classifier.onnx --batch 1 --cores 1 --dim seq=64 --roofline"
    assert command in " ".join(shown.replace("\\\n", " ").split())


def test_columns_that_a_narrow_terminal_leaves_out_are_not_explained() -> None:
    found = put_side_by_side(named(timed(5)), named(timed(5), "b"))
    for width, is_shown in ((120, True), (70, False)):
        text = render_side_by_side(found, 2, replace(PLAIN, width=width))
        assert ("rounds differ by: " in text) is is_shown


@pytest.mark.parametrize(
    ("slower", "expected"),
    [
        (1.2, "none of this is shown to be a change\n"),
        (1 / 1.2, "none of this is shown to be a change\n"),
        (3.0, "the difference of b1-c1 is larger than that, but not tested; the rest"),
        (1 / 3.0, "the difference of b1-c1 is larger than that, but not tested; the rest"),
    ],
)
def test_only_what_differs_more_than_such_runs_do_is_set_apart(
    slower: float, expected: str
) -> None:
    other = timed(5, cores=2).cases
    before = replace(timed(5), cases=(*timed(5).cases, *other))
    after = replace(timed(5 * slower), cases=(*timed(5 * slower).cases, *other))
    text = render_side_by_side(put_side_by_side(named(before), named(after, "b")), 2, PLAIN)
    assert expected in text
    alone = put_side_by_side(named(timed(5)), named(timed(5 * slower), "b"))
    is_large = slower > 1.28 or slower < 1 / 1.28
    assert (
        "the difference is larger than that, but not tested\n"
        in render_side_by_side(alone, 2, PLAIN)
    ) == is_large


def test_work_and_time_as_text() -> None:
    found = put_beside_work(named(timed(5)))
    assert render_report(work_and_time_report(found), PLAIN) == snapshot("""\
flops and baseline, kept 2026-01-31 12:05 UTC

flops and time by layer type
layer type         count     MACs  share of MACs     ms  share of time
──────────────────────────────────────────────────────────────────────
Conv                   1  442.4 k        100.0 %  4.491         90.0 %
layout                                            0.200          4.0 %
GlobalAveragePool      1        0          0.0 %  0.100          2.0 %
runtime overhead                                  0.100          2.0 %
Gemm                   1      160          0.0 %  0.097          1.9 %
Flatten                1        0          0.0 %  0.002          0.1 %
Relu                   1        0          0.0 %

total                  5  442.5 k                 4.990
no ms: it runs in the kernels of other layers, or not at all
""")


def test_a_page_of_a_profile_within_another_report_has_nothing_of_its_text() -> None:
    found = put_beside_work(named(timed(5)))
    page = render_page(work_and_time_report(found))
    assert "kept 2026-01-31 12:05 UTC" in page
    assert "flops and time by layer type" in page
    # These lines are in a table of the page.
    assert '<p class="line">machine ' not in page
    assert "no roofline" not in page


# -- as CSV


def test_the_csv_of_each_report_has_plain_numbers() -> None:
    before, after = named(timed(5)), named(timed(4), "b", LATER)
    flops = NamedProfile(name="flops", date=None, profile=static_classifier())
    found = ProfileList(model="classifier.onnx", flops=flops, kept=(before,))
    assert render_csv(profile_list_report(found)) == snapshot("""\
profile,date,batch_size,cores,dims,phase,outcome,p50_ms,items_per_second,macs,params,engine
flops,,1,,,,not measured,,,442528,618,
baseline,2026-01-31T12:05:09+00:00,1,1,,,not measured,4.99,200.40080160320642,442528,618,onnxruntime 1.31.1
""")  # noqa: E501  # a line of the file
    pair = render_csv(side_by_side_report(put_side_by_side(before, after), 1)).splitlines()
    assert pair[:3] == snapshot(
        [
            "case,row,name,op_type,before_ms,now_ms",
            "b1-c1,model,,,4.99,3.992",
            "b1-c1,layer type,,Conv,4.491,3.5928",
        ]
    )
    assert [line.split(",")[1] for line in pair[1:]] == [
        *("model", *["layer type"] * 7, *["layer"] * 6)
    ]
    shares = render_csv(work_and_time_report(put_beside_work(before))).splitlines()
    assert shares[:3] == snapshot(
        ["case,op_type,count,macs,ms", "b1-c1,Conv,1,442368,4.491", "b1-c1,layout,0,,0.1996"]
    )


# -- as JSON


def test_two_profiles_as_json() -> None:
    found = put_side_by_side(named(timed(5)), named(timed(4), "b", LATER))
    document = json.loads(SIDE_BY_SIDE.dump(found))
    assert [document[side]["name"] for side in ("before", "after")] == ["baseline", "b"]
    (case,) = document["cases"]
    assert case["ratio"] == pytest.approx(case["after"]["p50_ms"] / case["before"]["p50_ms"])
    change = sum(kind["change_ms"] or 0.0 for kind in case["layer_types"])
    assert change == pytest.approx(case["after"]["p50_ms"] - case["before"]["p50_ms"])
    both = json.loads(WORK_AND_TIME.dump(put_beside_work(named(timed(5)))))
    counted = json.loads(dump_profile(timed(5)))["cases"]
    assert both["cases"][0]["layer_types"] == counted[0]["layer_types"]
