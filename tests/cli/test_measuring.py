"""The command when it measures: what it prints and writes, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_modelperf.cli.output import ProgressLine
from pytest_modelperf.profiler.measurements import Progress
from tests.support.command import environment, refusal, run, spawn
from tests.support.known import known
from tests.support.processes import ends, wait_until
from tests.support.small_models import parse

pytestmark = pytest.mark.slow

MODEL = """
    g (float[N,64] x) => (float[N,32] y) {
        [first] h = MatMul(x, w)
        [relu] r = Relu(h)
        [second] y = MatMul(r, v)
    }
"""
# A machine that stalls may have only a sample or two by then, and a median takes 11.
QUICK = ("--max-seconds", "0.3")
# Time enough for a median wherever the machine stalls.
UNHURRIED = ("--max-seconds", "30")
# Or the samples that it takes, if there are fewer.
MEDIAN = r"(?:\d+\.\d|\(11\))"
FAULTY = ("--plugin", "tests.support.faulty_plugin", "--engine", "faulty")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a small model, in which all tests here run."""
    path = tmp_path_factory.mktemp("models")
    random = np.random.RandomState(0)
    weights = {
        "w": random.standard_normal((64, 128)).astype(np.float32),
        "v": random.standard_normal((128, 32)).astype(np.float32),
    }
    (path / "m.onnx").write_bytes(parse(MODEL, weights=weights).SerializeToString())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path


def measured(*arguments: str) -> list[dict[str, Any]]:
    """The cases of a profile's JSON."""
    result = run("profile", *QUICK, *arguments, "--json", "-")
    assert (result.exit_code, result.err) == (0, "")
    cases: list[dict[str, Any]] = json.loads(result.out)["cases"]
    return cases


@pytest.fixture(scope="module")
def unhurried(folder: Path) -> dict[str, Any]:  # noqa: ARG001  # it runs there
    """A case of the model with samples enough for a median."""
    (case,) = measured("m.onnx", "--batch", "4", *UNHURRIED)
    return case


def test_every_figure_of_a_measured_case_is_there(unhurried: dict[str, Any]) -> None:
    case = unhurried
    assert case["id"] == "b4-c1"
    assert case["outcome"] == "measured"
    assert case["engine"]["name"] == "onnxruntime"
    assert case["engine"]["providers"] == ["CPUExecutionProvider"]
    latency = case["latency"]
    names = ("min_ms", "p50_ms", "p90_ms", "max_ms")
    known = [latency[name] for name in names if latency[name] is not None]
    assert known[0] > 0
    assert known == sorted(known)
    assert latency["items_per_second"] == pytest.approx(4000 / latency["p50_ms"])
    assert latency["samples"] == sum(len(r["times_ns"]) for r in case["raw"])
    assert latency["rounds"] == len(case["raw"])
    assert case["load_ms"] > 0
    assert case["first_inference_ms"] > 0
    assert case["peak_rss_bytes"] > 1 << 20
    assert case["static"]["macs"] == 4 * (64 * 128 + 128 * 32)


def test_a_percentile_without_enough_samples_is_null_and_says_how_many_it_takes() -> None:
    (case,) = measured("m.onnx", "--engine-option", "graph_optimization_level=basic")
    needed = {"p50_ms": 11, "p90_ms": 64, "p95_ms": 130, "p97_ms": 219, "p99_ms": 662}
    for name, count in needed.items():
        assert (case["latency"][name] is None) == (case["latency"]["samples"] < count)
        assert case["latency"]["needed"][name] == count


def test_the_layers_sum_to_the_latency(unhurried: dict[str, Any]) -> None:
    case = unhurried
    rows = {row["id"]: row for row in case["layers"] if row["id"] is not None}
    assert set(rows) == {"h", "r", "y"}
    assert rows["h"]["provider"] == "CPUExecutionProvider"
    assert rows["h"]["weight"] == "w"
    total = sum(row["ms"] or 0.0 for row in case["layers"])
    assert total == pytest.approx(case["latency"]["p50_ms"], rel=1e-6)
    kinds = {kind["op_type"]: kind for kind in case["layer_types"]}
    assert sum(kind["share"] or 0.0 for kind in kinds.values()) == pytest.approx(1.0)
    assert kinds["MatMul"]["ms"] > 0


