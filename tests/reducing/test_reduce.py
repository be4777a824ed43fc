"""Slow kernels planted in models, on an engine with a clock of its own: the files hold these."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec import Struct, field

from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.reducing.records import Reduction
from pytest_modelperf.reducing.search import PairFiles, ReduceRequest, run_reduce
from tests.support.known import known
from tests.support.simulated import simulate
from tests.support.small_models import parse

EXTENSIONS = load_extensions(["tests.support.faulty_plugin"])
ENGINE = EXTENSIONS.engines.find("planned")
LAYERS = 6
RELU = "a{0} = Relu (m{0})"
DECOMPOSED = "p{0} = Abs (m{0}) q{0} = Add (m{0}, p{0}) a{0} = Mul (q{0}, half)"
LONGER = "p{0} = MatMul (m{0}, square) a{0} = Relu (p{0})"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        simulate(patch)
        # Each block collects garbage, which takes longer than all else among the objects of a test
        # run.
        gc.collect()
        gc.freeze()
        yield path
        gc.unfreeze()


def stack(steps: Mapping[int, str] | None = None, *, doc: str = "") -> onnx.ModelProto:
    """Products with activations; `steps` replace some activations."""
    lines, weights = [], {"half": np.array(0.5, np.float32), "square": np.eye(8, dtype=np.float32)}
    for layer in range(LAYERS):
        source = f"a{layer - 1}" if layer else "x"
        lines.append(f"m{layer} = MatMul ({source}, w{layer})")
        lines.append((steps or {}).get(layer, RELU).format(layer))
        weights[f"w{layer}"] = np.full((8, 8), 0.1 + layer / 1000, np.float32)
    text = " ".join([*lines, f"y = Exp (a{LAYERS - 1})"])
    model = parse(f"g (float[2,8] x) => (float[2,8] y) {{ {text} }}", weights=weights)
    model.doc_string = doc
    return model


class Kept(Struct):
    """The delivered files: the operators of both models, and whether they hold weights."""

    operators: list[list[str]] = field(default_factory=list)
    models: list[onnx.ModelProto] = field(default_factory=list)

    def __call__(self, _: Reduction, files: PairFiles) -> None:
        for model in files.plan.models:
            proto = onnx.load(files.folder / model.file, load_external_data=False)
            self.models.append(proto)
            self.operators.append([node.op_type for node in proto.graph.node])


def reduced(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    options: Mapping[str, str] | None = None,
    *,
    is_anonymous: bool = False,
) -> tuple[Reduction, Kept]:
    """Two models reduced on the engine of the tests; the second runs with these options."""
    kept = Kept()
    return run_reduce(asked_of(before, after, options, is_anonymous=is_anonymous), kept), kept


def asked_of(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    options: Mapping[str, str] | None = None,
    *,
    is_anonymous: bool = False,
) -> ReduceRequest:
    setups = Setup(engine=ENGINE), Setup(engine=ENGINE, options=options or {})
    sides = []
    for name, model, setup in zip("ab", (before, after), setups, strict=True):
        onnx.save(model, f"{name}.onnx")
        sides.append(Side(f"{name}.onnx", setup))
    return ReduceRequest(
        before=sides[0],
        after=sides[1],
        request=ProfileRequest(),
        extensions=EXTENSIONS,
        tolerance=0.005,
        # The clock of the engine stops while the tests wait for a processor.
        max_seconds=3600.0,
        is_anonymous=is_anonymous,
    )


def test_the_time_of_another_measurement_is_not_that_of_the_search() -> None:
    asked, kept, hours = asked_of(stack(), stack({0: DECOMPOSED})), Kept(), [0.0]
    with ThreadPoolExecutor(1) as elsewhere:
        lock = measuring_alone()
        elsewhere.submit(lock.__enter__).result()

        def let_it_end(progress: Progress) -> None:
            if progress.is_waiting:
                hours[0] += 2.0
                elsewhere.submit(lock.__exit__, None, None, None).result()

        found = run_reduce(asked, kept, let_it_end, lambda: 3600.0 * hours[0])
    assert (hours, found.seconds) == ([2.0], 0.0)
    assert kept.operators == [["Relu"], ["Abs", "Add", "Mul"]]


@pytest.mark.parametrize("layer", [0, LAYERS - 1])
def test_a_decomposed_activation_is_found_wherever_it_is(layer: int) -> None:
    found, kept = reduced(stack(), stack({layer: DECOMPOSED}))
    assert found.verdict is Verdict.REGRESSED
    assert kept.operators == [["Relu"], ["Abs", "Add", "Mul"]]
    assert found.written is not None
    assert found.written.metric.ratio == pytest.approx(3.0, rel=0.02)
    assert found.written.shows_slowdown


def test_the_slowest_of_several_changes_is_kept() -> None:
    found, kept = reduced(stack(), stack({1: DECOMPOSED, 3: LONGER, 5: DECOMPOSED}))
    # The other product is new, and does nothing before.
    assert kept.operators == [["Identity"], ["MatMul"]]
    assert {op for unit in found.left_out for op in unit.after} >= {"Abs", "Add", "Mul"}


def test_no_trained_weight_is_in_the_files() -> None:
    _, kept = reduced(stack(), stack({3: LONGER}))
    after = kept.models[1]
    assert [t.data_location for t in after.graph.initializer] == [onnx.TensorProto.EXTERNAL]


def test_no_name_of_the_models_is_left_if_they_are_to_be_anonymous() -> None:
    _, kept = reduced(stack(), stack({2: DECOMPOSED}), is_anonymous=True)
    for model in kept.models:
        names = {name for node in model.graph.node for name in (*node.input, *node.output)}
        assert not names & {"m2", "a2", "p2", "q2", "half"}


def test_a_kernel_that_a_version_slowed_down_is_named() -> None:
    model = stack({4: "p{0} = Tanh (m{0}) a{0} = Relu (p{0})"})
    found, kept = reduced(model, model, {"slow": "Tanh"})
    assert kept.operators == [["Tanh"], ["Tanh"]]
    assert [unit.text for unit in found.kept] == ["Tanh"]
    assert found.is_upgrade
    assert known(found.written).metric.ratio == pytest.approx(10.0, rel=0.02)


def test_a_slowdown_of_every_product_is_shown_by_one() -> None:
    model = stack()
    found, kept = reduced(model, model, {"slow": "MatMul"})
    assert kept.operators == [["MatMul"], ["MatMul"]]
    assert len(found.left_out) == LAYERS - 1


def test_without_a_slowdown_no_file_is_written() -> None:
    found, kept = reduced(stack(), stack({2: "a{0} = Tanh (m{0})"}))
    assert found.verdict is not Verdict.REGRESSED
    assert (kept.operators, found.search, found.written) == ([], None, None)
    assert known(found.whole).detectable is not None


def test_the_same_file_needs_no_run() -> None:
    found, _ = reduced(stack(), stack())
    assert (found.verdict, found.whole) == (Verdict.UNCHANGED, None)


def test_a_slowdown_that_no_kernel_shows_writes_nothing() -> None:
    found, kept = reduced(stack(), stack({1: "a{0} = Tanh (m{0})"}, doc="hides 300 us"))
    assert found.verdict is Verdict.REGRESSED
    assert (kept.operators, found.written) == ([], None)
    assert known(found.search).kept == ()


@pytest.mark.parametrize(("name", "options"), [("timed", {}), ("planned", {"whole": "yes"})])
def test_an_engine_that_runs_no_parts_is_refused(name: str, options: dict[str, str]) -> None:
    setup = Setup(engine=EXTENSIONS.engines.find(name), options=options)
    sides = []
    for model, doc in (("model_100us", ""), ("model_200us", "hides 300 us")):
        onnx.save(stack(doc=doc), f"{model}.onnx")
        sides.append(Side(f"{model}.onnx", setup))
    request = ReduceRequest(
        before=sides[0], after=sides[1], request=ProfileRequest(), extensions=EXTENSIONS
    )
    with pytest.raises(MeasureError, match="has no plan that can be cut into parts"):
        run_reduce(request, Kept())
