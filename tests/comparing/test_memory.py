"""The memory of both sides: how many processes it takes, and what they show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.by_running import judge_memory
from pytest_modelperf.comparing.figures import format_allowed
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import LEAST_MEMORY_BYTES, read_tolerances
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.comparing.verdict_lines import describe_open_starts
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measured_cases import LEAST_BYTES, measure_footprint
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.small_models import ones, parse, save_beside

MIB = 1 << 20


def judged(
    after: Callable[[int], float],
    gate: Gate | None = None,
    *,
    before: float = 400 * MIB,
    has_time: bool = True,
    goes_on: bool = True,
) -> tuple[Metric, int]:
    """The metric, and how many pairs of processes it took; the n-th of a side takes `after(n)`."""
    asked: list[int] = []

    def measure(number: int) -> tuple[float, float]:
        asked.append(number)
        return before * (1 + 0.001 * (number % 2)), after(number)

    found = judge_memory(measure, gate or Gate(), lambda: has_time, goes_on=goes_on)
    assert asked == list(range(1, len(asked) + 1))
    return found, len(asked)


def test_two_processes_a_side_pass_a_model_that_takes_as_much_as_before() -> None:
    found, pairs = judged(lambda _: 400 * MIB)
    assert (found.name, found.verdict, pairs) == ("memory_bytes", Verdict.PASSED, 2)
    assert (found.allowed, found.awaited, format_allowed(found)) == (0.05, False, "+5 %")


def test_more_memory_takes_more_processes_and_regresses() -> None:
    found, pairs = judged(lambda _: 440 * MIB)
    assert (found.verdict, pairs) == (Verdict.REGRESSED, 9)
    assert found.ratio == pytest.approx(1.1, rel=0.01)
    # Two processes of one model are not that far apart.
    large, pairs = judged(lambda number: (500 + 10 * number) * MIB, has_time=False)
    assert (large.verdict, pairs) == (Verdict.REGRESSED, 2)
    assert large.interval == pytest.approx((510 / 400.4, 520 / 400), rel=1e-6)


def test_less_memory_passes_at_once() -> None:
    found, pairs = judged(lambda _: 200 * MIB)
    assert (found.verdict, pairs) == (Verdict.PASSED, 2)


def test_without_time_few_processes_run_and_it_stays_open() -> None:
    found, pairs = judged(lambda _: 440 * MIB, has_time=False)
    assert (found.verdict, found.decides, pairs) == (Verdict.INCONCLUSIVE, False, 4)
    # Another figure has decided the case.
    found, pairs = judged(lambda _: 440 * MIB, goes_on=False)
    assert (found.verdict, pairs) == (Verdict.INCONCLUSIVE, 2)


def test_memory_that_varies_by_the_tolerance_stays_open_after_a_few_processes() -> None:
    def varying(number: int) -> float:
        return (360 + 100 * (number % 2)) * MIB

    assert judged(varying)[0].verdict is Verdict.INCONCLUSIVE
    assert judged(varying)[1] == 4
    found, pairs = judged(varying, Gate(tolerances=read_tolerances("memory=0.05", "here")))
    assert (found.decides, pairs) == (True, 12)


def test_a_small_model_may_grow_by_four_mebibytes() -> None:
    found, _ = judged(lambda _: 13 * MIB, before=10 * MIB)
    assert (found.verdict, format_allowed(found)) == (Verdict.PASSED, "+4 MiB")
    assert judged(lambda _: 16 * MIB, before=10 * MIB)[0].verdict is Verdict.REGRESSED


@pytest.mark.parametrize(
    ("growth", "verdict"),
    [
        (3.9, Verdict.PASSED),
        (4.0, Verdict.PASSED),
        (4.1, Verdict.INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("size", [10.0, 400.0])
def test_a_growth_below_four_mebibytes_that_noise_leaves_open_passes(
    growth: float, verdict: Verdict, size: float
) -> None:
    """Processes of one model differ by more than that."""

    def varying(number: int) -> float:
        # The median of both before is half a thousandth more.
        middle = size * 1.0005 + growth
        return (middle + size * (0.2 if number % 2 else -0.2)) * MIB

    found, _ = judged(varying, before=size * MIB)
    assert (found.verdict, found.awaited) == (verdict, False)
    # A tolerance that a user names passes only a change that is shown to be within it.
    named, pairs = judged(
        varying, Gate(tolerances=read_tolerances("memory=0.05", "here")), before=size * MIB
    )
    assert (named.verdict, pairs) == (Verdict.INCONCLUSIVE, 12)


def footprint(path: Path) -> int:
    model = prepare(Model.load(path, ProfileRequest(), Extensions()))
    return measure_footprint(model, Setup(), CasePlace(model.case(1), 1, 1, lambda _: None))


def test_the_footprint_of_a_model_holds_its_weights_and_not_the_interpreter(
    tmp_path: Path,
) -> None:
    text = "g (float[1,{n}] x) => (float[1,{n}] y) {{ y = MatMul(x, w) }}"
    sizes = {}
    for name, width in (("small", 8), ("large", 2048)):
        model = parse(text.format(n=width), weights={"w": ones(width, width)})
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        sizes[name] = footprint(path)
    external = tmp_path / "external.onnx"
    save_beside(parse(text.format(n=2048), weights={"w": ones(2048, 2048)}), external)
    assert LEAST_BYTES <= sizes["small"] < 40 * MIB
    # 16 MiB of weights are read from the file, and copied into the order that the kernel likes.
    assert sizes["large"] - sizes["small"] > 24 * MIB
    # Mapped weights are memory as well, as soon as they are read.
    assert footprint(external) - sizes["small"] > 24 * MIB


def test_open_figures_share_one_line_for_each_tolerance() -> None:
    found = [
        Metric(name, 10.0, 12.0, verdict, allowed=allowed, awaited=False)
        for name, verdict, allowed in (
            ("load_ms", Verdict.INCONCLUSIVE, 0.15),
            ("first_inference_ms", Verdict.INCONCLUSIVE, 0.15),
            ("memory_bytes", Verdict.INCONCLUSIVE, LEAST_MEMORY_BYTES / 10.0),
            ("latency_p50", Verdict.PASSED, 0.03),
        )
    ]
    case = CaseComparison(Case(1, 1), tuple(found), ())
    assert list(describe_open_starts(case, COMMAND_WORDING)) == [
        (
            "load +20.0 %, first inference +20.0 %: not decided against +15 %; "
            "--tolerance load=0.15,first=0.15 waits for them"
        ),
        "memory +20.0 %: not decided against +4 MiB; --tolerance memory=0.05 waits for it",
    ]
    shown = replace(case, metrics=(replace(found[0], verdict=Verdict.PASSED), *found[3:]))
    assert list(describe_open_starts(shown, COMMAND_WORDING)) == []