def test_a_case_with_more_cores_than_there_are_is_skipped_and_the_next_is_measured() -> None:
    skipped = r"^b1-c4096: skipped: 4096 cores are wanted, but the "
    result = run("profile", "m.onnx", "--cores", "4096,1", *QUICK)
    assert result.exit_code == 0
    assert re.search(skipped, result.out, re.MULTILINE)
    assert re.search(rf"^b1-c1 +1 +1 +{MEDIAN}", result.out, re.MULTILINE)
    alone = run("profile", "m.onnx", "--cores", "4096", *QUICK)
    assert alone.exit_code == 3
    assert re.search(skipped, alone.out, re.MULTILINE)


def test_a_case_that_crashes_is_one_error_and_the_next_is_measured() -> None:
    Path("once").unlink(missing_ok=True)
    # A round has two inferences at least.
    options = ("at=2", "do=signal", "signal=SIGSEGV", "once=once")
    given = (part for option in options for part in ("--engine-option", option))
    result = run("profile", "m.onnx", "--batch", "1,2", *FAULTY, *given, *QUICK)
    assert result.exit_code == 3
    assert re.search(r"^b1-c1: failed: the worker", result.out, re.MULTILINE)
    assert result.err == ""
    assert re.search(rf"^b2-c1 +2 +1 +{MEDIAN}", result.out, re.MULTILINE)


def test_a_result_that_could_not_be_had_is_null() -> None:
    options = ("--engine-option", "at=1", "--engine-option", "do=fail")
    result = run("profile", "m.onnx", *FAULTY, *options, *QUICK, "--json", "-")
    assert result.exit_code == 3
    first, *more = result.err.splitlines()
    assert first.startswith("m.onnx b1-c1: failed: in round 1")
    assert all(line.startswith("  ") for line in more)
    (case,) = json.loads(result.out)["cases"]
    assert case["outcome"] == "failed"
    assert "ValueError: the input does not fit" in case["reason"]
    assert set(case["latency"].values()) <= {None, 0.95}
    assert case["static"]["macs"] == 64 * 128 + 128 * 32


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--engine", "no"], 2, "there is no engine 'no'. There are: callable, onnxruntime, openv"),
        (["--engine-option", "x"], 2, "--engine-option takes KEY=VALUE, not 'x'."),
        (["--engine-option", "no_such=1"], 2, "has no session option 'no_such'"),
        (
            ["--engine-option", "provider=No"],
            2,
            "this onnxruntime has no execution provider 'No'. There are:",
        ),
        (["--gateway", "nonsense"], 2, "the gateway 'nonsense' cannot be read"),
        (["--gateway", "socket=lab:1"], 2, "--gateway: the gateway 'socket=lab:1' cannot be read"),
        (["--gateway", "popen//via=lab"], 2, "unknown key 'via'"),
        (["--gateway", "popen//python=/no/python"], 3, "no worker could be started"),
        (["--max-seconds", "nan"], 2, "takes seconds above 0 and within a year, such as 10"),
        (["--timeout", "1e300"], 2, "takes seconds above 0 and within a year, such as 10"),
        (["--max-seconds", "1e10"], 2, "within a year, such as 10, not 10000000000.0"),
        (["--timeout", "inf"], 2, "takes seconds above 0 and within a year, such as 10"),
        (
            ["--engine-option", "intra_op_num_threads=4"],
            2,
            "intra_op_num_threads cannot be '4': give a number from 1 to the cores of the case",
        ),
        (
            ["--engine-option", "execution_mode=no"],
            2,
            "execution_mode cannot be 'no': it can be sequential, parallel.",
        ),
        (
            ["--engine-option", "graph_optimization_level=99"],
            2,
            "graph_optimization_level cannot be '99': it can be none, basic, extended, ",
        ),
        (
            ["--engine-option", "enable_mem_pattern=maybe"],
            2,
            "enable_mem_pattern cannot be 'maybe': it can be true or false.",
        ),
        (["--json", "no/such/folder.json"], 2, "cannot write no/such/folder.json"),
        (["--max-seconds", "0"], 2, "--max-seconds takes seconds above 0 and within a year"),
        (["--min-seconds", "90"], 2, "--min-seconds is 90, which is longer than --max-seconds, "),
        (["--warmup", "90"], 2, "--warmup is 90, which is longer than --max-seconds, "),
        (["--input-file", "no.npz"], 2, "no.npz"),
        (
            ["--plugin", "tests.support.faulty_plugin", "--engine", "lost"],
            3,
            "Install it there: pip install lost",
        ),
    ],
)
def test_a_contradictory_command_is_one_clear_message(
    arguments: list[str], code: int, message: str
) -> None:
    result = run("profile", "m.onnx", *QUICK, *arguments)
    assert (result.exit_code, result.out.count("Traceback")) == (code, 0)
    assert message in result.err or message in result.out


