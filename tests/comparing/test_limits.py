"""A limit means what is written, and what means nothing is refused with the place and a way out."""

from __future__ import annotations

import math
import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given
from inline_snapshot import snapshot

from pytest_modelperf.comparing.budgets import FIGURES, Budget, FigureSource, read_budgets
from pytest_modelperf.comparing.limits import (
    Tolerances,
    check_static,
    read_median_tolerance,
    read_tolerances,
)
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.stats.records import PERCENTS
from pytest_modelperf.text.words import nearest, suggestion


def _refusal_of_budgets(values: dict[str, object]) -> str:
    with pytest.raises(UsageError) as caught:
        read_budgets(values, "here")
    return str(caught.value)


def _refusal_of_tolerances(value: object) -> str:
    with pytest.raises(UsageError) as caught:
        read_tolerances(value, "here")
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "value", "metric", "limit"),
    [
        ("latency_ms", 12, "latency_p50", 12.0),
        ("p99_ms", 20.5, "latency_p99", 20.5),
        ("p99_9_ms", "20.5", "latency_p99.9", 20.5),
        ("items_per_second", 100, "items_per_second", 100.0),
        ("load_ms", 80, "load_ms", 80.0),
        ("first_inference_ms", 9, "first_inference_ms", 9.0),
        ("peak_memory_mb", 300, "peak_rss_bytes", 300e6),
        ("size_mb", 1.5, "size_bytes", 1.5e6),
        ("macs", "4.1G", "macs", 4.1e9),
        ("macs", 4_100_000_000, "macs", 4.1e9),
        ("macs", "4.1e9", "macs", 4.1e9),
        ("flops", "8.2G", "flops", 8.2e9),
        ("params", "26M", "params", 26e6),
        ("ttft_ms", 150, "ttft_ms", 150.0),
        ("token_ms", "12.5", "token_ms", 12.5),
        ("tokens_per_second", 40, "tokens_per_second", 40.0),
        ("cache_bytes_per_token", 4096, "cache_bytes_per_token", 4096.0),
    ],
)
def test_a_budget_is_kept_in_the_unit_of_its_metric(
    word: str, value: object, metric: str, limit: float
) -> None:
    [budget] = read_budgets({word: value}, "here")

    assert (budget.figure.metric, budget.limit) == (metric, limit)


def test_every_percentile_that_is_reported_can_have_a_budget() -> None:
    assert {figure.percent for figure in FIGURES.values()} >= set(PERCENTS)


def test_counted_figures_have_the_names_of_the_counts() -> None:
    counts = [
        figure.metric
        for figure in FIGURES.values()
        if figure.is_count and figure.source is FigureSource.FILE
    ]

    assert all(hasattr(StaticProfile, name) for name in counts)


def test_budgets_keep_the_order_in_which_they_are_written() -> None:
    assert read_budgets({"params": 3, "macs": 5}, "here") == (
        Budget("params", 3.0),
        Budget("macs", 5.0),
    )


# Larger than any float, as a number and as a text.
_HUGE = pytest.param(10**400, id="huge")
_HUGE_TEXT = pytest.param("9" * 400, id="huge text")


@pytest.mark.parametrize("word", ["latency_ms", "macs", "size_mb"])
@pytest.mark.parametrize(
    "value",
    [
        0, -1, 0.0, True, None, [], {}, "", "fast", "-1", "12 ms", "inf", "nan", math.inf, math.nan,
        1e31, "1e305", _HUGE, pytest.param(-(10**400), id="huge and negative"), _HUGE_TEXT,
        pytest.param("9" * 400 + "G", id="huge count"),
    ],
)  # fmt: skip
def test_a_budget_that_is_not_a_positive_number_is_refused(word: str, value: object) -> None:
    assert _refusal_of_budgets({word: value}).startswith(f"here: {word} takes a positive number")


@pytest.mark.parametrize("value", ["4.1G", "26M"])
def test_only_a_count_has_a_prefix(value: str) -> None:
    assert _refusal_of_budgets({"latency_ms": value}) == (
        f"here: latency_ms takes a positive number such as 12.5, not {value!r}."
    )


def test_an_unknown_budget_is_refused_with_the_nearest() -> None:
    assert _refusal_of_budgets({"latency": 3}) == snapshot("""\
here: there is no budget 'latency'. Did you mean 'latency_ms'? There are: latency_ms, p50_ms, \
p90_ms, p95_ms, p97_ms, p99_ms, p99_9_ms, max_ms, deadline_ms, real_time_factor, \
items_per_second, ttft_ms, token_ms, tokens_per_second, cache_bytes_per_token, first_item_ms, \
item_ms, load_ms, first_inference_ms, peak_memory_mb, growth_kb_per_inference, macs, flops, \
params, size_mb, kernels, install_bytes, speedup, drift, improved_beyond.\
""")


