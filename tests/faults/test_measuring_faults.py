"""Faults while models are measured: each fails one case, with a message, and leaves nothing."""

from __future__ import annotations

import datetime as dt
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_modelperf.baselines.recording import merge_recordings, record_counts
from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.comparing.gates import Gate, latency_metrics
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import ChangedModelError, UsageError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.twin import make_twin
from pytest_modelperf.profiler.engines.source import ModuleSource
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace, unchanged
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY, SamplingPolicy
from pytest_modelperf.profiler.sampling.rounds import sample, sample_duet
from pytest_modelperf.profiler.worker.client import ProcessWorker
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.whatif.quantizing import quantize
from pytest_modelperf.whatif.records import WhatIf
from pytest_modelperf.whatif.request import WhatIfRequest
from tests.support.command import Result, run
from tests.support.fake_bench import MS, FakeBench, FakeClock, FakeDuetBench, S
from tests.support.full_disk import room_for
from tests.support.processes import children, ends, on_linux
from tests.support.project import assert_ended, read_json
from tests.support.small_models import ones, parse, save_beside, zero
from tests.support.timed_models import (
    JSON,
    TIMED,
    UPDATE,
    cases_of,
    test_of,
    write_timed,
    write_timed_models,
)
from tests.testing import conftest as plugin_conftest

MODEL = "g (float[N,64] x) => (float[N,{width}] y) {{ [product] y = MatMul(x, w) }}"
QUICK = ("--max-seconds", "0.3")
DISTURBING = ("--plugin", "tests.faults.disturbing", "--engine", "disturbing")
HOUR_NS = 3600 * S

# The requests of a worker, and words of its step, by the phase of the measurement.
STARTING = ("begin", "")
LOADING = ("open", "")
WARMING_UP = ("block", "(warm up)")
MEASURING = ("block", "(measure)")
TIMING_LAYERS = ("layers", "")
CLOSING = ("close", "")
READING_OUTPUTS = ("outputs", "")
SUMMING_UP = ("memory", "")


def weighted(width: int = 32, weight: float = 1.0) -> onnx.ModelProto:
    return parse(MODEL.format(width=width), weights={"w": weight * ones(64, width)})


