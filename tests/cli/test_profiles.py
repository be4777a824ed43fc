"""Keeping profiles under names by the command: what it prints and writes, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiles.records import PROFILE_LIST, SIDE_BY_SIDE, WORK_AND_TIME
from pytest_modelperf.report.codec import JsonDocument
from pytest_modelperf.roofline.peaks import cache_folder, keep_peaks
from pytest_modelperf.roofline.records import Bandwidth
from tests.support.command import Result, refusal, run
from tests.support.documents import assert_read_back
from tests.support.peaks import make_peaks
from tests.support.small_models import parse

MODEL = """
    g (float[N,64] x) => (float[N,32] y) {
        [first] h = MatMul(x, w)
        [relu] r = Relu(h)
        [second] y = MatMul(r, v)
    }
"""
SEQUENCE = "g (float[N,seq,3] x) => (float[N,seq,3] y) { [relu] y = Relu(x) }"
# An engine with a clock of its own: whatever else the machine does, there are samples enough.
PLUGIN = ("--plugin", "tests.support.faulty_plugin")
TIMED = (*PLUGIN, "--engine", "timed", "--max-seconds", "30")
QUICK = ("--max-seconds", "0.1")
FAULTY = (*PLUGIN, "--engine", "faulty")


def save(name: str, text: str = MODEL, seed: int = 0) -> None:
    random = np.random.RandomState(seed)
    weights = {
        "w": random.standard_normal((64, 128)).astype(np.float32),
        "v": random.standard_normal((128, 32)).astype(np.float32),
    }
    model = parse(text, weights=weights if text == MODEL else None)
    Path(name).write_bytes(model.SerializeToString())


@pytest.fixture(scope="module", autouse=True)
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a model of which `a` and `b` are kept; all tests here run in it."""
    path = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        (path / ".git").mkdir()
        (path / "models").mkdir()
        save("models/net.onnx")
        save("models/other.onnx")
        for name, batch in (("a", "1"), ("b", "1,2")):
            done = run("profile", "models/net.onnx", "--batch", batch, "--name", name, *TIMED)
            assert done.exit_code == 0, done.err
        yield path


def profiles(*arguments: str, model: str = "models/net.onnx") -> Result:
    return run("profiles", model, *arguments)


def document_of(*arguments: str, model: str = "models/net.onnx") -> dict[str, Any]:
    done = profiles(*arguments, "--json", "-", model=model)
    assert (done.exit_code, done.err) == (0, "")
    document: dict[str, Any] = json.loads(done.out)
    return document


def names(text: str) -> list[str]:
    """The profiles of a list, with their marks."""
    return re.findall(r"^(\S+(?: \*)?) +(?:always there|20\d\d-\d\d-\d\d) ", text, re.MULTILINE)


def keep_copy(project: Path, name: str, place: str) -> None:
    """Keep the profile `a` again, under another name or of another model."""
    stored = json.loads((project / "profiles" / "models--net" / "a.json").read_text())
    copy = project / place / f"{name}.json"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(json.dumps(stored | {"name": name}))


@pytest.mark.slow
def test_the_list_has_what_is_counted_and_a_row_for_each_case() -> None:
    done = profiles()
    assert (done.exit_code, done.err) == (0, "")
    assert names(done.out) == ["flops", "a", "b"]
    row = re.compile(r"^(?:[ab] +20\S+ +\S+)? +(\d) +1 +[0-9.]+ ", re.MULTILINE)
    assert row.findall(done.out) == ["1", "1", "2"]
    assert re.search(r"^engine: timed \d", done.out, re.MULTILINE)


def test_the_same_list_is_had_from_any_folder_of_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = document_of()
    monkeypatch.chdir(project / "models")
    below = document_of(model="net.onnx")
    assert [each["name"] for each in below["profiles"]] == ["flops", "a", "b"]
    assert [each["cases"] for each in below["profiles"]] == [
        each["cases"] for each in above["profiles"]
    ]


