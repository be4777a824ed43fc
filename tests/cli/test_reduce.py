"""`modelperf reduce` on the command line: its options, its errors, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.reducing.records import Reduction
from pytest_modelperf.reducing.search import Deliver, ReduceRequest
from tests.support.command import refusal, run
from tests.support.reductions import make_reduction, nothing_slower
from tests.support.simulated import simulate
from tests.support.small_models import parse

PLANNED = ("--plugin", "tests.support.faulty_plugin", "--engine", "planned")


class Asked:
    """Stands in for a reduction, and keeps what was asked."""

    def __init__(self, found: Reduction) -> None:
        self.found = found
        self.requests: list[ReduceRequest] = []

    def __call__(self, asked: ReduceRequest, deliver: Deliver, watch: Watch) -> Reduction:
        assert callable(deliver)
        assert callable(watch)
        self.requests.append(asked)
        return self.found


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, step in (("a", "Relu (m)"), ("b", "Tanh (m)")):
        text = f"g (float[2,8] x) => (float[2,8] y) {{ m = MatMul (x, w) y = {step} }}"
        onnx.save(parse(text, weights={"w": np.eye(8, dtype=np.float32)}), f"{name}.onnx")


def test_a_slowdown_ends_with_1_and_nothing_slower_with_0() -> None:
    assert run("reduce", "a.onnx", "b.onnx", core=Asked(make_reduction())).exit_code == 1
    assert run("reduce", "a.onnx", "b.onnx", core=Asked(nothing_slower())).exit_code == 0


def test_the_document_goes_to_standard_output_alone() -> None:
    done = run("reduce", "a.onnx", "b.onnx", "--json", "-", core=Asked(make_reduction()))
    assert json.loads(done.out)["written"]["target"] == "reduced"


def test_the_request_has_the_typed_options() -> None:
    asked = Asked(nothing_slower())
    run(
        "reduce", "a.onnx", "b.onnx", "--tolerance", "p50=0.01", "--max-seconds", "90",
        "--cores", "1", "--anonymous", "--output", "slow.zip", core=asked,
    )  # fmt: skip
    (request,) = asked.requests
    assert (request.before.source, request.after.source) == ("a.onnx", "b.onnx")
    assert (request.tolerance, request.max_seconds) == (0.01, 90.0)
    assert request.is_anonymous


def test_one_model_runs_on_two_pythons(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.touch(mode=0o755)
    asked = Asked(nothing_slower())
    run("reduce", "a.onnx", "--python-a", str(python), core=asked)
    (request,) = asked.requests
    assert request.before.source == request.after.source == "a.onnx"
    assert str(python) in request.before.setup.spec
    assert request.before.setup != request.after.setup
    assert request.max_seconds == 300.0


def make_folder() -> None:
    Path("reduced").mkdir()


@pytest.mark.parametrize(
    ("arguments", "prepare", "message"),
    [
        (("a.onnx",), None, "one model on one engine has nothing to compare"),
        (("a.onnx", "b.onnx"), make_folder, "reduced exists already: give --output another name"),
        (("a.onnx", "b.onnx", "-o", "no/where"), None, "there is no folder no"),
        (("a.onnx", "b.onnx", "--cores", "1,2"), None, "reduce runs the models at one size"),
        (("a.onnx", "b.onnx", "--tolerance", "-1"), None, "--tolerance"),
        (("a.onnx", "none.onnx"), None, "none.onnx"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(
    arguments: tuple[str, ...], prepare: Callable[[], None] | None, message: str
) -> None:
    if prepare is not None:
        prepare()
    assert message in refusal("reduce", *arguments)


def test_the_whole_way_writes_a_folder_and_leaves_nothing_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch)
    text = (
        "g (float[2,8] x) => (float[2,8] y) "
        "{ m = MatMul (x, w) p = Abs (m) q = Add (m, p) y = Mul (q, half) }"
    )
    weights = {"w": np.eye(8, dtype=np.float32), "half": np.array(0.5, np.float32)}
    onnx.save(parse(text, weights=weights), "c.onnx")
    done = run("reduce", "a.onnx", "c.onnx", *PLANNED, "--max-seconds", "3600")
    assert done.exit_code == 1
    assert "reduced to 1 kernel before and 3 after: 1 Relu became 3 kernels" in done.out
    assert len(list(Path("reduced").iterdir())) == 6
    assert not list(tmp_path.glob("*modelperf*"))