def save(name: str, width: int = 32, weight: float = 1.0) -> Path:
    Path(name).write_bytes(weighted(width, weight).SerializeToString())
    return Path(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two models, in which a test runs."""
    monkeypatch.chdir(tmp_path)
    save("m.onnx")
    save("other.onnx", width=48)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_is_left(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """No file, process or lock of a measurement remains after it, whatever happened.

    The folder is that of temporary files.
    """
    files = tmp_path_factory.mktemp("files")
    monkeypatch.setenv("TMPDIR", str(files))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = children()
    yield files
    assert list(files.iterdir()) == []
    assert all(map(ends, children() - before))
    with measuring_alone(partial(pytest.fail, "the lock is still held")):
        pass


GiveSign = Callable[..., tuple[str, ...]]


@pytest.fixture
def disturb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> GiveSign:
    """Have the engine do something at a phase of the measurement; the arguments that it takes."""
    sign = folder / "sign"

    def at(
        phase: tuple[str, str], do: str, *, nth: int = 1, patience_s: float = 0.0, **more: str
    ) -> tuple[str, ...]:
        command, words = phase
        ask, left = ProcessWorker.ask, [None] * (nth - 1) + [sign]

        def ask_with_sign(
            self: ProcessWorker,
            asked: str,
            step: str,
            limit_s: float | None = None,
            **more: Any,  # noqa: ANN401  # as the method
        ) -> object:
            if left and asked == command and words in step and left.pop(0) == sign:
                sign.touch()
                limit_s = patience_s or limit_s
            return ask(self, asked, step, limit_s, **more)

        monkeypatch.setattr(ProcessWorker, "ask", ask_with_sign)
        options = {"sign": str(sign), "do": do, **more}
        given = (part for k, v in options.items() for part in ("--engine-option", f"{k}={v}"))
        return (*DISTURBING, *given)

    return at


def profiled(*arguments: str) -> tuple[Result, list[dict[str, Any]]]:
    """The command, and the cases of its JSON."""
    result = run("profile", "m.onnx", *QUICK, "--json", "out.json", *arguments)
    assert Path("out.json").exists(), result.err
    document = json.loads(Path("out.json").read_text("utf-8"))
    cases: list[dict[str, Any]] = document["cases"]
    return result, cases


@pytest.mark.slow
@on_linux
def test_memory_that_runs_out_fails_its_case_and_the_next_is_measured(folder: Path) -> None:
    """The worker may have 3 GB of addresses, and the first case wants 8 GB for its output."""
    limited = folder / "python"
    limited.write_text(f'#!/bin/sh\nulimit -v {3 << 20}\nexec "{sys.executable}" "$@"\n')
    limited.chmod(0o755)
    save(str(folder / "m.onnx"), width=1 << 15)
    result, (large, small) = profiled("--batch", "65536,1", "--gateway", f"popen//python={limited}")
    assert result.exit_code == 3
    assert large["outcome"] == "failed"
    assert large["reason"].startswith("memory ran out in round 1 ")
    assert small["outcome"] == "measured"


@pytest.mark.parametrize(
    ("phase", "step"),
    [
        (LOADING, "as the model was loaded"),
        (WARMING_UP, "in round 1 (warm up)"),
        (MEASURING, "in round 1 (measure)"),
    ],
)
def test_a_worker_that_falls_silent_fails_its_case_and_the_next_is_measured(
    disturb: GiveSign, phase: tuple[str, str], step: str
) -> None:
    result, (first, second) = profiled("--batch", "1,2", *disturb(phase, "hang", patience_s=0.2))
    assert result.exit_code == 3
    assert first["reason"].startswith(f"no answer for 0.2 s {step}: the worker was ended.")
    assert "--timeout" in first["reason"]
    assert second["outcome"] == "measured"


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("hang", "no layer times: no answer for 0.2 s in its profiled session"),
        ("die", "no layer times: the worker was killed by SIGKILL (killed) in its profiled"),
    ],
)
def test_measured_figures_stay_if_the_profiled_session_fails(
    disturb: GiveSign, do: str, said: str
) -> None:
    result, (case,) = profiled(*disturb(TIMING_LAYERS, do, patience_s=0.2 * (do == "hang")))
    assert result.exit_code == 0
    assert case["outcome"] == "measured"
    assert case["latency"]["samples"] > 0
    assert any(note.startswith(said) for note in case["notes"])


def quantizing_by(line: str) -> Callable[..., WhatIf]:
    """A what-if whose quantizer writes files, and goes on with this."""
    text = f"""
import os, signal, time

def quantize_file(source, target, form, feeds, folder, *, is_large):
    for path in (target, os.path.join(folder, "prepared.onnx")):
        open(path, "w").close()
    {line}
"""
    quantizer = partial(quantize, code=ModuleSource(text, "quantizer.py"))
    return partial(WhatIfRequest.run, quantizer=quantizer)


@pytest.mark.usefixtures("folder")
def test_a_quantizer_that_is_killed_fails_its_variant_and_the_others_go_on() -> None:
    killed = "if form == 'dynamic': os.kill(os.getpid(), signal.SIGKILL)"
    core = quantizing_by(f"{killed}\n    raise ValueError('of its own')")
    variants = ("--prune", "0.5", "--quantize", "int8")
    result = run("whatif", "m.onnx", *variants, *QUICK, *DISTURBING, "--json", "-", core=core)
    assert result.exit_code == 3
    (case,) = json.loads(result.out)["cases"]
    failures = {level["id"]: level["failure"] for level in case["levels"]}
    assert list(failures) == ["baseline", "pruned-0.5", "int8-dynamic", "int8-static"]
    assert (failures["baseline"], failures["pruned-0.5"]) == (None, None)
    assert {"SIGKILL", "quantizer."} <= set(failures["int8-dynamic"].split())
    assert failures["int8-static"].endswith("ValueError: of its own.")


CHANGES = [
    ("replace", "m.onnx was changed after it was opened"),
    ("overwrite", "m.onnx was changed after it was opened"),
    ("truncate", "m.onnx was changed after it was opened"),
    ("delete", "m.onnx was there when it was opened, and cannot be read any more: No such file"),
]


def places(victim: str = "m.onnx") -> dict[str, str]:
    """Which file is changed, and what takes its place, wherever a worker runs."""
    return {"victim": str(Path(victim).absolute()), "other": str(Path("other.onnx").absolute())}


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_model_that_changes_while_it_is_measured_is_not_mixed_with_another(
    disturb: GiveSign, change: str, said: str
) -> None:
    digest = open_model("m.onnx").sha256()
    result, cases = profiled("--batch", "1,2", *disturb(MEASURING, change, **places()))
    assert result.exit_code == 3
    for batch, case in enumerate(cases, 1):
        assert (case["outcome"], case["latency"]["p50_ms"]) == ("failed", None)
        assert case["reason"].startswith(said)
        assert case["static"]["macs"] == batch * 64 * 32
    document = json.loads(Path("out.json").read_text("utf-8"))
    assert document["model"]["sha256"] == digest


def test_figures_from_before_a_model_changed_are_kept(disturb: GiveSign) -> None:
    sign = disturb(STARTING, "replace", nth=2, **places())
    result, (first, second) = profiled("--batch", "1,2", *sign)
    assert result.exit_code == 3
    assert (first["outcome"], second["outcome"]) == ("measured", "failed")
    assert "m.onnx was changed" in second["reason"]


def test_weights_that_vanish_fail_each_case_that_they_spoil(
    folder: Path, disturb: GiveSign
) -> None:
    save_beside(weighted(), folder / "m.onnx", "w")
    result, cases = profiled("--batch", "1,2", *disturb(MEASURING, "delete", **places("w")))
    assert result.exit_code == 3
    for case in cases:
        assert case["reason"].startswith(f"{folder}/w was there when it was opened")


def test_a_comparison_whose_weights_vanish_fails_its_cases(folder: Path, disturb: GiveSign) -> None:
    save_beside(weighted(48), folder / "other.onnx", "w")
    sign = disturb(MEASURING, "delete", **places("w"))
    result = run("compare", "m.onnx", "other.onnx", "--batch", "1,2", *QUICK, *sign, "--json", "-")
    assert result.exit_code == 3
    for case in json.loads(result.out)["cases"]:
        assert case["failure"].startswith(f"{folder}/w was there when it was opened")


def test_variants_that_were_measured_before_a_model_changed_are_kept(disturb: GiveSign) -> None:
    # Each variant starts a worker that lists options of the engine, and one that runs it.
    sign = disturb(STARTING, "replace", nth=3, **places())
    command = ("whatif", "m.onnx", "--batch", "1,2,4", "--prune", "0.5", *QUICK, *sign)
    result = run(*command, "--json", "-")
    assert result.exit_code == 3
    first, *others = json.loads(result.out)["cases"]
    assert first["levels"][1]["failure"] is None
    for case in others:
        assert "m.onnx was changed" in case["levels"][1]["failure"]


@pytest.mark.parametrize("side", ["before.onnx", "m.onnx"])
def test_a_side_that_changes_while_both_run_gives_no_verdict(disturb: GiveSign, side: str) -> None:
    save("before.onnx", weight=2)
    sign = disturb(MEASURING, "replace", **places(side))
    result = run("compare", "before.onnx", "m.onnx", *QUICK, *sign, "--json", "-")
    (case,) = json.loads(result.out)["cases"]
    assert result.exit_code == 3
    assert not any(metric["name"].startswith("latency") for metric in case["metrics"])
    assert f"{side} was changed" in case["failure"]


def test_a_sweep_of_a_model_that_changes_has_no_figures_of_the_other(disturb: GiveSign) -> None:
    sign = disturb(LOADING, "replace", **places())
    result = run("sweep", "m.onnx", "--batch", "1,2", *QUICK, *sign, "--json", "-")
    document = json.loads(result.out)
    assert result.exit_code == 3
    for point in document["sides"][0]["configurations"]:
        assert (point["outcome"], point["latency"]["p50_ms"]) == ("failed", None)
        assert "m.onnx was changed" in point["reason"]


def test_a_worker_that_dies_as_it_ends_a_round_fails_one_configuration(disturb: GiveSign) -> None:
    sign = disturb(CLOSING, "die")
    result = run("sweep", "m.onnx", "--batch", "1,2", *QUICK, *sign, "--json", "-")
    assert result.exit_code == 3
    points = json.loads(result.out)["sides"][0]["configurations"]
    assert sorted(point["outcome"] for point in points) == ["failed", "measured"]


def test_the_external_weights_of_a_model_belong_to_it(folder: Path, disturb: GiveSign) -> None:
    save_beside(weighted(), folder / "m.onnx", "w")
    result, (case,) = profiled(*disturb(MEASURING, "overwrite", **places("w")))
    assert result.exit_code == 3
    assert case["reason"].startswith(f"{folder}/w was changed after it was opened")


def test_weights_that_change_before_a_model_runs_are_not_those_of_its_digest(folder: Path) -> None:
    weights = save_beside(weighted(), folder / "m.onnx", "w")
    model = Model.load("m.onnx", ProfileRequest(), Extensions())
    model.file.sha256()
    zero(weights)
    with pytest.raises(ChangedModelError, match="w was changed after"), unchanged(model):
        pass


def test_cases_of_other_weights_are_not_recorded_as_one_model(folder: Path) -> None:
    weights = save_beside(weighted(), folder / "m.onnx")
    place = CasePlace(Case(1, 1), 1, 1, lambda _: None)

    def counted() -> BaselineRecording:
        model = Model.load("m.onnx", ProfileRequest(), Extensions())
        return record_counts("m", model, dt.date(2026, 1, 31), place)

    parts = [counted()]
    zero(weights)
    parts.append(counted())
    assert merge_recordings([parts[0], parts[0]]).model == parts[0].model
    with pytest.raises(UsageError, match=r"^m\.onnx is not the same model in all cases"):
        merge_recordings(parts)


@pytest.mark.usefixtures("folder")
def test_a_disk_that_takes_no_copy_of_a_model_ends_only_what_needs_the_copy() -> None:
    text = MODEL.format(width=4096).replace("[product] ", "")
    nameless = parse(text, weights={"w": ones(64, 4096)})
    Path("m.onnx").write_bytes(nameless.SerializeToString())
    with room_for(1 << 19):
        result, (case,) = profiled(*DISTURBING)
    assert result.exit_code == 0, result.err
    assert case["outcome"] == "measured"
    (note,) = (each for each in case["notes"] if each.startswith("no layer times"))
    assert "the disk is full or cannot be written as a copy of the model was written" in note
    assert note.endswith("Free some space, or set TMPDIR to another folder.")


@pytest.mark.usefixtures("folder")
def test_a_model_that_is_cut_off_is_an_error_and_no_crash() -> None:
    """To touch what a mapped file has no more kills a process; so it is looked at before."""
    save("large.onnx", width=1 << 12)
    file = open_model("large.onnx")
    os.truncate("large.onnx", 100)
    (weight,) = file.proto.graph.initializer
    for read in (file.sha256, partial(file.read_tensor, weight), partial(make_twin, file)):
        with pytest.raises(ChangedModelError, match=r"large\.onnx was changed after"):
            read()


# In a worker, before anything else is imported.
JUMPING = """
import random, time

def jump():
    return 1.7e9 + random.uniform(-1e7, 1e7)

time.time, time.time_ns = jump, lambda: int(jump() * 1e9)
"""


@pytest.mark.slow
def test_jumps_of_the_wall_clock_are_in_no_figure(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is set by months, forward and back, at each look."""
    (folder / "sitecustomize.py").write_text(JUMPING, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    clock = random.Random(0)
    monkeypatch.setattr(time, "time", lambda: 1.7e9 + clock.uniform(-1e7, 1e7))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    save("before.onnx", weight=2)
    result = run("compare", "before.onnx", "m.onnx", *DISTURBING, *QUICK, "--json", "-")
    document = json.loads(result.out)
    (case,) = document["cases"]
    assert case["failure"] is None
    assert 0 < document["seconds"] < HOUR_NS / S
    known = [m for m in case["metrics"] if m["name"] == "latency_p50" and m["before"] is not None]
    for median in known:
        # The engine is busy for so long, by the clock that does not jump.
        assert 0.1 <= median["before"] < HOUR_NS / MS
        assert 0.1 <= median["after"] < HOUR_NS / MS


@dataclass
class Suspended(FakeBench):
    """A model in one of whose inferences the machine sleeps for an hour, and the clock goes on."""

    inferences_left: int = 0

    def infer(self) -> int:
        time_ns = super().infer()
        self.inferences_left -= 1
        if self.inferences_left == 0:
            self.clock.pass_ns(HOUR_NS)
            time_ns += HOUR_NS
        return time_ns


def noisy(clock: FakeClock, seed: int, asleep_at: int) -> Suspended:
    return Suspended(
        clock, lambda _: MS, sessions=0.01, jitter=0.02, seed=seed, inferences_left=asleep_at
    )


@pytest.mark.slow
@settings(max_examples=50)
@given(st.integers(1, 2000), st.booleans())
def test_an_hour_within_one_inference_gives_no_verdict(asleep_at: int, is_new: bool) -> None:  # noqa: FBT001  # drawn
    clock, gate = FakeClock(), Gate()
    sides = noisy(clock, 1, asleep_at * (not is_new)), noisy(clock, 2, asleep_at * is_new)
    rounds = sample_duet(FakeDuetBench(*sides), DUET_POLICY, clock, lambda _: None, gate.is_decided)
    verdicts = {metric.verdict for metric in latency_metrics(rounds, gate) if metric.gated}
    assert verdicts <= {Verdict.PASSED, Verdict.INCONCLUSIVE}


@settings(max_examples=50)
@given(st.integers(1, 2000))
def test_an_hour_within_one_inference_is_not_the_median(asleep_at: int) -> None:
    clock = FakeClock()
    rounds = sample(noisy(clock, 1, asleep_at), SamplingPolicy(), clock, lambda _: None)
    median = summarize([each.times_ns for each in rounds], 1).percentile(50.0)
    assert median.value_ns is None or median.value_ns == pytest.approx(MS, rel=0.1)


two_processors = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="takes two processors that can be taken away",
)


@pytest.fixture
def one_processor() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@two_processors
def test_processors_that_are_taken_away_fail_the_case(disturb: GiveSign) -> None:
    result, (first, second) = profiled("--cores", "2,1", *disturb(MEASURING, "confine"))
    assert result.exit_code == 3
    assert first["reason"].startswith(
        "processors were taken away in round 1 (measure): 1 of 2 is left. Measure again"
    )
    assert second["outcome"] == "measured"


@two_processors
def test_processors_that_are_taken_away_at_the_end_leave_no_times_of_layers(
    disturb: GiveSign,
) -> None:
    result, (case,) = profiled("--cores", "2", *disturb(TIMING_LAYERS, "confine"))
    assert (result.exit_code, case["outcome"]) == (0, "measured")
    said = "no layer times: processors were taken away in its profiled session: 1 of 2 is left."
    assert any(note.startswith(said) for note in case["notes"])


@two_processors
@pytest.mark.usefixtures("folder", "one_processor")
def test_a_case_that_wants_more_processors_than_are_left_is_skipped() -> None:
    assert_only_the_second_is_measured(*profiled(*DISTURBING, "--cores", "2,1"))


@two_processors
def test_a_case_that_wants_more_processors_than_its_worker_has_is_skipped(folder: Path) -> None:
    confined = folder / "python"
    confined.write_text(CONFINED.format(python=sys.executable))
    confined.chmod(0o755)
    gateway = ("--gateway", f"popen//python={confined}")
    assert_only_the_second_is_measured(*profiled(*DISTURBING, *gateway, "--cores", "2,1"))


# An interpreter that may use one processor.
CONFINED = """#!{python}
import os, sys
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def assert_only_the_second_is_measured(result: Result, cases: Sequence[dict[str, Any]]) -> None:
    first, second = cases
    assert result.exit_code == 0
    assert first["outcome"] == "skipped"
    assert first["reason"].startswith("2 cores are wanted, but")
    assert second["outcome"] == "measured"


def send_interrupt(*_: object, **__: object) -> NoReturn:
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("the interrupt was lost")


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize(
    ("phase", "do"),
    [
        (LOADING, "interrupt"),
        (WARMING_UP, "interrupt"),
        (MEASURING, "interrupt"),
        (CLOSING, "interrupt"),
        (TIMING_LAYERS, "interrupt"),
        (TIMING_LAYERS, "terminate"),
    ],
)
def test_a_signal_while_a_worker_runs_ends_all(
    disturb: GiveSign, phase: tuple[str, str], do: str
) -> None:
    expected = (130, "", "interrupted\n") if do == "interrupt" else (143, "", "")
    assert run("profile", "m.onnx", *QUICK, *disturb(phase, do)) == expected


@pytest.mark.usefixtures("heard_interrupts", "folder")
@pytest.mark.parametrize("do", ["SIGINT", "SIGTERM"])
def test_a_signal_while_a_quantizer_runs_ends_all(do: str) -> None:
    core = quantizing_by(f"os.kill(os.getppid(), signal.{do}); time.sleep(600)")
    arguments = ("whatif", "m.onnx", "--quantize", "int8-dynamic", *QUICK, *DISTURBING)
    expected = (130, "", "interrupted\n") if do == "SIGINT" else (143, "", "")
    assert run(*arguments, core=core) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("heard_interrupts", "folder")
@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("pytest_modelperf.profiler.prepare.load_model", "profile m.onnx"),
        ("pytest_modelperf.profiler.sampling.kernels.kernel_run_of", "profile m.onnx"),
        ("pytest_modelperf.profiler.shown.report.profile_report", "profile m.onnx"),
        ("pytest_modelperf.comparing.by_running.side_run", "compare m.onnx other.onnx"),
        ("pytest_modelperf.sweep.request.sum_up", "sweep m.onnx"),
        ("pytest_modelperf.whatif.variants._reopened", "whatif m.onnx --prune 0.5"),
    ],
)
def test_an_interrupt_between_runs_ends_all(
    monkeypatch: pytest.MonkeyPatch, place: str, command: str
) -> None:
    # A user can press Ctrl-C between any two calls; no argument says when.
    monkeypatch.setattr(place, send_interrupt)
    assert run(*command.split(), *QUICK, *DISTURBING) == (130, "", "interrupted\n")


@pytest.mark.usefixtures("heard_interrupts", "folder")
def test_an_interrupt_while_another_measurement_is_waited_for_ends_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ThreadPoolExecutor(1) as elsewhere:
        lock = measuring_alone()
        elsewhere.submit(lock.__enter__).result()
        # The first to sleep is who waits.
        monkeypatch.setattr(time, "sleep", send_interrupt)
        result = run("profile", "m.onnx", *QUICK, *DISTURBING)
        elsewhere.submit(lock.__exit__, None, None, None).result()
    assert result.exit_code == 130
    message = f"b1-c1: waiting for process {os.getpid()} to end measuring, 60 min at most\n"
    assert result.err == f"{message}interrupted\n"


@on_linux
@pytest.mark.usefixtures("heard_interrupts")
def test_an_interrupt_while_a_worker_starts_ends_it(folder: Path) -> None:
    python, note = folder / "python", folder / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {note}\nkill -INT $PPID\nexec sleep 600\n")
    python.chmod(0o755)
    with warnings.catch_warnings():
        # The status of a process that never started is not collected.
        warnings.simplefilter("ignore", ResourceWarning)
        result = run("profile", "m.onnx", *DISTURBING, "--gateway", f"popen//python={python}")
        gc.collect()
    assert (result.exit_code, result.err) == (130, "interrupted\n")
    assert ends(int(note.read_text()))


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "command",
    [
        "profile m.onnx --batch 1,2",
        "compare m.onnx other.onnx",
        "sweep m.onnx --batch 1,2",
        "whatif m.onnx --prune 0.5",
        "doctor m.onnx",
    ],
)
def test_a_command_that_succeeds_leaves_nothing(command: str) -> None:
    result = run(*command.split(), *QUICK, *DISTURBING)
    # The other model of the comparison computes more.
    assert (result.exit_code, result.err) == (int(command.startswith("compare")), "")


@pytest.mark.parametrize(
    "command", ["compare m.onnx other.onnx", "sweep m.onnx", "whatif m.onnx --prune 0.5"]
)
def test_a_command_whose_worker_crashes_leaves_nothing(disturb: GiveSign, command: str) -> None:
    result = run(*command.split(), *QUICK, *disturb(MEASURING, "die"))
    assert (result.exit_code, result.err) == (3, "")
    assert "was killed by SIGKILL (killed) in round 1 (measure)" in result.out


project = plugin_conftest.run
# The second test ends the process that runs it, if pytest-xdist has several.
KILLED = """
    import os, signal
    import pytest

    @pytest.mark.perf_case(model="base.onnx", batch_size=[1, 2], engine="timed")
    def test_first(): pass

    @pytest.mark.perf_case(model="base.onnx", batch_size=4{more})
    def test_killed():
        {body}

    @pytest.mark.perf_case(model="base.onnx", batch_size=8, engine="timed")
    def test_last(): pass
"""


@pytest.fixture
def models(
    folder: Path, project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """A project of models whose times are known, with both engines of these tests."""
    write_timed_models(project, monkeypatch)
    project.makeconftest(
        "from tests.support import faulty_plugin\n"
        "from tests.faults import disturbing\n\n"
        "def modelperf_register_engines(engines):\n"
        "    faulty_plugin.modelperf_register_engines(engines)\n"
        "    disturbing.modelperf_register_engines(engines)\n"
    )
    shutil.copy(folder / "other.onnx", project.path)
    monkeypatch.chdir(project.path)
    return project


def options_of(arguments: Sequence[str]) -> dict[str, str]:
    """Return the engine options among the arguments of a command."""
    return dict(part.split("=", 1) for part in arguments if "=" in part)


@pytest.mark.parametrize("update", [(), (UPDATE,)], ids=["check", "update"])
def test_a_model_that_changes_fails_its_test_and_is_not_recorded(
    models: pytest.Pytester, disturb: GiveSign, update: tuple[str, ...]
) -> None:
    options = options_of(disturb(MEASURING, "replace", **places("base.onnx")))
    models.makepyfile(test_of("base.onnx", engine="disturbing", engine_options=options))
    result = models.runpytest_inprocess("--modelperf", "--modelperf-max-seconds=0.3", JSON, *update)
    result.assert_outcomes(failed=1)
    assert "was changed" in " ".join(result.stdout.str().split())
    (case,) = cases_of(models)
    assert case["verdict"] is None
    assert not (models.path / "baselines").exists()


@pytest.mark.usefixtures("heard_interrupts")
def test_an_interrupt_while_a_model_is_measured_ends_the_run(
    models: pytest.Pytester, disturb: GiveSign
) -> None:
    options = options_of(disturb(MEASURING, "interrupt"))
    models.makepyfile(test_of("base.onnx", engine="disturbing", engine_options=options))
    result = models.runpytest_inprocess("--modelperf", UPDATE, JSON, no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert cases_of(models) == []
    assert not (models.path / "baselines").exists()


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize(
    "place", ["baselines.recording.store_case", "baselines.recording.rebuilt_twin"]
)
def test_an_interrupt_while_a_case_is_recorded_stores_nothing(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    # As above: a user can do so between any two calls.
    monkeypatch.setattr(f"pytest_modelperf.{place}", send_interrupt)
    models.makepyfile(test_of("base.onnx"))
    result = models.runpytest_inprocess(
        *TIMED, "--modelperf-max-seconds=0.3", UPDATE, no_reraise_ctrlc=True
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert not (models.path / "baselines").exists()


@pytest.mark.slow
def test_a_worker_of_xdist_that_is_killed_takes_only_its_own_test_along(
    models: pytest.Pytester, nothing_is_left: Path
) -> None:
    (models.path / "sign").touch()
    options = {"sign": str(models.path / "sign"), "do": "kill_parent"}
    more = f", engine='disturbing', engine_options={options!r}"
    models.makepyfile(test_runs=KILLED.format(more=more, body="pass"))
    result = models.runpytest_subprocess(
        "-p", "xdist", "-n", "1", "--modelperf", "--modelperf-max-seconds=0.2", JSON
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*worker 'gw*' crashed while running *::test_killed[[]b4-c1]*"])
    assert {case["id"] for case in cases_of(models)} == {"b1-c1", "b2-c1", "b8-c1"}
    said = "no result of test_runs.py::test_killed[b4-c1]: failed before there was one"
    assert read_json(models.path / "run.json")["notes"] == [said]
    # The process that would have removed it was killed.
    (left,) = nothing_is_left.glob("modelperf-*")
    shutil.rmtree(left)


@pytest.mark.slow
def test_a_worker_of_xdist_that_is_killed_leaves_what_was_stored_of_its_case(
    models: pytest.Pytester,
) -> None:
    static = ("--modelperf", "--modelperf-static-only", UPDATE)
    models.makepyfile(test_runs=KILLED.format(more="", body="pass"))
    models.runpytest_inprocess(*static).assert_outcomes(passed=4)
    file = models.path / "baselines/base/model.json"
    before = read_json(file)["cases"]
    write_timed(models.path / "base.onnx", width=16)
    models.makepyfile(test_runs=KILLED.format(more="", body="os.kill(os.getpid(), signal.SIGKILL)"))
    assert_ended(models.runpytest_subprocess("-p", "xdist", "-n", "1", *static), passed=3, failed=1)
    after = read_json(file)["cases"]
    assert list(after) == list(before)
    assert {name for name in after if after[name] != before[name]} == {"b1-c1", "b2-c1", "b8-c1"}