def test_the_list_as_json_has_what_the_profile_has(project: Path) -> None:
    listed = document_of()
    assert listed["unusable"] == []
    flops, first, second = listed["profiles"]
    assert (flops["name"], flops["date"], flops["is_older_model"]) == ("flops", None, None)
    assert flops["cases"][0]["static"]["macs"] == 64 * 128 + 128 * 32
    assert [case["id"] for case in second["cases"]] == ["b1-c1", "b2-c1"]
    stored = json.loads((project / "profiles" / "models--net" / "a.json").read_text())
    assert (first["name"], first["date"]) == (stored["name"], stored["date"])
    (case,) = stored["profile"]["cases"]
    assert first["cases"][0]["p50_ms"] == pytest.approx(case["latency"]["p50_ms"])
    ms = first["cases"][0]["p50_ms"]
    assert first["cases"][0]["items_per_second"] == pytest.approx(1000 / ms)


def test_shown_is_what_was_kept(project: Path) -> None:
    stored = (project / "profiles" / "models--net" / "b.json").read_text()
    assert profiles("--show", "b", "--json", "-").out == stored
    done = profiles("--show", "b", "--top", "1")
    assert done.exit_code == 0
    assert re.match(r"b, kept 20\d\d-\d\d-\d\d \d\d:\d\d UTC\n", done.out)
    assert re.findall(r"^(\S+) +\d +1 ", done.out, re.MULTILINE) == ["b1-c1", "b2-c1"]
    assert "--top 0 shows all" in done.out


def test_counts_are_shown_at_the_given_shapes() -> None:
    shown = document_of("--show", "flops", "--batch", "3")
    assert (shown["name"], shown["date"]) == ("flops", None)
    (case,) = shown["profile"]["cases"]
    assert case["static"]["macs"] == 3 * (64 * 128 + 128 * 32)
    assert case["latency"]["p50_ms"] is None
    assert "MatMul" in profiles("--show", "flops").out


@pytest.mark.parametrize(
    ("arguments", "declared"), [((), PROFILE_LIST), (("--compare", "a", "b"), SIDE_BY_SIDE)]
)
def test_the_json_is_read_back_by_its_type(
    arguments: tuple[str, ...], declared: JsonDocument[Any]
) -> None:
    assert_read_back(profiles(*arguments, "--json", "-").out, declared)


def test_two_profiles_are_compared_and_the_judging_command_is_named() -> None:
    done = profiles("--compare", "a", "b")
    assert done.exit_code == 0
    assert re.findall(r"^(b\S+) +[\d.]+ +[\d.]+ +[\d.]+ ", done.out, re.MULTILINE) == ["b1-c1"]
    assert "b2-c1 was measured in b only" in done.out
    assert "The profiles did not take turns" in done.out
    advice = "to know: modelperf doctor models/net.onnx --engine timed --batch 1 --cores 1"
    assert advice in done.out
    compared = document_of("--compare", "a", "b")
    (case,) = compared["cases"]
    assert case["ratio"] == pytest.approx(case["after"]["p50_ms"] / case["before"]["p50_ms"])
    assert compared["single"] == [{"profile": "b", "id": "b2-c1"}]


@pytest.mark.parametrize(
    ("arguments", "title", "page", "columns"),
    [
        ((), "### net.onnx", "net.onnx: a → b", "profile,date,batch_size,"),
        (("--compare", "b", "a"), "### b -", "net.onnx: b → a", "case,row,name,"),
        (("--show", "b"), "### b, kept ", "net.onnx: b", "case,"),
        (("--show", "flops", "--batch", "3"), "### net.onnx", "net.onnx: flops", "case,"),
    ],
)
def test_each_report_has_its_page_its_markdown_and_csv(
    arguments: tuple[str, ...], title: str, page: str, columns: str
) -> None:
    done = profiles(*arguments, "--html", "-")
    assert (done.exit_code, done.err) == (0, "")
    assert f"<title>{page}</title>" in done.out
    assert done.out.startswith("<!doctype html>")
    assert profiles(*arguments, "--markdown", "-").out.startswith(title)
    assert profiles(*arguments, "--csv", "-").out.startswith(columns)


