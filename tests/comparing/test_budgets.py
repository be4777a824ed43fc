"""Budgets as they are read: limits by machine, and the words that complete a budget."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from pytest_modelperf.comparing.budgets import Budget, read_budgets
from pytest_modelperf.errors import UsageError

KEY = "linux-x86_64-icelake-2c"


def refusal(**values: object) -> str:
    with pytest.raises(UsageError) as caught:
        read_budgets(values, "here")
    return caught.value.message


def only(**values: object) -> Budget:
    (budget,) = read_budgets(values, "here")
    return budget


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"*": 70, "linux*": 1800}, 70.0),
        ({"linux*": 1800, "*": 70}, 1800.0),
        ({"LINUX*": 1800, "*": 70}, 70.0),
        ({"darwin*": 1800, "linux-x86_64-*-2c": 5}, 5.0),
        ({KEY: 3}, 3.0),
    ],
)
def test_the_first_pattern_that_fits_a_machine_has_its_limit(
    limits: dict[str, float], limit: float
) -> None:
    assert only(p95_ms=limits).of_machine(KEY).limit == limit


def test_a_limit_of_a_machine_is_in_the_unit_of_the_metric() -> None:
    assert only(size_mb={"*": "12.5"}).of_machine(KEY).limit == 12_500_000


def test_a_chosen_limit_stays_the_same_if_it_is_chosen_again() -> None:
    chosen = only(p95_ms={"linux*": 1800, "*": 70}).of_machine(KEY)
    assert chosen.of_machine(KEY) == chosen
    assert only(p95_ms=70).of_machine(KEY) == only(p95_ms=70)


def test_a_machine_without_a_limit_is_an_error_that_names_it() -> None:
    with pytest.raises(UsageError) as caught:
        only(p95_ms={"linux-aarch64*": 1800, "darwin*": 3}).of_machine(KEY)
    assert caught.value.message == snapshot("""\
p95_ms has no limit for this machine, linux-x86_64-icelake-2c: its patterns are 'linux-\
aarch64*', 'darwin*'. Add one for this machine, or "*" for all others at the end.\
""")


def test_each_limit_of_a_machine_is_checked_and_named() -> None:
    assert refusal(p95_ms={"*": 70, "linux*": -1}) == snapshot(
        "here: p95_ms of 'linux*' takes a positive number such as 12.5, not -1."
    )
    assert refusal(p95_ms={"": 70}) == snapshot("""\
here: p95_ms takes limits by patterns of machines, such as {"linux-aarch64*": 1800, "*": 70}, \
not {'': 70}.\
""")
    assert refusal(p95_ms={3: 70}).startswith("here: p95_ms takes limits by patterns")
    assert refusal(p95_ms={"*": {"*": 70}}).startswith("here: p95_ms of '*' takes a positive")
    assert "\x1b" not in refusal(p95_ms={"\x1b[31m": "\x1b[31m"})


def test_a_deadline_has_a_share_of_misses() -> None:
    assert only(deadline_ms=20, misses="0.1 %") == Budget("deadline_ms", 20.0, 0.001)
    assert refusal(deadline_ms=20) == snapshot(
        "here: deadline_ms is not complete: add misses=0.001."
    )
    assert refusal(misses=0.001) == snapshot(
        "here: misses belongs to a budget that is missing: add deadline_ms, or leave out misses."
    )
    assert refusal(deadline_ms=20, misses=0) == snapshot("""\
here: misses takes a share between 0 and 1 such as 0.001, not 0. To limit every inference, give \
max_ms.\
""")
    assert refusal(deadline_ms=20, misses=3).startswith("here: misses takes a share")


def test_a_frame_is_as_long_as_the_rate_says() -> None:
    frames, seconds = (
        only(real_time_factor=0.5, frame_rate=50),
        only(real_time_factor=0.5, audio_seconds=0.02),
    )
    assert frames == seconds
    assert refusal(real_time_factor=0.5) == snapshot(
        "here: real_time_factor is not complete: add audio_seconds=0.5 or frame_rate=50."
    )
    assert refusal(real_time_factor=0.5, frame_rate=50, audio_seconds=1) == snapshot(
        "here: audio_seconds and frame_rate are the same length: give one of them."
    )
    assert refusal(real_time_factor=0.5, frame_rate=0) == snapshot(
        "here: frame_rate takes a positive number such as 50, not 0."
    )


def test_a_distribution_and_another_model_are_named() -> None:
    assert only(install_bytes="48M", distribution="magika").limit == 48e6
    assert only(speedup=2, over="a.onnx").companion == "a.onnx"
    assert refusal(install_bytes="48M") == snapshot(
        "here: install_bytes is not complete: add distribution='magika'."
    )
    assert refusal(install_bytes=1, distribution=" ").startswith("here: distribution takes a name")
    assert refusal(speedup=2, over=len).startswith("here: over takes a name")


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("my_package.models:run", True),
        ("reference:Model.run", True),
        ("models/a.onnx", False),
        ("C:a.onnx", False),
        ("C:/models/a.onnx", False),
        ("a:b:c", False),
    ],
)
def test_a_function_differs_from_a_path(over: str, expected: bool) -> None:  # noqa: FBT001
    assert only(speedup=2, over=over).names_function is expected


def test_an_improvement_is_a_share_below_one() -> None:
    assert only(improved_beyond=0.2).limit == pytest.approx(0.8)
    assert only(improved_beyond="20 %") == only(improved_beyond=0.2)
    assert refusal(improved_beyond=0) == snapshot(
        "here: improved_beyond takes a share between 0 and 1 such as 0.2, not 0."
    )
    assert refusal(improved_beyond="120 %").startswith("here: improved_beyond takes a share")


def test_a_misspelt_companion_is_suggested() -> None:
    assert "Did you mean 'misses'?" in refusal(deadline_ms=1, missed=0.1)
