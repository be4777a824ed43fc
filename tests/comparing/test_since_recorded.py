"""Changes since a case was recorded."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredLatency, StoredProcess
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.since_recorded import (
    EngineChange,
    Slowdowns,
    Suspicion,
    change_of_engine,
    look_at,
    with_builds,
)
from pytest_modelperf.profiler.measurements import Block, Measurement, Noise, Round
from pytest_modelperf.profiler.records import Case
from tests.support.facts import make_engine
from tests.support.known import known
from tests.support.profiles import make_measurement

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Has an environment of these packages alone, as in `("onnxruntime-gpu", "1.31.1")`."""

    def only(*packages: tuple[str, str]) -> None:
        versions = dict(packages)

        def version(name: str) -> str:
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "version", version)

    return only


def test_another_build_has_the_version_of_its_engine(install: Install) -> None:
    install(("onnxruntime-gpu", "1.31.1"))
    change = change_of_engine("onnxruntime", "1.30.0")
    assert change == EngineChange("onnxruntime", "1.30.0", "1.31.1")
    assert change.recorded_requirement == "onnxruntime-gpu==1.30.0"


def test_packages_name_an_engine_that_another_build_brings(install: Install) -> None:
    install(("onnxruntime-gpu", "1.31.1"))
    assert with_builds({"onnx": "1.23"}) == {"onnx": "1.23", "onnxruntime": "1.31.1"}
    assert with_builds({"onnxruntime": "1.30.0"}) == {"onnxruntime": "1.30.0"}
    install()
    assert with_builds({}) == {}


def test_no_change_is_reported_while_one_of_several_builds_has_the_recorded_version(
    install: Install,
) -> None:
    install(("onnxruntime", "1.30.0"), ("onnxruntime-gpu", "1.31.1"))
    assert change_of_engine("onnxruntime", "1.31.1") is None


def test_an_engine_that_no_package_brings_has_not_changed(install: Install) -> None:
    install()
    assert change_of_engine("onnxruntime", "1.30.0") is None


PLACE = ("key", 1)
ENGINE = make_measurement().engine


def stored(*processes: Sequence[Sequence[int]]) -> StoredLatency:
    """Processes with the times of their rounds."""
    return StoredLatency(
        engine=ENGINE,
        model_sha256=None,
        processes=tuple(
            StoredProcess(
                date=dt.date(2026, 11, 1),
                load_ns=(1,) * len(rounds),
                first_ns=(1,) * len(rounds),
                peak_rss_bytes=None,
                layer_type_ns=None,
                samples=tuple(map(len, rounds)),
                times_ns=tuple(map(tuple, rounds)),
            )
            for rounds in processes
        ),
    )


def short_run(
    times_ns: Sequence[int],
    running_ns: Sequence[int] | None = None,
    others_ns: int | None = None,
    stolen_ns: int | None = None,
) -> Measurement:
    block = Block(
        times_ns=tuple(times_ns),
        running_ns=None if running_ns is None else tuple(running_ns),
        noise=Noise(wall_ns=sum(times_ns), others_ns=others_ns, stolen_ns=stolen_ns),
    )
    made = Round(load_ns=1, first_ns=1, warmup_runs=1, is_steady=True, block=block)
    return make_measurement(rounds=[made])


def test_a_run_is_held_against_the_slowest_recorded_process_and_its_fastest_round() -> None:
    usual = stored([[100, 100], [300, 300]], [[200, 200], [150, 150]])
    assert known(look_at(usual, short_run([300, 300]))).slowdown == pytest.approx(2.0)


def test_waiting_for_a_processor_does_not_count_as_a_slowdown() -> None:
    look = known(look_at(stored([[100]]), short_run([250, 250], [100, 100], 200, 100)))
    assert (look.slowdown, look.taken) == pytest.approx((1.0, 0.6))


def test_times_of_another_engine_decide_nothing() -> None:
    assert look_at(replace(stored([[1]]), engine=make_engine("other")), short_run([100])) is None


def test_a_clock_that_measured_nothing_concludes_nothing() -> None:
    assert look_at(stored([[0, 0, 0]]), short_run([100])) is None


def test_each_other_model_of_the_same_place_counts_once() -> None:
    found = Slowdowns()
    for model, slowdown in (("a", 1.5), ("b", 1.0), ("b", 1.2), ("b", 1.1), ("c", 0.9)):
        found.add(PLACE, model, slowdown)
    found.add(("key", 2), "d", 7.0)
    found.add(("other", 1), "e", 7.0)
    assert sorted(found.of_others(PLACE, "a")) == pytest.approx([0.9, 1.1])
    assert sorted(found.of_others(PLACE, "new")) == pytest.approx([0.9, 1.1, 1.5])
    assert found.of_others(("none", 1), "a") == ()


def suspicion(slowdown: float, *others: float) -> Suspicion:
    return Suspicion(place=PLACE, model="m", slowdown=slowdown, others=others)


def compared(how: How | None, ratio: float | None) -> CaseComparison:
    metric = Metric("latency_p50", None, None, Verdict.PASSED, measured_ratio=ratio)
    return CaseComparison(Case(1, 1), (metric,), (), how=how)


@pytest.mark.parametrize(
    ("found", "how", "note"),
    [
        (
            suspicion(2.1, 1.001, 0.999, 1.0),
            How.DUET,
            (
                "took 2.1 times as long as recorded while "
                "other models took as long as recorded: compared as a duet"
            ),
        ),
        (
            suspicion(1.34, 0.94),
            How.DUET,
            (
                "took 34 % longer than recorded while other "
                "models took 6 % less time than recorded: compared as a duet"
            ),
        ),
        (
            suspicion(1.5),
            How.STORED,
            ("took 50 % longer than recorded: the plan did not settle the case"),
        ),
    ],
)
def test_a_note_says_why_a_case_with_the_recorded_plan_was_compared(
    found: Suspicion, how: How, note: str
) -> None:
    described = found.describe(compared(how, None))
    assert described == f"the plan is the recorded one, but the model {note}"


def test_the_drift_is_what_the_duet_did_not_find() -> None:
    assert suspicion(2.0).drift(compared(How.DUET, 1.0)) == pytest.approx(2.0)
    assert suspicion(2.0).drift(compared(How.DUET, 1.9)) == pytest.approx(2.0 / 1.9)
    assert suspicion(2.0).drift(compared(None, None)) is None