def test_a_page_needs_a_kept_profile() -> None:
    refused = profiles("--html", "page.html", model="models/other.onnx")
    assert refused.exit_code == 2
    assert refused.err == snapshot(
        "Error: --html shows kept profiles, and none is kept. Keep one by modelperf profile "
        "--name, or add --show flops for the page of the counts.\n"
    )
    assert not Path("page.html").exists()


@pytest.fixture
def peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Peaks of this machine that are kept: of two days on one core, the later on two engines.

    The machine has two cores, whatever the one that runs the tests has.
    """
    monkeypatch.setenv("MODELPERF_CACHE_DIR", str(tmp_path))
    # How many processors a process may use is up to the system that runs these tests.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    key = describe_machine().key
    slow = make_peaks(machine_key=key, engine="onnxruntime", measured=dt.date(2026, 1, 1))
    fast = replace(
        slow, version="99", bandwidths=(Bandwidth(1, 50e9),), measured=dt.date(2026, 2, 1)
    )
    for each in (slow, fast, replace(fast, engine="openvino", bandwidths=(Bandwidth(1, 25e9),))):
        assert keep_peaks(cache_folder(), each) is None
    return tmp_path


@pytest.mark.usefixtures("peaks")
@pytest.mark.parametrize(("engine", "gigabytes"), [("onnxruntime", 50), ("openvino", 25)])
def test_flops_have_the_least_time_that_the_latest_peaks_of_an_engine_allow(
    engine: str, gigabytes: int
) -> None:
    shown = document_of("--show", "flops", "--batch", "3", "--engine", engine)
    (case,) = shown["profile"]["cases"]
    # Weights, and what goes in and out, all of them float32: so few rows are bound by memory.
    moved = [4 * (64 * 128 + 3 * 64 + 3 * 128), 4 * 2 * 3 * 128, 4 * (128 * 32 + 3 * 128 + 3 * 32)]
    roofs = case["roofline"]["layers"]
    assert [roof["bytes_moved"] for roof in roofs] == moved
    least = [nbytes / gigabytes / 1e6 for nbytes in moved]
    assert [roof["least_ms"] for roof in roofs] == pytest.approx(least)
    assert case["roofline"]["least_ms"] == pytest.approx(sum(least))
    assert {roof["ms"] for roof in roofs} == {None}
    assert case["roofline"]["gain_ms"] is None


@pytest.mark.usefixtures("peaks")
def test_the_roofline_of_flops_begins_with_what_takes_longest() -> None:
    done = profiles("--show", "flops", "--batch", "3", "--top", "2")
    (table,) = re.findall(r"by layer, the least time(?:.|\n)*?--top 0 shows all", done.out)
    assert table == snapshot("""\
by layer, the least time that these peaks allow
layer   type    least ms   share  bound   MAC/B   roof     MACs
───────────────────────────────────────────────────────────────
first   MatMul  0.000701  62.1 %  memory  0.701  35.04  24.58 k
second  MatMul  0.000366  32.4 %  memory  0.671  33.57  12.29 k