def test_arrays_of_a_file_are_what_the_model_runs_on() -> None:
    np.savez("given.npz", x=np.ones((3, 64), np.float32))
    (case,) = measured("m.onnx", "--input-file", "given.npz")
    assert case["id"] == "b3-c1"
    np.savez("wrong.npz", x=np.ones((3, 64)))
    assert "float64" in refusal("profile", "m.onnx", "--input-file", "wrong.npz", *QUICK)


def test_a_function_is_measured_in_a_process_of_its_own_with_arguments_by_name() -> None:
    (case,) = measured("tests.support.functions:work", "--engine", "callable")
    assert case["latency"]["min_ms"] > 0
    assert case["static"]["macs"] is None
    assert case["layers"] == []
    text = run("profile", "tests.support.functions:work", "--engine", "callable", *QUICK).out
    assert text.startswith("tests.support.functions:work")
    both = ("--input", "x:f32:2x3", "--input", "y:f32:2x3:1")
    (case,) = measured("tests.support.functions:add", "--engine", "callable", *both)
    assert case["latency"]["min_ms"] > 0


def test_an_exception_of_a_function_is_reported() -> None:
    result = run("profile", "tests.support.functions:fail", "--engine", "callable", *QUICK)
    assert result.exit_code == 3
    assert "RuntimeError: no luck today" in result.out


def test_shapes_from_a_run_complete_the_counts() -> None:
    text = """
        g (float[16] x, float[16,8] w) => (float[M,8] y) {
            found = NonZero(x)
            i = Transpose <perm = [1, 0]> (found)
            rows = GatherND(w, i)
            y = MatMul(rows, v)
        }
    """
    model = parse(text, weights={"v": np.ones((8, 8), np.float32)})
    Path("nonzero.onnx").write_bytes(model.SerializeToString())
    np.savez("some.npz", x=np.array([1, 0] * 8, np.float32), w=np.ones((16, 8), np.float32))
    static = run("profile", "nonzero.onnx", "--static", "--json", "-")
    assert json.loads(static.out)["cases"][0]["static"]["coverage"] < 1
    (case,) = measured("nonzero.onnx", "--input-file", "some.npz")
    assert case["static"]["coverage"] == 1.0
    assert case["static"]["macs"] == 8 * 8 * 8


def test_csv_has_the_times_of_the_layers() -> None:
    result = run("profile", "m.onnx", *QUICK, "--csv", "-", "--columns", "name,type,ms,kernel")
    lines = result.out.splitlines()
    assert lines[0].split(",")[-4:] == ["name", "type", "ms", "kernel"]
    assert any(line.split(",")[-4:-2] == ["first", "MatMul"] for line in lines)


def test_doctor_says_what_could_be_detected() -> None:
    result = run("doctor", "m.onnx", *QUICK, "--html", "doctor.html")
    assert (result.exit_code, result.err) == (0, "")
    assert "measured by m.onnx" in Path("doctor.html").read_text("utf-8")
    assert re.match(r"1 core: (fit to measure|noisy|too few rounds)", result.out)
    assert "m.onnx ran against itself" in result.out
    assert "the slowdown that a comparison would see" in result.out


