"""`modelperf sweep`: what it asks to be measured, what it writes, and how it ends."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_modelperf.graph.structure import Generation
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.records import Outcome
from pytest_modelperf.stats.estimates import needed_samples
from pytest_modelperf.sweep import request as sweeping
from pytest_modelperf.sweep.records import Sweep, SweepPoint
from pytest_modelperf.sweep.request import SweepRequest
from tests.support.checkout import ROOT
from tests.support.command import Result, run
from tests.support.sweeps import make_configuration, make_point, make_side, make_sweep

DOCS = ROOT / "docs"
GOOD = make_point(make_configuration(), 2.0)
LOST = SweepPoint(configuration=make_configuration(2), outcome=Outcome.FAILED, reason="no memory")
SKIPPED = SweepPoint(
    configuration=make_configuration(1, 64), outcome=Outcome.SKIPPED, reason="too few cores"
)


def swept(*points: SweepPoint) -> Sweep:
    return make_sweep(make_side("model.onnx", points))


@dataclass
class FakeSweeping:
    """Measures nothing, and keeps what it was asked for."""

    result: Sweep = field(default_factory=lambda: swept(GOOD))
    seen: list[SweepRequest] = field(default_factory=list)
    plan: str = ""

    def __call__(
        self,
        request: SweepRequest,
        extensions: Extensions,
        watch: Watch,
        show: Callable[[str], None],
    ) -> Sweep:
        assert isinstance(extensions, Extensions)
        assert callable(watch)
        if self.plan:
            show(self.plan)
        self.seen.append(request)
        return self.result

    @property
    def request(self) -> SweepRequest:
        (request,) = self.seen
        return request

    def run(self, *arguments: str) -> Result:
        """The command, which asks this."""
        return run(*arguments, core=self)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSweeping:
    fake = FakeSweeping()
    monkeypatch.chdir(tmp_path)
    return fake


def test_the_model_alone_is_measured_as_it_is(asked: FakeSweeping) -> None:
    assert asked.run("sweep", "model.onnx").exit_code == 0
    (source,) = asked.request.sides
    assert source.source == "model.onnx"
    assert source.setup.engine.name == "onnxruntime"
    assert source.setup.policy.max_seconds == 5.0
    cases = asked.request.request
    assert (cases.batch_sizes, cases.cores) == ((None,), (1,))
    assert (asked.request.streams, asked.request.threshold_ms) == ((1,), None)


def test_the_expected_duration_is_shown_apart_from_the_report(asked: FakeSweeping) -> None:
    asked.plan = "up to 39.0 s"
    done = asked.run("sweep", "model.onnx", "--json", "-")
    assert done.err == "up to 39.0 s\n"
    assert json.loads(done.out)["schema"] == 1


def test_every_option_is_handed_on(asked: FakeSweeping) -> None:
    done = asked.run(
        "sweep", "model.onnx", "--batch", "1,2,8", "--cores", "1,2", "--streams", "1,4",
        "--latency-threshold", "0.5", "--dim", "seq=64,128", "--input", "ids:i64:1x64",
        "--engine-option", "mode=parallel", "--gateway", "ssh=there", "--max-seconds", "2.5",
        "--timeout", "9", "--prompt", "16,32", "--generate", "8", "--state", "past=present",
    )  # fmt: skip
    assert done.exit_code == 0, done.err
    cases = asked.request.request
    assert (cases.batch_sizes, cases.cores) == ((1, 2, 8), (1, 2))
    assert cases.generations == tuple(
        Generation(prompt, 8, {"past": "present"}) for prompt in (16, 32)
    )
    assert cases.dims == {"seq": (64, 128)}
    assert [each.name for each in cases.inputs] == ["ids"]
    assert (asked.request.streams, asked.request.threshold_ms) == ((1, 4), 0.5)
    (source,) = asked.request.sides
    assert source.setup.options == {"mode": "parallel"}
    assert source.setup.spec == "ssh=there"
    assert (source.setup.policy.max_seconds, source.setup.limit_s) == (2.5, 9.0)


def test_the_one_before_is_the_first_side(asked: FakeSweeping) -> None:
    assert asked.run("sweep", "new.onnx", "--against", "old.onnx").exit_code == 0
    assert [each.source for each in asked.request.sides] == ["old.onnx", "new.onnx"]
    assert asked.request.sides[0].setup == asked.request.sides[1].setup


def test_the_one_before_can_have_another_interpreter(asked: FakeSweeping) -> None:
    options = ("--against", "model.onnx", "--against-python", sys.executable)
    assert asked.run("sweep", "model.onnx", *options).exit_code == 0
    before, after = (each.setup for each in asked.request.sides)
    assert before.spec == f"popen//python={sys.executable}"
    assert replace(before, spec=after.spec) == after


def test_two_engines_are_two_sides_of_one_model(asked: FakeSweeping) -> None:
    options = (
        "--engine", "onnxruntime,openvino", "--engine-option", "mode=parallel",
        "--engine-option-b", "hint=latency",
    )  # fmt: skip
    done = asked.run("sweep", "model.onnx", *options)
    assert done.exit_code == 0, done.err
    assert [each.source for each in asked.request.sides] == ["model.onnx", "model.onnx"]
    first, last = (each.setup for each in asked.request.sides)
    assert (first.engine.name, first.options) == ("onnxruntime", {"mode": "parallel"})
    assert (last.engine.name, last.options) == ("openvino", {"hint": "latency"})
    assert replace(last, engine=first.engine, options=first.options) == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "a,b,c"), "a sweep takes at most two engines, and --engine names 3"),
        (("--engine", "onnxruntime,openvino", "--against", "old.onnx"), "leave out --against"),
        (("--engine", "openvino,openvino"), "both engines are openvino: give two engines"),
        (("--engine-option-b", "a=b"), "--engine-option-b is for the second of two engines"),
        (("--requirement-b", "openvino"), "--requirement-b is for the second of two engines"),
        (("--engine", "onnxruntime,callable"), "the engine callable runs Python functions"),
    ],
)
def test_engines_that_do_not_form_two_sides_are_refused(
    asked: FakeSweeping, options: Sequence[str], message: str
) -> None:
    done = asked.run("sweep", "model.onnx", *options)
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.err
    assert asked.seen == []


@pytest.mark.parametrize("text", ["20", "0.5", ".25", "1e-3", "20.", " 3 "])
def test_a_threshold_is_any_number_of_milliseconds(asked: FakeSweeping, text: str) -> None:
    assert asked.run("sweep", "model.onnx", "--latency-threshold", text).exit_code == 0
    assert asked.request.threshold_ms == float(text)


def test_the_page_has_the_figures_of_the_code(asked: FakeSweeping) -> None:
    page = " ".join((DOCS / "sweep.md").read_text(encoding="utf-8").split())
    asked.run("sweep", "model.onnx")
    (source,) = asked.request.sides
    policy = source.setup.policy
    assert (
        f"after {policy.min_rounds} rounds and {policy.min_samples} requests, as soon as "
        f"the {100 * policy.confidence:g} % interval of its median is within "
        f"{100 * sweeping._PRECISION:g} %, after {policy.max_rounds} rounds, or when its "
        f"rounds have taken `--max-seconds` ({policy.max_seconds:g})"
    ) in page
    # So the sweep waits for p95.
    assert policy.min_samples == needed_samples(95)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "20ms", "", "1e999", "1e-999", "1_0"])
def test_a_threshold_that_is_none_says_what_is_taken(asked: FakeSweeping, text: str) -> None:
    done = asked.run("sweep", "model.onnx", "--latency-threshold", text)
    assert (done.exit_code, done.out) == (2, "")
    assert done.err == (
        f"Error: --latency-threshold takes milliseconds above 0, such as 20 or 0.5; not {text!r}.\n"
    )
    assert asked.seen == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--streams", "0"), "--streams takes whole numbers of 1 or more"),
        (("--streams", "1,x"), "--streams takes whole numbers of 1 or more"),
        (("--batch", ""), "--batch takes whole numbers of 1 or more"),
        (("--cores", "-2"), "--cores takes whole numbers of 1 or more"),
        (("--against-python", "python3"), "--against-python is for the model of --against"),
        (("--against", "a.onnx", "--against-python", "no"), "names no, which is not a program"),
        (
            ("--against", "a", "--against-python", sys.executable, "--gateway", "ssh=h"),
            "--against-python",
        ),
        (("--engine", "a,b", "--requirement-b", "c", "--gateway", "ssh=h"), "--requirement-b"),
        (("--json", "-", "--csv", "-"), "only one of --json and --csv can go to standard output"),
        (("--engine", "callable"), "a sweep takes only ONNX models"),
        (("--engine", "nothing"), "nothing"),
        (("--max-seconds", "0"), "--max-seconds"),
        (("--json", "no/such/folder/f.json"), "cannot write no/such/folder/f.json"),
    ],
)
def test_a_contradictory_command_ends_before_anything_is_measured(
    asked: FakeSweeping, arguments: tuple[str, ...], message: str
) -> None:
    done = asked.run("sweep", "model.onnx", *arguments)
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.err
    assert asked.seen == []


def test_json_and_csv_go_to_files_in_addition_to_the_text(asked: FakeSweeping) -> None:
    done = asked.run("sweep", "model.onnx", "--json", "s.json", "--csv", "s.csv")
    assert (done.exit_code, done.err) == (0, "")
    assert "best: b1-c1, 500.0 items/s at 2.000 ms\n" in done.out
    document = json.loads(Path("s.json").read_text(encoding="utf-8"))
    assert document["sides"][0]["sweet_spot"]["best"] == "b1-c1"
    (row,) = csv.DictReader(StringIO(Path("s.csv").read_text(encoding="utf-8")))
    assert (row["configuration"], row["p50_ms"]) == ("b1-c1", "2.0")


def test_a_document_is_alone_on_standard_output_and_the_page_goes_to_its_file(
    asked: FakeSweeping,
) -> None:
    assert json.loads(asked.run("sweep", "model.onnx", "--json", "-").out)["schema"] == 1
    assert asked.run("sweep", "model.onnx", "--csv", "-").out.startswith("side,model,")
    assert asked.run("sweep", "model.onnx", "--markdown", "-").out.startswith("### model.onnx")
    assert asked.run("sweep", "model.onnx", "--html", "sweep.html").exit_code == 0
    page = Path("sweep.html").read_text(encoding="utf-8")
    assert "model.onnx" in page
    assert page.rstrip().endswith("</html>")


def test_without_the_packages_of_the_page_nothing_is_measured(
    asked: FakeSweeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    done = asked.run("sweep", "model.onnx", "--html", "sweep.html")
    assert (done.exit_code, done.out) == (2, "")
    assert done.err.startswith("Error: --html needs ")
    assert asked.seen == []
    assert not Path("sweep.html").exists()


@pytest.mark.parametrize(
    ("points", "code"),
    [((GOOD,), 0), ((GOOD, SKIPPED), 0), ((GOOD, LOST), 3), ((LOST,), 3), ((SKIPPED,), 3)],
)
def test_the_exit_code_shows_a_failure_and_an_empty_result(
    asked: FakeSweeping, points: tuple[SweepPoint, ...], code: int
) -> None:
    asked.result = swept(*points)
    done = asked.run("sweep", "model.onnx")
    assert (done.exit_code, done.err) == (code, "")
    for point in points:
        assert (point.reason or "best: b1-c1") in done.out


def test_a_side_that_failed_is_a_failure_whatever_the_other_did(asked: FakeSweeping) -> None:
    lost = replace(LOST, configuration=GOOD.configuration)
    asked.result = make_sweep(make_side("old.onnx", [lost]), make_side("new.onnx", [GOOD]))
    assert asked.run("sweep", "new.onnx", "--against", "old.onnx").exit_code == 3


def test_without_a_report_the_reason_is_shown(asked: FakeSweeping) -> None:
    asked.result = swept(GOOD, LOST)
    done = asked.run("sweep", "model.onnx", "--json", "-")
    assert (done.exit_code, done.err) == (3, "b2-c1: failed: no memory\n")
    assert len(json.loads(done.out)["sides"][0]["configurations"]) == 2
