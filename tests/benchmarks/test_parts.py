"""The report of comparisons by parts: what is near a truth, and what contradicts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from kept import read_records
from loads import BUSY, LOADS, QUIET
from long_duet import Slowdown
from measuring import Program
from parts import Bench, next_pairs, plan_checks, scaled_truth
from parts_results import (
    DUET,
    PARTS,
    PLAN,
    SLIGHT,
    Check,
    Found,
    Held,
    Setting,
    Truth,
    change_table,
    expected,
    read_check,
    short_table,
)

SETTING = Setting(QUIET, 1, "lstm", "a wider kernel")
CHECK = Check(
    **asdict(SETTING), how=PARTS, verdict="passed", ratio=1.010, low=1.009, high=1.011, parts=1,
    seconds=2.0,
)  # fmt: skip
TRUTH = Truth("lstm", 1, "a wider kernel", 1.011, 1.009, 1.013, 40, 5.0)


def held(ratio: float, truth: float, *, half: float = 0.002, **changes: Any) -> Held:  # noqa: ANN401  # fields of a check
    known = replace(TRUTH, ratio=truth, low=truth - half, high=truth + half)
    return Held(replace(CHECK, ratio=ratio, **changes), known)


def columns(table: str) -> dict[str, str]:
    """The cells of a table of one line by the names of their columns."""
    header, _, line = (row.strip("| ").split(" | ") for row in table.splitlines())
    return dict(zip(header, line, strict=True))


@pytest.mark.parametrize(
    ("ratio", "truth", "is_near"),
    [(1.010, 1.012, True), (1.006, 1.002, False), (1.07, 1.09, True), (1.05, 1.09, False)],
)
def test_a_figure_is_near_within_a_part_of_the_model_or_of_the_difference(
    ratio: float,
    truth: float,
    is_near: bool,  # noqa: FBT001  # a parameter of a test
) -> None:
    assert held(ratio, truth).is_near is is_near


def test_a_truth_that_is_not_sure_is_held_against_nothing() -> None:
    assert held(1.01, 1.02, half=0.01).is_near is None


@pytest.mark.parametrize(("low", "high", "meets"), [(1.0, 1.011, True), (1.0, 1.007, False)])
def test_an_interval_meets_that_of_the_truth_or_does_not(
    low: float,
    high: float,
    meets: bool,  # noqa: FBT001  # a parameter of a test
) -> None:
    one = held(1.005, 1.01, low=low, high=high)
    assert one.meets_truth is meets
    assert columns(short_table(Found((), [one])))["intervals that meet it"] == f"{meets:d} of 1"
    assert held(1.005, 1.01, low=None).meets_truth is None


def test_a_figure_is_exact_if_its_own_interval_is_narrow() -> None:
    assert held(1.005, 1.01, low=1.003, high=1.007).is_exact
    assert not held(1.005, 1.01, low=1.0, high=1.01).is_exact
    assert not held(1.005, 1.01, low=None).is_exact


def test_a_table_counts_the_figures_of_parts_whose_truth_is_not_sure() -> None:
    some = [
        held(1.01, 1.01),
        held(1.01, 1.02, half=0.01),
        held(1.01, 1.02, half=0.01, how=DUET),
    ]
    cells = columns(change_table(Found((), some)))
    assert cells["by parts"] == "2"
    assert cells["parts near the truth"] == "1 of 1"
    assert cells["truth not sure"] == "1"


def test_slight_changes_are_counted_apart() -> None:
    truth = replace(TRUTH, change=SLIGHT, ratio=1.005)
    checks = [
        replace(CHECK, change=SLIGHT, verdict="regressed", seconds=each) for each in (6.0, 7.0)
    ]
    cells = columns(short_table(Found((), [Held(each, truth) for each in checks])))
    assert cells["0.5 % more: found"] == "2 of 2"
    assert cells["median s"] == "6.5"


@pytest.mark.parametrize(
    ("load", "cores", "seconds"), [(QUIET, 1, 4.0), (BUSY, 1, 8.0), (QUIET, 2, 10.0)]
)
def test_a_slight_change_has_a_time_by_load_and_cores(
    load: str, cores: int, seconds: float
) -> None:
    setting = replace(SETTING, load=load, cores=cores)
    assert replace(setting, change=SLIGHT).seconds_of(6.0) == seconds
    assert setting.seconds_of(6.0) == 6.0


@pytest.mark.parametrize(("verdict", "is_met"), [("regressed", True), ("inconclusive", False)])
def test_slight_changes_are_expected_to_be_found_on_each_number_of_cores(
    verdict: str,
    is_met: bool,  # noqa: FBT001  # a parameter of a test
) -> None:
    truths = [replace(TRUTH, change=SLIGHT, ratio=1.005, cores=cores) for cores in (1, 2)]
    one, two = (replace(CHECK, change=SLIGHT, cores=cores) for cores in (1, 2))
    checks = (replace(one, verdict="regressed"), replace(two, verdict=verdict))
    held = [Held(each, truth) for each, truth in zip(checks, truths, strict=True)]
    found = {each.what: each.is_met for each in expected(Found((), held))}
    assert found["0.5 % more, tolerance 0.2 %, quiet, 1 core: found in 4 s of rounds"]
    assert found["0.5 % more, tolerance 0.2 %, quiet, 2 cores: found in 10 s of rounds"] is is_met


def test_a_model_shown_within_the_tolerance_must_raise_no_alarm() -> None:
    assert held(1.04, 1.02, verdict="regressed").is_false_alarm
    assert not held(1.04, 1.029, verdict="regressed").is_false_alarm
    assert held(1.01, 1.04, verdict="passed").is_wrong_pass
    assert not held(1.01, 1.031, verdict="passed").is_wrong_pass


def test_a_truth_undone_is_that_of_swapped_sides() -> None:
    undone = TRUTH.undone()
    assert undone.ratio == pytest.approx(1 / 1.011)
    assert undone.low is not None
    assert undone.high is not None
    assert undone.low < 1 / 1.011 < undone.high


def test_a_row_has_all_fields_of_a_comparison() -> None:
    assert read_records([asdict(CHECK)], Check) == [CHECK]
    assert CHECK.setting == SETTING


def test_a_document_of_the_command_is_read() -> None:
    p50 = {"name": "latency_p50", "ratio": 1.01, "interval": [1.009, 1.011], "verdict": "passed"}
    case: dict[str, Any] = {
        "how": "parts",
        "parts": [{}],
        "metrics": [p50],
        "failure": None,
        "verdict": "passed",
    }
    assert read_check(SETTING, {"cases": [case]}, 2.0) == CHECK
    same = {**case, "how": PLAN, "metrics": []}
    assert read_check(SETTING, {"cases": [same]}, 2.0).figure == 1.0


def test_a_slight_change_is_scaled_from_a_larger_one() -> None:
    found = Slowdown(1.05, 1.04, 1.06, 40, 8.0)
    truth = scaled_truth("lstm", 1, 100, found)
    assert truth.pairs == 10
    assert truth.ratio == pytest.approx(1.005)
    assert truth.is_slight
    assert not replace(truth, before_ms=50.0).is_slight
    assert scaled_truth("lstm", 1, 100, replace(found, ratio=0.99)).ratio is None


def test_a_chain_is_as_long_as_five_percent_take() -> None:
    assert next_pairs(32, 1.016) == 100
    assert next_pairs(32, 0.99) == 512


@dataclass
class Chains(Bench):
    """A bench on which each pair of kernels takes 0.05 % of the model."""

    measured: list[tuple[int, float]] = field(default_factory=list)

    @contextmanager
    def sides(
        self, model: str, change: str, pairs: int | None = None
    ) -> Iterator[tuple[Path, Path] | None]:
        yield Path(model), Path(f"{change} {pairs}")

    def duet(self, before: Path, after: Path, cores: int, seconds: float) -> Slowdown:
        assert (before.name, cores) == ("lstm", 1)
        pairs = int(after.name.removeprefix(SLIGHT))
        self.measured.append((pairs, seconds))
        ratio = 1 + 0.0005 * pairs
        return Slowdown(ratio, ratio - 0.001, ratio + 0.001, 40, 8.0)


@pytest.mark.parametrize(("truth_seconds", "trial_seconds"), [(8.0, 8.0), (600.0, 10.0)])
def test_a_chain_is_sized_by_a_trial_however_short_a_truth_may_be(
    tmp_path: Path, truth_seconds: float, trial_seconds: float
) -> None:
    bench = Chains(tmp_path, truth_seconds, max_seconds=4.0)
    truth = bench.truth("lstm", 1, SLIGHT)
    assert bench.measured == [(32, trial_seconds), (100, truth_seconds)]
    assert truth.pairs == 10
    assert truth.is_slight


def test_the_help_of_an_option_shows_a_name_with_a_percent_sign() -> None:
    program = Program("a", "A benchmark.", lambda _: {}, lambda _: ())
    program.choose("--loads", LOADS)
    assert "40 % taken" in program.parser.format_help()


def test_each_change_is_undone_but_for_the_slight_one() -> None:
    slight = replace(TRUTH, change=SLIGHT, ratio=1.005)
    lost = replace(TRUTH, change="a block more", ratio=None)
    plan = plan_checks((QUIET, BUSY), (TRUTH, slight, lost), repetitions=1)
    assert [(each.load, each.change, each.is_undone) for each in plan] == [
        (load, change, is_undone)
        for load in (QUIET, BUSY)
        for change, is_undone in (
            ("a wider kernel", False),
            ("a wider kernel", True),
            (SLIGHT, False),
        )
    ]
