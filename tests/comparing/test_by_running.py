"""Two models judged by a duet: verdicts, exit codes, baselines, and two interpreters."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.document import store_case
from pytest_modelperf.baselines.recording import PROCESSES
from pytest_modelperf.baselines.records import BaselineRecording, StoredCase
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.comparing import settled
from pytest_modelperf.comparing.by_running import Details
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure_digest import digest_structure
from pytest_modelperf.graph.twin import make_twin, twin_bytes
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.given import read_given
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.command import Result, run
from tests.support.doubted_twin import doubted
from tests.support.facts import make_provenance
from tests.support.installed import install
from tests.support.known import known
from tests.support.recordings import record_baseline
from tests.support.simulated import simulate
from tests.support.small_models import ones, parse, save_beside

MODEL = "g (float[N,16] x) => (float[N,8] y) { [product] y = MatMul(x, w) }"
# Time enough for an answer on a machine that has much else to do: it is over with the answer.
TIMED = ("--plugin", "tests.support.faulty_plugin", "--engine", "timed", "--max-seconds", "30")
# For tests that do not depend on the answer.
QUICK = ("--max-seconds", "0.3")


def save(name: str, weight: float = 1.0) -> None:
    Path(name).write_bytes(parse(MODEL, weights={"w": weight * ones(16, 8)}).SerializeToString())


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of models that differ in a weight, and in the time that their names say."""
    path = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        simulate(patch)
        names = (
            "base.onnx",
            "equal_200us.onnx",
            "slow_400us.onnx",
            "fast_100us.onnx",
            "crash.onnx",
        )
        for number, name in enumerate(names, 1):
            save(name, number)
        yield path


def compared(*arguments: str) -> tuple[Result, dict[str, Any]]:
    result = run("compare", *TIMED, *arguments, "--json", "-")
    document: dict[str, Any] = json.loads(result.out)
    return result, document


def metric(document: dict[str, Any], name: str) -> dict[str, Any]:
    (case,) = document["cases"]
    return next(m for m in case["metrics"] if m["name"] == name)


def test_a_model_that_takes_twice_as_long_regressed() -> None:
    result, document = compared("base.onnx", "slow_400us.onnx")
    assert result.exit_code == 1
    assert document["verdict"] == "regressed"
    found = metric(document, "latency_p50")
    assert found["verdict"] == "regressed"
    assert found["ratio"] == pytest.approx(2.0, rel=0.01)
    assert found["interval"][0] > 1.03
    assert (document["tolerance"], document["confidence"]) == (0.03, 0.982)
    assert document["rounds"] >= 6
    assert document["cases"][0]["how"] == "duet"
    assert metric(document, "macs")["verdict"] == "passed"


@pytest.mark.parametrize(
    ("ratio", "verdict", "wanted"),
    [
        (1.04, Verdict.INCONCLUSIVE, True),
        (1.02, Verdict.INCONCLUSIVE, False),
        (1.04, Verdict.REGRESSED, True),
        (1.02, Verdict.PASSED, False),
    ],
)
def test_layers_are_wanted_if_the_estimate_is_beyond_the_tolerance(
    ratio: float,
    verdict: Verdict,
    wanted: bool,  # noqa: FBT001  # a parameter
) -> None:
    metric = Metric("latency_p50", 1.0, ratio, verdict, allowed=0.03)
    assert Details.WHEN_WORSE.are_wanted([metric]) == wanted
    hidden = replace(metric, awaited=False)
    assert Details.WHEN_WORSE.are_wanted([hidden]) == (verdict is Verdict.REGRESSED)


OTHERWISE = {
    "half as long": (("base.onnx", "fast_100us.onnx"), "improved", 0.5),
    "a tolerance that is wide enough": (
        ("base.onnx", "slow_400us.onnx", "--tolerance", "200 %"), "passed", 2.0
    ),
    "two interpreters": (
        ("base.onnx", "slow_400us.onnx", "--python-a", sys.executable), "regressed", 2.0
    ),
    "options of the second side": (
        ("base.onnx", "base.onnx", "--engine-option-b", "times=base=400"), "regressed", 2.0
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "verdict", "ratio"), OTHERWISE.values(), ids=OTHERWISE)
def test_the_second_side_is_judged_by_its_time(
    arguments: tuple[str, ...], verdict: str, ratio: float
) -> None:
    result, document = compared(*arguments)
    assert result.exit_code == int(verdict == "regressed")
    found = metric(document, "latency_p50")
    assert (found["verdict"], found["ratio"]) == (verdict, pytest.approx(ratio, rel=0.02))