total           0.001129                                36.86 k
roof: the GMAC/s that its MACs and bytes allow at these peaks
an engine that fuses layers moves less, and can be faster
1 more layer: --top 0 shows all\
""")


@pytest.mark.usefixtures("peaks")
def test_flops_without_peaks_of_the_cores_name_the_command_that_measures_them() -> None:
    done = profiles("--show", "flops", "--cores", "1,2")
    assert (
        "no roofline of b1-c2: the peaks of onnxruntime on 2 cores of this machine are not known. "
        "To measure them: "
        "modelperf profile models/net.onnx --roofline --engine onnxruntime --cores 2"
    ) in " ".join(done.out.split())
    assert done.out.count("by layer, the least time") == 1


@pytest.mark.usefixtures("peaks")
def test_flops_on_more_cores_than_there_are_have_no_command_that_would_be_refused() -> None:
    done = profiles("--show", "flops", "--cores", "3")
    assert "no roofline of b1-c3: 3 cores are wanted, but the machine has 2\n" in done.out
    assert "To measure them" not in done.out


def test_flops_of_a_profile_are_shares_of_macs_and_of_time() -> None:
    kept = run("profile", "models/net.onnx", "--name", "layers", *QUICK)
    assert kept.exit_code == 0, kept.err
    done = profiles("--compare", "flops", "layers")
    assert done.exit_code == 0
    assert done.out == profiles("--compare", "layers", "flops").out
    text = profiles("--compare", "flops", "layers", "--json", "-").out
    assert_read_back(text, WORK_AND_TIME)
    assert re.search(r"^MatMul +2 +12\.29 k +100\.0 % ", done.out, re.MULTILINE)
    assert profiles("--remove", "layers").exit_code == 0


def test_a_name_is_refused_before_anything_is_measured() -> None:
    for name, message in (
        ("a", "--replace"),
        ("flops", "always there"),
        ("a/b", "cannot name a profile"),
    ):
        # A model that is not there would be an error too, and a later one.
        assert message in refusal(
            "profile", "models/net.onnx", "--engine-option", "no=1", "--name", name
        )


def test_a_profile_is_replaced_only_on_request() -> None:
    keep = ("profile", "models/other.onnx", "--name", "x", *QUICK)
    first = run(*keep)
    assert first.exit_code == 0, first.err
    assert first.out.endswith(
        "kept as x in profiles/models--other: modelperf profiles models/other.onnx\n"
    )
    before = document_of("--show", "x", model="models/other.onnx")
    assert run(*keep).exit_code == 2
    assert document_of("--show", "x", model="models/other.onnx") == before
    # With the document on standard output, the line goes to standard error.
    done = run(*keep, "--replace", "--json", "-")
    assert done.exit_code == 0
    made = json.loads(done.out)
    assert re.search(r"in place of the one of 20\d\d-\d\d-\d\d: modelperf profiles", done.err)
    assert document_of("--show", "x", model="models/other.onnx")["profile"] == made


def test_a_profile_of_which_nothing_was_measured_is_not_kept() -> None:
    failing = ("--engine-option", "at=1", "--engine-option", "do=fail")
    done = run("profile", "models/net.onnx", *FAULTY, *failing, "--name", "bad", *QUICK)
    assert done.exit_code == 3
    assert done.out.endswith("bad is not kept: no case was measured\n")
    assert profiles("--show", "bad").exit_code == 2


def test_another_model_under_the_same_path_is_marked(project: Path) -> None:
    model = "models/changing.onnx"
    save(model)
    keep_copy(project, "old", "profiles/models--changing")
    assert document_of(model=model)["profiles"][1]["is_older_model"] is False
    save(model, seed=1)
    assert document_of(model=model)["profiles"][1]["is_older_model"] is True
    assert names(profiles(model=model).out) == ["flops", "old *"]
    assert "a different version of the model file" in profiles("--show", "old", model=model).out
    # Profiles of a model that is gone are still there.
    Path(model).unlink()
    listed = profiles(model=model)
    assert listed.exit_code == 2
    assert names(listed.out) == ["old"]
    assert "flops: " in listed.out


def test_a_broken_profile_is_listed_with_the_others(project: Path) -> None:
    broken = project / "profiles" / "models--net" / "broken.json"
    broken.write_text("{")
    try:
        listed = profiles()
        assert listed.exit_code == 2
        assert names(listed.out) == ["flops", "a", "b"]
        assert "broken.json, line 1: " in listed.out
        assert profiles("--show", "broken").exit_code == 2
        assert profiles("--remove", "broken").out == "removed broken of models/net.onnx\n"
    finally:
        broken.unlink(missing_ok=True)
    assert profiles().exit_code == 0


def test_all_are_removed_or_none(project: Path) -> None:
    place = ("--profile-dir", "elsewhere")
    kept = run("profile", "models/other.onnx", "--name", "one", *place, *QUICK)
    assert kept.out.endswith("modelperf profiles models/other.onnx --profile-dir elsewhere\n")
    keep_copy(project, "two", "elsewhere/models--other")
    model = "models/other.onnx"
    refused = profiles("--remove", "one", "--remove", "tow", *place, model=model)
    assert refused.exit_code == 2
    assert "Did you mean 'two'?" in refused.err
    assert len(document_of(*place, model=model)["profiles"]) == 3
    done = profiles("--remove", "one", "--remove", "two", *place, model=model)
    assert done.out == "removed one of models/other.onnx\nremoved two of models/other.onnx\n"
    assert list((project / "elsewhere").iterdir()) == []
    assert "none is kept" in profiles(*place, model=model).out


def test_a_model_whose_shapes_are_open_is_listed_with_its_reason() -> None:
    save("models/sequence.onnx", SEQUENCE)
    model = "models/sequence.onnx"
    assert profiles(model=model).exit_code == 2
    kept = run("profile", model, "--dim", "seq=4", "--name", "short", *QUICK)
    assert kept.exit_code == 0
    listed = profiles(model=model)
    assert listed.exit_code == 2
    assert names(listed.out) == ["short"]
    assert "--dim seq=" in listed.out
    assert profiles("--dim", "seq=4", model=model).exit_code == 0


def test_a_function_is_kept_without_figures_of_a_graph() -> None:
    function = "tests.support.functions:work"
    command = f"modelperf profile {function} --engine callable --name baseline"
    assert profiles(model=function).out.splitlines()[-1].endswith(f": {command}")
    kept = run("profile", function, "--engine", "callable", "--name", "f", *QUICK)
    assert kept.exit_code == 0, kept.err
    listed = profiles(model=function)
    assert (listed.exit_code, listed.err) == (0, "")
    assert names(listed.out) == ["f"]
    refused = profiles("--compare", "flops", "f", model=function)
    assert "no times of layers" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--show", "a", "--remove", "a"), "exclude each other"),
        (("--remove", "a", "--json", "-"), "--remove writes nothing"),
        (("--remove", "a", "--html", "-"), "--remove writes nothing"),
        (("--compare", "a", "a"), "not a twice"),
        (("--show", "a", "--batch", "2"), "give flops its shapes"),
        (("--compare", "a", "c"), "there is no profile 'c'. "),
        # One listed name has flops in it, and the other does not.
        (("--show", "c"), "'c'. There are: flops, a, b. To list them: "),
        (("--remove", "c"), "'c'. Kept are: a, b. To list them: "),
        (("--show", "flops", "--engine", "tensorrt"), "there is no engine 'tensorrt'"),
        (("--remove", "flops"), "always there"),
        (("--show", "a", "--cores", "2"), "roofline of flops"),
    ],
)
def test_meaningless_arguments_are_refused(arguments: tuple[str, ...], message: str) -> None:
    done = profiles(*arguments)
    assert done.exit_code == 2
    assert message in done.err
    assert len(document_of()["profiles"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--static", "--name", "c"), "leave out --static"),
        (("--replace",), "give --name as well"),
        (("--profile-dir", "x"), "give --name as well"),
    ],
)
def test_options_of_keeping_want_a_run_and_a_name(arguments: tuple[str, ...], message: str) -> None:
    assert message in refusal("profile", "models/net.onnx", *arguments)