def test_two_words_for_one_budget_are_refused() -> None:
    assert _refusal_of_budgets({"latency_ms": 12, "p50_ms": 12}) == (
        "here: latency_ms and p50_ms are the same budget: give one."
    )


def test_a_name_in_a_message_can_make_a_terminal_do_nothing() -> None:
    assert "\x1b" not in _refusal_of_budgets({"\x1b[31m": 3})
    assert "\x1b" not in _refusal_of_budgets({"macs": "\x1b[31m"})
    assert "\x1b" not in _refusal_of_tolerances("\x1b[31m")
    assert "\x1b" not in _refusal_of_tolerances({"\x1b[31m": 3})


@pytest.mark.parametrize(
    ("value", "shares"),
    [
        (0.05, {50: 0.05, 95: 0.1}),
        (0, {50: 0, 95: 0.1}),
        ("0.05", {50: 0.05, 95: 0.1}),
        ("5e-2", {50: 0.05, 95: 0.1}),
        (" 5 % ", {50: 0.05, 95: 0.1}),
        ("5%", {50: 0.05, 95: 0.1}),
        (".5%", {50: 0.005, 95: 0.1}),
        # A tail may always move as far as the median.
        ("300 %", {50: 3, 95: 3}),
        ("p50=0.2,p99=0.1", {50: 0.2, 95: 0.2, 99: 0.1}),
        (" p50 = 2 % , p95 = 0.01 ", {50: 0.02, 95: 0.01}),
        ("p99.9=0.2", {50: 0.03, 95: 0.1, 99.9: 0.2}),
        ({"p99_9": 0.2}, {50: 0.03, 95: 0.1, 99.9: 0.2}),
        ({"p99.9": "10 %", "p90": 0.01}, {50: 0.03, 90: 0.01, 95: 0.1, 99.9: 0.1}),
    ],
)
def test_a_tolerance_is_a_share_of_each_percentile(
    value: object, shares: dict[float, float]
) -> None:
    assert dict(read_tolerances(value, "here").shares) == pytest.approx(shares)


@pytest.mark.parametrize("value", ["p50=0.02,macs=1 %", {"p50": 0.02, "macs": 0.01}])
def test_a_count_has_a_tolerance_only_if_it_is_named(value: object) -> None:
    found = read_tolerances(value, "here")
    assert dict(found.shares) == {50.0: 0.02, 95.0: 0.1}
    assert (found.of_count("macs"), found.of_count("params")) == (0.01, 0.0)
    assert read_tolerances({"params": 0.01}, "here").shares == Tolerances().shares


@pytest.mark.parametrize(
    ("value", "phase", "shares"),
    [
        ("ttft=0.2", Phase.PREFILL, {50: 0.2, 95: 0.2}),
        ("ttft=0.2", Phase.STEP, {50: 0.03, 95: 0.1}),
        ("ttft=0.2", None, {50: 0.03, 95: 0.1}),
        ({"token": "1 %", "p50": 0.2}, Phase.STEP, {50: 0.01, 95: 0.1}),
        ({"token": "1 %", "p50": 0.2}, Phase.PREFILL, {50: 0.2, 95: 0.2}),
        ("token=0.2,p95=0.05", Phase.STEP, {50: 0.2, 95: 0.05}),
        (0.05, Phase.STEP, {50: 0.05, 95: 0.1}),
    ],
)
def test_the_median_of_a_phase_has_its_own_tolerance_if_it_is_named(
    value: object, phase: Phase | None, shares: dict[float, float]
) -> None:
    tolerances = read_tolerances(value, "here").of_phase(phase)
    assert dict(tolerances.shares) == pytest.approx(shares)
    assert tolerances.of_phase(phase) == tolerances


def test_only_a_tail_that_is_named_is_waited_for() -> None:
    assert Tolerances().awaited == (50.0,)
    assert read_tolerances(0.01, "here").awaited == (50.0,)
    assert read_tolerances("p95=0.1", "here").awaited == (50.0, 95.0)
    assert read_tolerances({"p50": 0.01, "p99": 0.2}, "here").awaited == (50.0, 99.0)