def test_the_same_bytes_are_unchanged_and_run_nothing() -> None:
    Path("copy.onnx").write_bytes(Path("base.onnx").read_bytes())
    result, document = compared("base.onnx", "copy.onnx")
    assert (result.exit_code, document["verdict"], document["rounds"]) == (0, "unchanged", None)
    assert document["cases"][0]["how"] is None


def save_with_weights(folder: Path, weight: float) -> Path:
    """The file with the weights of `m.onnx`, whose own bytes are always the same."""
    folder.mkdir(exist_ok=True)
    return save_beside(parse(MODEL, weights={"w": weight * ones(16, 8)}), folder / "m.onnx")


def test_counts_that_only_a_run_completes_are_not_open_if_nothing_changed(tmp_path: Path) -> None:
    model = tmp_path / "open.onnx"
    text = "g (float[4] x) => (int64[1,n] y) { y = NonZero (x) }"
    model.write_bytes(parse(text).SerializeToString())
    _, document = compared(str(model), str(model))
    assert document["verdict"] == "unchanged"
    assert {found["verdict"] for found in document["cases"][0]["metrics"]} == {"passed"}


def test_the_same_graph_with_other_external_weights_has_changed(tmp_path: Path) -> None:
    for name, weight in (("before", 1), ("same", 1), ("other", 2)):
        save_with_weights(tmp_path / name, weight)
    models = [str(tmp_path / name / "m.onnx") for name in ("before", "same", "other")]
    assert len({Path(model).read_bytes() for model in models}) == 1
    _, same = compared(*models[:2])
    assert (same["verdict"], same["rounds"]) == ("unchanged", None)
    _, other = compared(models[0], models[2], *QUICK)
    assert other["verdict"] != "unchanged"
    assert other["rounds"] >= 1


def test_a_side_that_does_not_run_is_a_failure_and_no_verdict() -> None:
    result, document = compared("base.onnx", "crash.onnx")
    assert result.exit_code == 3
    # Without a report the reason would not be shown.
    assert "b1-c1: " in result.err
    assert "RuntimeError: it does not load" in result.err
    assert "RuntimeError: it does not load" in document["cases"][0]["failure"]
    assert document["cases"][0]["how"] is None
    assert document["cases"][0]["verdict"] is None
    text = run("compare", "base.onnx", "crash.onnx", *TIMED)
    assert text.exit_code == 3
    assert "it does not load" in text.out


@pytest.mark.parametrize(
    ("models", "side", "whose"),
    [
        (("base.onnx", "crash_relu.onnx"), "after", "the model now: "),
        (("crash_relu.onnx", "base.onnx"), "before", "the model before: "),
    ],
)
@pytest.mark.parametrize("more", [(), ("--python-a", sys.executable)], ids=["shared", "split"])
def test_a_failure_names_its_side_and_a_model_that_fails_improves_nothing(
    models: tuple[str, str], side: str, whose: str, more: tuple[str, ...]
) -> None:
    relu = parse("g (float[N,16] x) => (float[N,16] y) { y = Relu(x) }")
    Path("crash_relu.onnx").write_bytes(relu.SerializeToString())
    result, document = compared(*models, *more)
    (case,) = document["cases"]
    assert case["failed_side"] == side
    assert case["failure"].startswith(whose)
    assert whose in result.err
    assert "improved" not in [each["verdict"] for each in case["metrics"]]


@pytest.mark.slow
def test_the_second_side_can_have_an_engine_of_its_own() -> None:
    result, document = compared("base.onnx", "base.onnx", "--engine-b", "onnxruntime", *QUICK)
    assert result.exit_code in {0, 1}
    first, last = document["engines"]
    assert first == "timed 1"
    assert last.startswith("onnxruntime ")


def test_a_second_engine_that_is_not_installed_says_how_to_run_it() -> None:
    result = run("compare", *TIMED, "base.onnx", "base.onnx", "--engine-b", "lost")
    assert result.exit_code == 3
    assert "pip install lost. Or give --requirement-b" in result.err


