"""Peaks are measured by the engine itself: which there are, of what, and where they are kept."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.files.store import FOLDER_VARIABLE
from pytest_modelperf.graph.sample_models import PRODUCTS, memory_model, product_model
from pytest_modelperf.profiler.engines.source import BUILT_IN
from pytest_modelperf.profiler.measurements import EngineFacts, Progress
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.records import Case, Profile
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.roofline.peaks import (
    MEASURING,
    PeakEffort,
    find_peaks,
    find_rooflines,
    measure_peaks,
)
from pytest_modelperf.roofline.records import Bandwidth, Peaks
from tests.support.command import run
from tests.support.facts import make_engine
from tests.support.graph_models import save_model
from tests.support.profiles import measured_cases, measured_classifier, measured_function
from tests.support.small_models import ones, parse, static_of

SIZE = 32
MIB = 1 << 20
FACTS = make_engine("onnxruntime", "1", {"graph_optimization_level": "all"})
MODEL = "g (float[64,64] x) => (float[64,32] y) { [linear] y = MatMul(x, w) }"


# Models so small that nothing takes long.
QUICK = PeakEffort(
    sizes=(SIZE, 2 * SIZE), memory_bytes=(MIB, 2 * MIB), passes=1, block_ns=1_000_000
)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))


def place(steps: list[str] | None = None) -> CasePlace:
    def watch(progress: Progress) -> None:
        if steps is not None:
            steps.append(progress.step)

    return CasePlace(Case(1, 1), 1, 1, watch)


def measured_by(engine: str, effort: PeakEffort = QUICK) -> Peaks:
    setup = Setup(engine=BUILT_IN[engine])
    return measure_peaks("key", make_engine(engine, "1"), setup, place(), effort)


@pytest.mark.parametrize("precision", PRODUCTS)
def test_a_product_has_the_macs_of_its_size(precision: str) -> None:
    assert static_of(product_model(SIZE, precision)).macs == SIZE**3


def test_the_sum_moves_the_requested_number_of_bytes() -> None:
    (layer,) = (
        layer for layer in static_of(memory_model(6 * MIB)).layers if layer.op_type == "Add"
    )
    moved = [*(layer.reads or {}).values(), *(layer.writes or {}).values()]
    assert len(moved) == 3
    assert sum(filter(None, moved)) == 6 * MIB


def test_onnxruntime_has_peaks_of_what_it_computes_in_and_of_memory() -> None:
    peaks = measured_by("onnxruntime")
    assert {"float32", "int8"} <= set(peaks.macs_per_second)
    assert peaks.runs_as["float32"] == "float32"
    assert peaks.runs_as["int8"] == "int8"
    # In any case each peak is of a precision that a kernel computed in.
    assert set(peaks.macs_per_second) == set(peaks.runs_as.values())
    sizes = [each.nbytes for each in peaks.bandwidths]
    assert sizes == sorted(sizes)
    # The largest is the sum of the larger model, but for a row of it.
    assert sizes[-1] == pytest.approx(2 * MIB, rel=0.02)


def test_openvino_has_peaks_too() -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    # It has whole microseconds: for a small product, a fast processor takes none.
    peaks = measured_by("openvino", replace(QUICK, sizes=(512,)))
    assert peaks.macs_per_second
    assert set(peaks.macs_per_second) == set(peaks.runs_as.values())
    assert peaks.bandwidths


def test_an_engine_without_times_of_kernels_has_no_peaks() -> None:
    setup = Setup(engine=BUILT_IN["callable"])
    with pytest.raises(MeasureError):
        measure_peaks("key", make_engine("callable"), setup, place(), QUICK)


class FakeMeasuring:
    """Keeps for how many cores peaks were measured, each time; nothing is run for it."""

    def __init__(self, *rates: float) -> None:
        self.cores: list[int] = []
        self.rates = iter(rates)

    def __call__(self, machine_key: str, engine: EngineFacts, _: Setup, at: CasePlace) -> Peaks:
        self.cores.append(at.case.cores)
        return Peaks(
            machine_key=machine_key, engine=engine.name, version=engine.version,
            options=engine.options, cores=at.case.cores,
            macs_per_second={"float32": next(self.rates, 40e9)}, runs_as={},
            bandwidths=(Bandwidth(MIB, 10e9),), measured=dt.date(2026, 11, 21),
        )  # fmt: skip


def test_peaks_are_measured_once_for_each_number_of_cores(tmp_path: Path) -> None:
    measure = FakeMeasuring()
    profile = measured_cases()
    found = find_rooflines(profile, Setup(), tmp_path, measure=measure)
    assert measure.cores == [1, 2]
    assert set(found.by_case) == {"b1-c1", "b1-c2", "b8-c1", "b8-c2"}
    assert found.by_case["b8-c2"].peaks.cores == 2
    assert found.notes == ()
    find_rooflines(profile, Setup(), tmp_path, measure=measure)
    assert measure.cores == [1, 2]
    find_rooflines(profile, Setup(), tmp_path, measures_anew=True, measure=measure)
    assert measure.cores == [1, 2, 1, 2]


def test_peaks_below_those_of_fewer_cores_are_measured_again(tmp_path: Path) -> None:
    measure = FakeMeasuring(40e9, 30e9, 75e9)
    profile = measured_cases()
    found = find_rooflines(profile, Setup(), tmp_path, measure=measure)
    assert measure.cores == [1, 2, 2]
    assert found.by_case["b1-c2"].peaks.macs_per_second == {"float32": 75e9}
    assert found.notes == ()
    find_rooflines(profile, Setup(), tmp_path, measure=measure)
    assert measure.cores == [1, 2, 2]


def test_peaks_that_stay_below_those_of_fewer_cores_are_reported(tmp_path: Path) -> None:
    measure = FakeMeasuring(40e9, 30e9, 20e9)
    found = find_rooflines(measured_cases(), Setup(), tmp_path, measure=measure)
    assert measure.cores == [1, 2, 2]
    assert found.by_case["b1-c2"].peaks.macs_per_second == {"float32": 30e9}
    (note,) = found.notes
    assert note.startswith("a peak of 2 cores is below that of fewer")


def test_a_broken_cache_is_reported_and_measured_again(tmp_path: Path) -> None:
    measure = FakeMeasuring()
    profile = measured_classifier()
    assert profile.machine is not None
    (tmp_path / f"{profile.machine.key}.json").write_text("{")
    found = find_rooflines(profile, Setup(), tmp_path, measure=measure)
    assert measure.cores == [1]
    (note,) = found.notes
    assert note.endswith("they are measured again")
    assert find_peaks(tmp_path, profile.machine.key).note is None


def test_a_case_without_times_of_its_layers_has_no_roofline(tmp_path: Path) -> None:
    measure = FakeMeasuring()
    found = find_rooflines(measured_function(), Setup(), tmp_path, measure=measure)
    assert (measure.cores, found.by_case) == ([], {})
    assert found.notes == ("b1-c1: no roofline, because its layers have no times",)


def test_layers_of_a_device_have_no_roofline(tmp_path: Path) -> None:
    profile = measured_classifier()
    (case,) = profile.cases
    assert case.measured is not None
    times = tuple(
        replace(each, provider="CUDAExecutionProvider") for each in case.measured.layer_times or ()
    )
    started = replace(case, measured=replace(case.measured, layer_times=times))
    measure = FakeMeasuring()
    found = find_rooflines(replace(profile, cases=(started,)), Setup(), tmp_path, measure=measure)
    assert (measure.cores, found.by_case) == ([], {})
    assert found.notes == (
        "b1-c1: no roofline, because its layers on CUDA have the time that it takes to start them",
    )


def test_peaks_that_cannot_be_measured_are_a_note(tmp_path: Path) -> None:
    def fail(*_: object) -> Peaks:
        raise MeasureError("the worker was ended by SIGKILL.")

    profile: Profile = measured_classifier()
    found = find_rooflines(profile, Setup(), tmp_path, measure=fail)
    assert found.by_case == {}
    assert found.notes == ("b1-c1: no roofline: the worker was ended by SIGKILL.",)


def test_a_wait_is_shown_with_its_reason() -> None:
    steps: list[str] = []
    measure_peaks("key", FACTS, Setup(), place(steps), replace(QUICK, precisions=("float32",)))
    assert MEASURING in steps


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(save_model(tmp_path, parse(MODEL, weights={"w": ones(64, 32)}), "m.onnx"))


@pytest.mark.slow
def test_the_command_shows_a_roofline_and_keeps_the_peaks(model: str, tmp_path: Path) -> None:
    arguments = ("profile", model, "--max-seconds", "0.2", "--json", str(tmp_path / "p.json"))
    result = run(*arguments, "--roofline")
    assert (result.exit_code, result.err) == (0, "")
    assert "peaks on 1 core, onnxruntime" in result.out
    assert "by layer, what there is to gain below the roof" in result.out
    (case,) = json.loads((tmp_path / "p.json").read_text())["cases"]
    (layer,) = case["roofline"]["layers"]
    assert (layer["id"], layer["macs"]) == ("y", 64 * 64 * 32)
    assert layer["bytes_moved"] == 4 * (64 * 64 + 64 * 32 + 64 * 32)
    (kept,) = (tmp_path / "cache" / "peaks").iterdir()
    before = kept.read_bytes()
    again = run(*arguments, "--roofline")
    assert again.exit_code == 0
    assert kept.read_bytes() == before


def test_a_roofline_of_a_static_profile_is_refused(model: str) -> None:
    for option in ("--roofline", "--measure-peaks"):
        result = run("profile", model, "--static", option)
        assert result.exit_code == 2
        assert f"leave out --static or {option}." in result.err