@given(st.dictionaries(st.sampled_from(["p50", "p90", "p95", "p99"]), st.floats(0, 0.9)))
def test_percentiles_ascend_however_they_are_named(given: dict[str, float]) -> None:
    named: object = given or 0.03
    percents = read_tolerances(named, "here").percents

    assert list(percents) == sorted(set(percents))


def test_a_percentile_that_is_not_judged_is_allowed_what_the_median_is() -> None:
    tolerances = read_tolerances("p50=0.02,p99=0.1", "here")

    assert [tolerances.of(percent) for percent in (50.0, 95.0, 97.0, 99.0)] == [
        0.02,
        0.1,
        0.02,
        0.1,
    ]
    assert Tolerances(((99.0, 0.1),)).of(50.0) == 0.1


@pytest.mark.parametrize(
    "value",
    [
        "", "3 percent", "-0.03", "1_0", "٣", "nan", "inf", "3 %%", True, None, [0.03],
        -0.03, math.nan, math.inf, _HUGE, _HUGE_TEXT,
    ],
)  # fmt: skip
def test_a_value_that_is_not_a_share_is_refused(value: object) -> None:
    assert _refusal_of_tolerances(value).startswith("here takes a share such as 0.03, which is 3 %")


@pytest.mark.parametrize("value", [3, 3.0, "3"])
def test_a_tolerance_of_3_is_refused_as_ambiguous(value: object) -> None:
    assert _refusal_of_tolerances(value) == snapshot(
        "here takes a share such as 0.03, which is 3 %; 3 would be 300 %. "
        'If that is meant, write "300 %".'
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "p5=0.1",
            "here: 'p5' is not a figure with a tolerance. Did you mean 'p95'? There are: p50,",
        ),
        ("p50=0.02,", "here: '' is not a figure with a tolerance. There are: p50,"),
        ("p50=0.02,p50=0.1", "here: p50 is given twice: give it once."),
        ("p99.9=0.02,p99_9=0.1", "here: p99.9 is given twice: give it once."),
        ({"p99.9": 0.1, "p99_9": 0.1}, "here: p99.9 is given twice: give it once."),
        ("p50=0.02,p99", "here: p99 takes a share such as 0.03, which is 3 %; not ''."),
        ({}, "here names no figure"),
    ],
)
def test_a_tolerance_that_means_nothing_is_refused_at_its_percentile(
    value: object, message: str
) -> None:
    assert _refusal_of_tolerances(value).startswith(message)


@pytest.mark.parametrize("value", ["0.005", "0.5 %", "p50=0.005", "p50 = 0.5 %"])
def test_the_tolerance_of_the_median_may_have_its_name(value: str) -> None:
    """Its name is the same as in tolerances of several figures."""
    assert read_median_tolerance(value, "here") == read_tolerances(value, "here").of(50.0) == 0.005


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("p95=0.1", "here: the median alone is judged, not p95: give p50 or a share."),
        ("p50=0.1,load=0.2", "here: the median alone is judged, not load: give p50 or a share."),
        ("p5=0.1", "here: 'p5' is not a figure with a tolerance."),
    ],
)
def test_no_other_figure_is_named_if_the_median_alone_is_judged(value: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_median_tolerance(value, "here")
    assert caught.value.message.startswith(message)


def test_a_word_that_is_far_from_all_has_no_suggestion() -> None:
    assert suggestion("cores", ["cores", "macs"]) == " Did you mean 'cores'?"
    assert suggestion("zzz", ["cores", "macs"]) == ""
    assert nearest("core", ["macs", "cores"]) == "cores"
    assert nearest("zzz", []) is None


def test_no_suggestion_is_paid_for_before_it_is_made() -> None:
    program = "import sys, pytest_modelperf.comparing.limits; print('difflib' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "False"


def test_the_dot_of_a_percentile_in_toml_is_explained() -> None:
    """There `p99.9 = 0.1` is a table in a table."""
    assert _refusal_of_tolerances({"p99": {"9": 0.1}}) == (
        "here: p99 takes a share such as 0.03, which is 3 %; not {'9': 0.1}. Write p99.9 as p99_9."
    )


@pytest.mark.parametrize("word", ["p99", "load", "memory", "outputs", "ttft"])
def test_without_a_run_its_figures_have_no_tolerance(word: str) -> None:
    with pytest.raises(UsageError, match=f"a tolerance of {word} needs a run of the models"):
        check_static(read_tolerances({"macs": 0.01, word: 0.1}, "here"))


def test_without_a_run_counts_and_sizes_have_tolerances() -> None:
    check_static(read_tolerances({"p50": 0.02, "macs": 0.01, "size": 0.1}, "here"))
    check_static(Tolerances())