@pytest.mark.parametrize("option", ["--engine-b", "--engine-option-b", "--python-a", "--python-b"])
def test_options_of_a_run_are_refused_with_static(option: str) -> None:
    result = run("compare", "base.onnx", "base.onnx", "--static", option, "a=b")
    assert (result.exit_code, result.out) == (2, "")
    assert f"leave out --static or {option}" in result.err


@pytest.mark.parametrize("option", ["--python-a", "--python-b"])
def test_an_interpreter_that_is_not_there_is_wrong_usage(option: str) -> None:
    refused = run("compare", "base.onnx", "slow_400us.onnx", option, "no/such/python")
    assert refused.exit_code == 2
    assert refused.err == (
        f"Error: {option} names no/such/python, which is not a program that can be run. Give the "
        "path of a Python interpreter, such as old-venv/bin/python.\n"
    )


@pytest.mark.parametrize("option", ["--python-a", "--python-b", "--requirement-a"])
def test_no_side_runs_on_another_machine_than_the_other(option: str) -> None:
    gateway = ("--gateway", "ssh=board")
    refused = run("compare", "base.onnx", "base.onnx", option, sys.executable, *gateway)
    assert refused.exit_code == 2
    assert f"{option} runs a model on this machine, and --gateway on another one" in refused.err


@pytest.mark.slow
def test_the_same_model_in_two_interpreters_is_not_unchanged() -> None:
    _, document = compared("base.onnx", "base.onnx", "--python-b", sys.executable, *QUICK)
    assert document["rounds"] >= 1


@pytest.mark.slow
def test_outputs_on_the_same_inputs_are_compared() -> None:
    result = run("compare", "base.onnx", "slow_400us.onnx", *QUICK, "--json", "-")
    (output,) = json.loads(result.out)["cases"][0]["outputs"]
    assert output["name"] == "y"
    assert output["max_relative"] == pytest.approx(2 / 3, rel=1e-3)
    assert output["cosine"] == pytest.approx(1.0)


@pytest.mark.slow
def test_values_that_leave_the_macs_open_are_the_first_reason(tmp_path: Path) -> None:
    text = """g (float[8,16] x) => (float[n,4] y) {
        sum = ReduceSum <keepdims = 0> (x, axis)
        shifted = Add (sum, b)
        zero = Constant <value_float = 0.0> ()
        is_kept = Greater (shifted, zero)
        kept = Compress <axis = 0> (x, is_kept)
        y = MatMul (kept, w)
    }"""
    paths = []
    for kept in (8, 4):
        bias = np.where(np.arange(8) < kept, 1e6, -1e6).astype(np.float32)
        weights = {"b": bias, "w": ones(16, 4), "axis": np.array([1])}
        paths.append(tmp_path / f"{kept}.onnx")
        paths[-1].write_bytes(parse(text, weights=weights).SerializeToString())
    result = run("compare", *map(str, paths), *QUICK, "--json", "-")
    (case,) = json.loads(result.out)["cases"]
    (macs,) = (found for found in case["metrics"] if found["name"] == "macs")
    assert (macs["before"], macs["after"], macs["verdict"]) == (512, 256, "inconclusive")
    assert case["reasons"][0].endswith("values decide a branch, a trip count or a shape")


def test_a_size_is_given_to_the_side_that_has_the_dimension() -> None:
    text = "g (float[N,{width}] x) => (float[N,{width}] y) {{ [positive] y = Relu(x) }}"
    for name, width in (("fixed.onnx", 16), ("dynamic.onnx", "width")):
        Path(name).write_bytes(parse(text.format(width=width)).SerializeToString())
    for names in (("fixed.onnx", "dynamic.onnx"), ("dynamic.onnx", "fixed.onnx")):
        assert run("compare", *names, "--dim", "width=16", "--static").exit_code == 0
    result, document = compared(*names, "--dim", "width=16", *QUICK)
    assert result.exit_code == 0, result.err
    assert document["cases"][0]["id"] == "b1-c1"
    assert not [note for note in document["cases"][0]["notes"] if "input" in note]
    _, document = compared("fixed.onnx", "dynamic.onnx", "--dim", "width=8", *QUICK)
    assert "the input x is 1x16 before and 1x8 now" in document["cases"][0]["notes"]
    several = run("compare", "fixed.onnx", "dynamic.onnx", "--dim", "width=16,32")
    assert several.exit_code == 2
    assert "fixed.onnx has no dimension 'width' in its inputs." in several.err
    neither = run("compare", "fixed.onnx", "dynamic.onnx", "--dim", "wide=16")
    assert neither.exit_code == 2
    assert "fixed.onnx has no dimension 'wide' in its inputs." in neither.err