def test_doctor_says_that_the_variable_alone_traces_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODELPERF_TRACE", "program.json")
    result = run("doctor", "m.onnx", *QUICK)
    assert result.exit_code == 0
    assert "note: MODELPERF_TRACE alone has no effect here" in result.err
    assert "modelperf trace -- python program.py" in result.err


def test_doctor_runs_the_arrays_that_are_given() -> None:
    np.savez("three.npz", x=np.ones((3, 64), np.float32))
    result = run("doctor", "m.onnx", *QUICK, "--input-file", "three.npz")
    assert (result.exit_code, result.err) == (0, "")
    np.savez("wrong.npz", x=np.ones((3, 64)))
    assert "'x' of m.onnx is float32, but wrong.npz has" in refusal(
        "doctor", "m.onnx", *QUICK, "--input-file", "wrong.npz"
    )


def test_doctor_refuses_what_it_would_not_do() -> None:
    missing = run("doctor", "--input-file", "three.npz")
    assert (missing.exit_code, "--input-file is for a model" in missing.err) == (2, True)
    several = run("doctor", "m.onnx", "--batch", "1,2")
    assert (several.exit_code, "a model at one size" in several.err) == (2, True)
    cores = run("doctor", "m.onnx", "--cores", "1,4096")
    assert (cores.exit_code, "4096 cores are wanted" in cores.err) == (3, True)


def test_doctor_brings_a_model_of_its_own_and_writes_json() -> None:
    result = run("doctor", *QUICK, "--json", "-")
    assert (result.exit_code, result.err) == (0, "")
    (checkup,) = json.loads(result.out)["checkups"]
    assert checkup["rounds"] >= 1
    assert checkup["ratio"]["value"] > 0


def test_progress_is_shown_on_a_terminal_and_leaves_no_trace() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pytest_modelperf", "profile", "m.onnx", *QUICK]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environment()
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:
            pass  # Linux reports a terminal without a holder this way.
        out = known(process.stdout).read()
    os.close(ours)
    lines = [line for line in re.split(rb"\r\x1b\[K", shown) if line]
    assert any(line.startswith(b"[1/1] b1-c1") and b"round 1" in line for line in lines)
    assert shown.endswith(b"\r\x1b[K")
    assert b"\x1b" not in out


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """A shell starts what runs in its background deaf to SIGINT, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "")]
)
def test_an_interrupt_ends_everything_without_a_verdict(
    tmp_path: Path, number: int, code: int, said: str
) -> None:
    note, files = tmp_path / "pid", tmp_path / "files"
    files.mkdir()
    options = ("at=2", "do=hang", f"note={note}")
    given = [part for option in options for part in ("--engine-option", option)]
    command = [sys.executable, "-m", "pytest_modelperf", "profile", "m.onnx", *FAULTY, *given]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"TMPDIR": str(files)}),
    ) as process:
        wait_until(lambda: process.poll() is not None or (note.exists() and note.read_text() != ""))
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (code, "", said)
    assert ends(int(note.read_text()))
    assert list(files.iterdir()) == []


def test_the_error_of_a_model_that_the_engine_refuses_has_the_reason() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { y = my.ops.Unknown(x) }"
    Path("custom.onnx").write_bytes(parse(text).SerializeToString())
    result = spawn("profile", "custom.onnx", *QUICK)
    assert result.exit_code == 3
    assert "Traceback" not in result.err
    assert "Unknown" in result.out


def test_without_progress_a_line_says_how_long_the_rounds_of_a_slow_model_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ProgressLine()
    at = Progress(case_id="b1-c1", case_number=1, cases=2, step="measure", seconds_left=58.4)
    line(at)
    line(replace(at, least_seconds=21.7))
    line(replace(at, case_id="b2-c1", least_seconds=32.0))
    for process in (7, 8):
        line(replace(at, step=f"waiting for process {process}"))
    assert capsys.readouterr().err.splitlines() == [
        "b1-c1: its rounds are slow: they take 22 to 58 s",
        "b2-c1: its rounds are slow: they take 32 to 58 s",
        "b1-c1: waiting for process 7",
    ]