@pytest.mark.parametrize("more", [(), ("--static",)])
def test_different_batch_sizes_are_not_compared(more: tuple[str, ...]) -> None:
    text = "g (float[{batch},16] x) => (float[{batch},16] y) {{ [positive] y = Relu(x) }}"
    for name, batch in (("four.onnx", 4), ("any.onnx", "N")):
        Path(name).write_bytes(parse(text.format(batch=batch)).SerializeToString())
    refused = run("compare", "four.onnx", "any.onnx", *more)
    assert refused.exit_code == 2
    assert refused.err == (
        "Error: four.onnx runs at batch sizes 4 and any.onnx at 1: they cannot be compared. Give "
        "both the same with --batch.\n"
    )
    assert run("compare", "four.onnx", "any.onnx", "--batch", "4", "--static").exit_code == 0


def test_a_report_in_markdown_names_the_verdict(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    result = run("compare", "base.onnx", "slow_400us.onnx", *TIMED, "--markdown", str(report))
    assert result.exit_code == 1
    assert "regressed" in report.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recording(folder: Path) -> BaselineRecording:
    assert folder.is_dir()
    return record(Path("base.onnx"))


def record(model: Path) -> BaselineRecording:
    engine = EngineModule("timed", "tests.support.timed")
    setup = Setup(engine=engine, policy=SamplingPolicy(max_seconds=30.0))
    return record_baseline("base", str(model), ProfileRequest(), setup, dt.date(2026, 1, 31))


def store(recording: BaselineRecording, root: Path) -> str:
    place = BaselineStore(root)
    place.apply(plan_update(place.read("base"), recording))
    return str(root / "base")


def test_a_recording_has_a_twin_and_one_process_if_they_are_trusted(
    recording: BaselineRecording,
) -> None:
    (case,) = recording.cases
    assert recording.twin is not None
    assert known(case.static).macs == 16 * 8
    assert case.fidelity is not None
    # The engine of the tests returns no plan, so its twin has to be shown to be near.
    assert (case.fidelity.is_trusted, case.fidelity.has_same_plan) == (True, None)
    (latency,) = known(recording.machine).cases.values()
    assert len(latency.processes) == 1
    assert known(case.provenance).packages["timed"] == "1"


def test_a_baseline_without_a_twin_says_why_there_is_none() -> None:
    twin = twin_bytes(make_twin(open_model("base.onnx")))
    Path("twin.onnx").write_bytes(twin)
    recording = record(Path("twin.onnx"))
    after = known(plan_update(None, recording).after)
    assert after.model.twin is None
    refusal = after.model.twin_refusal("b1-c1") or ""
    assert refusal.startswith("no twin could be made: twin.onnx ")


def test_without_a_trusted_twin_several_processes_are_recorded(folder: Path) -> None:
    """The twin, which has no time in its name, takes half as long."""
    recording = record(folder / "slow_400us.onnx")
    assert not known(recording.cases[0].fidelity).is_trusted
    (latency,) = known(recording.machine).cases.values()
    assert len(latency.processes) == PROCESSES


def stored_of(profile: Profile, path: Path) -> StoredCase:
    """The first case of a profile as it is stored."""
    structure = digest_structure(open_model(str(path)))
    origin = make_provenance(dt.date(2026, 1, 31))
    return store_case(profile.cases[0], profile.model, origin, structure)


def trusted(recording: BaselineRecording) -> BaselineRecording:
    """The recording with a fidelity that does not hang on the noise of this machine."""
    (case,) = recording.cases
    fidelity = replace(known(case.fidelity), is_trusted=True, reason=None)
    return replace(recording, cases=(replace(case, fidelity=fidelity),))


def steady(recording: BaselineRecording, ns: int = 200_000) -> BaselineRecording:
    """The recording as if this machine had been quiet: each process took the same time."""
    assert recording.machine is not None
    (latency,) = recording.machine.cases.values()
    processes = tuple(
        replace(p, times_ns=tuple((ns,) * len(times) for times in p.times_ns))
        for p in latency.processes * PROCESSES
    )
    cases = dict.fromkeys(recording.machine.cases, replace(latency, processes=processes))
    return replace(recording, machine=replace(recording.machine, cases=cases))


def test_a_slower_model_regressed_against_the_twin(
    recording: BaselineRecording, tmp_path: Path
) -> None:
    result, document = compared(store(trusted(recording), tmp_path), "slow_400us.onnx")
    assert result.exit_code == 1
    assert metric(document, "latency_p50")["verdict"] == "regressed"
    assert document["before"]["name"] == "base.onnx"
    assert any(
        "on this machine" in n and "when it was recorded" in n
        for n in document["cases"][0]["notes"]
    )
    assert document["cases"][0]["outputs"] == []


def test_the_baseline_may_be_in_the_working_folder(
    recording: BaselineRecording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(Path("base.onnx").absolute())
    monkeypatch.chdir(store(trusted(recording), tmp_path))
    result = run("compare", ".", model, "--static")
    assert (result.exit_code, result.err) == (0, "")


@pytest.mark.parametrize("options", [(), ("--static",)])
def test_a_case_that_was_not_recorded_is_new(
    recording: BaselineRecording, tmp_path: Path, options: tuple[str, ...]
) -> None:
    baseline = store(trusted(recording), tmp_path)
    result, document = compared(baseline, "equal_200us.onnx", "--batch", "4", *options)
    assert (result.exit_code, document["verdict"]) == (0, "new")
    assert document["cases"][0]["reasons"] == ["there is no baseline of b4-c1"]
    assert document["cases"][0]["notes"] == []


def disturb(monkeypatch: pytest.MonkeyPatch, *what: str) -> None:
    """Make just that be what disturbed this machine."""
    # Disturbances depend on everything else that runs on the machine.
    monkeypatch.setattr(settled, "find_noise", lambda *_: dict.fromkeys(what, ""))


def test_without_a_trusted_twin_what_was_stored_decides(
    recording: BaselineRecording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch)
    baseline = store(doubted(steady(recording)), tmp_path)
    result, document = compared(baseline, "slow_400us.onnx")
    found = metric(document, "latency_p50")
    assert "not run as a duet: the twin runs otherwise" in document["cases"][0]["notes"][0]
    assert found["verdict"] == "regressed"
    assert found["interval"][0] > 1.03
    assert document["cases"][0]["how"] == "stored"
    assert result.exit_code == 1
    for name in ("load_ms", "first_inference_ms"):
        start = metric(document, name)
        assert (start["gated"], start["allowed"]) == (True, 0.15)
        assert start["before"] > 0
        assert start["after"] > 0
        assert start["interval"][0] < start["ratio"] < start["interval"][1]


def test_the_times_of_an_older_model_say_nothing_of_the_recorded_one(
    recording: BaselineRecording, tmp_path: Path
) -> None:
    """The state after an update on another kind of machine, which leaves the file of this one."""
    assert recording.machine is not None
    times = recording.machine.cases.items()
    older = {case: replace(latency, model_sha256="0" * 64) for case, latency in times}
    recording = replace(recording, machine=replace(recording.machine, cases=older))
    alone = store(doubted(recording), tmp_path / "doubted")
    _, document = compared(alone, "slow_400us.onnx", *QUICK)
    (case,) = document["cases"]
    assert (case["verdict"], case["how"]) == ("inconclusive", None)
    assert "no times of the recorded model are stored" in case["notes"][0]
    median = metric(document, "latency_p50")
    assert (median["verdict"], median["before"], median["ratio"]) == ("inconclusive", None, None)
    assert median["after"] > 0
    twin = store(trusted(recording), tmp_path / "trusted")
    _, document = compared(twin, "slow_400us.onnx", *QUICK)
    assert ran_as_a_duet(document)
    assert not any("when it was recorded" in note for note in document["cases"][0]["notes"])


def test_times_of_another_engine_say_nothing_about_this_machine(
    recording: BaselineRecording, tmp_path: Path
) -> None:
    machine = known(recording.machine)
    ((name, latency),) = machine.cases.items()

    def has_note(folder: str, version: str | None) -> bool:
        cases = {name: replace(latency, engine=replace(latency.engine, version=version))}
        stored = store(
            trusted(replace(recording, machine=replace(machine, cases=cases))), tmp_path / folder
        )
        _, document = compared(stored, "slow_400us.onnx", *QUICK)
        return any("when it was recorded" in note for note in document["cases"][0]["notes"])

    assert has_note("same", latency.engine.version)
    assert not has_note("other", "0.9")


def test_recorded_times_of_zero_are_not_divided_by(
    recording: BaselineRecording, tmp_path: Path
) -> None:
    baseline = store(trusted(steady(recording, ns=0)), tmp_path)
    _, document = compared(baseline, "slow_400us.onnx", *QUICK)
    assert ran_as_a_duet(document)


@pytest.mark.parametrize("option", ["--python-a", "--python-b"])
def test_without_a_trusted_twin_no_side_has_a_python_of_its_own(
    option: str, recording: BaselineRecording, tmp_path: Path
) -> None:
    baseline = store(doubted(recording), tmp_path)
    result = run("compare", *TIMED, baseline, "equal_200us.onnx", option, sys.executable)
    assert (result.exit_code, result.out) == (2, "")
    assert "b1-c1 cannot run in a Python of its own: the twin runs otherwise" in result.err
    assert "leave out --python-a and --python-b" in result.err


def test_slower_than_what_was_stored_shows_nothing_on_a_machine_that_was_disturbed(
    recording: BaselineRecording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch, "other processes took 40 % of its processors")
    baseline = store(doubted(steady(recording)), tmp_path)
    result, document = compared(baseline, "slow_400us.onnx")
    assert metric(document, "latency_p50")["verdict"] == "inconclusive"
    assert "other processes took 40 %" in document["cases"][0]["notes"][0]
    assert result.exit_code == 0


def test_the_command_that_records_again_has_the_engine_and_the_folder_that_were_typed(
    recording: BaselineRecording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch, "other processes took 40 % of its processors")
    baseline = store(doubted(steady(recording)), tmp_path)
    shown = run("compare", *TIMED, baseline, "slow_400us.onnx").out
    typed = f"--modelperf-baseline-dir={tmp_path} --modelperf-engine=timed"
    command = f"pytest --modelperf --modelperf-update-baseline {typed}"
    assert f"record the baseline again with {command} when" in " ".join(shown.split())


OPEN = """
    g (float[N,height,width] x) => (float[N,height,width] y) { [positive] y = Relu(x) }
"""
TALL, TALLER = {"height": 2, "width": 4}, {"height": 3, "width": 4}
AS_RECORDED = {
    "one size": ({"b1-c1": TALL}, (), ["b1-c1"]),
    "several": ({"b1-c1-height2": TALL, "b1-c1-height3": TALLER}, (), None),
    "one is named": ({"b1-c1-height3": TALLER}, (), None),
    # In ids as a test gave them, and stored by their names.
    "in their order": ({"b1-c1-width4-height2": TALL, "b1-c1-width4-height3": TALLER}, (), None),
    "one is given": ({"b1-c1": TALLER}, ("--dim", "height=3"), ["b1-c1"]),
    "shapes are given": ({"b1-c1": TALLER}, ("--input", "x:f32:1x3x4"), ["b1-c1"]),
}


@pytest.mark.parametrize(("recorded", "options", "ids"), AS_RECORDED.values(), ids=AS_RECORDED)
@pytest.mark.parametrize("how", ["--static", "--max-seconds=30"])
def test_dimensions_have_the_sizes_that_were_recorded(
    recorded: dict[str, dict[str, int]],
    options: tuple[str, ...],
    ids: list[str] | None,
    how: str,
    tmp_path: Path,
) -> None:
    model = tmp_path / "open.onnx"
    model.write_bytes(parse(OPEN).SerializeToString())
    profile = profile_model(str(model), ProfileRequest(dims={"height": (2,), "width": (4,)}))
    case = stored_of(profile, model)
    cases = tuple(replace(case, id=name, dims=dims) for name, dims in recorded.items())
    baseline = store(BaselineRecording(name="base", model=profile.model, cases=cases), tmp_path)
    _, document = compared(baseline, str(model), *options, how)
    assert [found["id"] for found in document["cases"]] == (ids or list(recorded))
    # It is unknown which dimensions given shapes hold.
    assert ("new" in {found["verdict"] for found in document["cases"]}) == ("--input" in options)


@pytest.mark.parametrize("how", ["--static", "--max-seconds=30"])
def test_a_case_that_was_recorded_at_other_dimensions_is_new(how: str, tmp_path: Path) -> None:
    model = tmp_path / "open.onnx"
    model.write_bytes(parse(OPEN).SerializeToString())
    profile = profile_model(str(model), ProfileRequest(dims={"height": (2,), "width": (4,)}))
    stored = replace(stored_of(profile, model), dims=TALL)
    recording = BaselineRecording(name="base", model=profile.model, cases=(stored,))
    _, document = compared(store(recording, tmp_path), str(model), "--dim", "height=3", how)
    (found,) = document["cases"]
    assert found["verdict"] == "new"
    assert (
        "recorded at other dimensions: height=2, width=4. Now: height=3, width=4. Give the same"
    ) in str(found)


@pytest.mark.parametrize("how", ["--static", "--max-seconds=30"])
def test_a_case_that_was_recorded_on_other_inputs_is_new(how: str, tmp_path: Path) -> None:
    model = tmp_path / "open.onnx"
    model.write_bytes(parse(OPEN).SerializeToString())
    for width in (4, 64):
        np.savez(tmp_path / f"{width}.npz", x=np.ones((1, 2, width), np.float32))
    request = ProfileRequest(given=read_given(tmp_path / "4.npz"))
    profile = profile_model(str(model), request)
    case = stored_of(profile, model)
    given = Model.load(str(model), request, Extensions()).given_inputs
    recording = BaselineRecording(
        name="base", model=profile.model, cases=(replace(case, inputs=given),)
    )
    baseline = store(recording, tmp_path)
    _, same = compared(baseline, str(model), "--input-file", str(tmp_path / "4.npz"), how)
    assert same["verdict"] != "new"
    _, other = compared(baseline, str(model), "--input-file", str(tmp_path / "64.npz"), how)
    assert other["verdict"] == "new"
    assert "Now: x:float32:1x2x64." in str(other["cases"][0])


# Names of dimensions, of which one begins like the other or like the cores of a case, and ids.
ALIKE = {
    "the other": (("size", "size1"), ("b1-c1-size12", "b1-c1-size13")),
    "the cores": (("c", "size"), ("b1-c1-size2", "b1-c1-size3")),
}


@pytest.mark.parametrize(("names", "ids"), ALIKE.values(), ids=ALIKE)
def test_a_dimension_is_not_named_by_what_looks_like_it_in_an_id(
    names: tuple[str, str], ids: tuple[str, ...], tmp_path: Path
) -> None:
    fixed, varied = names
    model = tmp_path / "open.onnx"
    text = OPEN.replace("height", fixed).replace("width", varied)
    model.write_bytes(parse(text).SerializeToString())
    request = ProfileRequest(dims={fixed: (1,), varied: (2,)})
    profile = profile_model(str(model), request)
    case = stored_of(profile, model)
    cases = tuple(
        replace(case, id=name, dims={fixed: 1, varied: size})
        for name, size in zip(ids, (2, 3), strict=True)
    )
    baseline = store(BaselineRecording(name="base", model=profile.model, cases=cases), tmp_path)
    _, document = compared(baseline, str(model), "--static")
    assert tuple(found["id"] for found in document["cases"]) == ids
    assert document["verdict"] == "passed"


def test_a_folder_without_a_baseline_is_wrong_usage(tmp_path: Path) -> None:
    result = run("compare", str(tmp_path), "base.onnx", *TIMED)
    assert result.exit_code == 2
    assert "Error: " in result.err


def test_weights_of_a_baseline_do_not_matter_to_a_twin(
    recording: BaselineRecording, tmp_path: Path
) -> None:
    """Only the work does: the twin has weights of its own."""
    baseline = store(trusted(recording), tmp_path)
    _, document = compared(baseline, "equal_200us.onnx", "--tolerance", "100 %")
    assert document["verdict"] == "passed"
    assert np.isclose(metric(document, "macs")["ratio"], 1.0)


def test_the_stored_facts_of_the_graph_decide_if_there_is_no_twin(
    recording: BaselineRecording, tmp_path: Path
) -> None:
    baseline = store(replace(recording, twin=None, machine=None), tmp_path)
    larger = parse(MODEL.replace("[N,8]", "[N,16]"), weights={"w": ones(16, 16)})
    Path("larger.onnx").write_bytes(larger.SerializeToString())
    result, document = compared(baseline, "larger.onnx")
    assert result.exit_code == 1
    found = metric(document, "macs")
    assert (found["before"], found["after"], found["verdict"]) == (128, 256, "regressed")


def test_only_a_case_of_this_very_model_and_engine_is_unchanged(
    recording: BaselineRecording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "packages", "timed", "1")
    baseline = store(trusted(recording), tmp_path)
    _, same = compared(baseline, "base.onnx")
    assert same["verdict"] == "unchanged"
    _, other = compared(baseline, "base.onnx", "--engine-option", "speed=high", *QUICK)
    assert other["verdict"] != "unchanged"
    _, model = compared(baseline, "equal_200us.onnx", *QUICK)
    assert model["verdict"] != "unchanged"


def ran_as_a_duet(document: dict[str, Any]) -> bool:
    (case,) = document["cases"]
    return bool(case["rounds"]) and not any("not run as a duet" in note for note in case["notes"])


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BaselineRecording]:
    """A folder with a model that has its weights in a file next to it, and its recording."""
    folder = tmp_path_factory.mktemp("external")
    save_with_weights(folder, 1)
    return folder, record(folder / "m.onnx")


def test_a_case_that_was_recorded_with_other_external_weights_runs(
    external: tuple[Path, BaselineRecording],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, tmp_path / "packages", "timed", "1")
    folder, recording = external
    baseline = store(trusted(recording), tmp_path / "baselines")
    _, same = compared(baseline, str(folder / "m.onnx"))
    assert (same["verdict"], same["rounds"]) == ("unchanged", None)
    save_with_weights(tmp_path, 2)
    assert (tmp_path / "m.onnx").read_bytes() == (folder / "m.onnx").read_bytes()
    _, other = compared(baseline, str(tmp_path / "m.onnx"), "--tolerance", "100 %")
    assert (other["verdict"], ran_as_a_duet(other)) == ("passed", True)


def test_a_baseline_that_knows_the_graph_alone_is_judged_by_its_twin(
    external: tuple[Path, BaselineRecording],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Digests did not cover external data when it was recorded."""
    install(monkeypatch, tmp_path / "packages", "timed", "1")
    folder, recording = external
    digest = hashlib.sha256((folder / "m.onnx").read_bytes()).hexdigest()
    recording = trusted(recording)
    older = replace(
        recording,
        model=replace(recording.model, sha256=digest),
        cases=tuple(replace(case, model_sha256=digest) for case in recording.cases),
    )
    _, document = compared(store(older, tmp_path), str(folder / "m.onnx"), "--tolerance", "100 %")
    assert (document["verdict"], ran_as_a_duet(document)) == ("passed", True)


def test_a_stored_case_can_be_compared_without_a_run(
    recording: BaselineRecording, tmp_path: Path
) -> None:
    baseline = store(recording, tmp_path)
    result = run("compare", baseline, "equal_200us.onnx", "--static", "--json", "-")
    same = run("compare", baseline, "equal_200us.onnx", "--static", "--batch", "4", "--json", "-")
    larger = parse(
        "g (float[N,16] x) => (float[N,8] y) { h = MatMul(x, v) y = MatMul(h, w) }",
        weights={"v": ones(16, 16), "w": ones(16, 8)},
    )
    Path("larger.onnx").write_bytes(larger.SerializeToString())
    worse = run("compare", baseline, "larger.onnx", "--static", "--json", "-")
    verdicts = [json.loads(r.out)["verdict"] for r in (result, same, worse)]
    assert verdicts == ["passed", "new", "regressed"]
    assert (result.exit_code, worse.exit_code) == (0, 1)
