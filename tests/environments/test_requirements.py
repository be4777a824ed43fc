"""Requirements read, normalized, and constrained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.environments.installing import (
    constraints_of,
    failure_of,
    is_met,
    read_requirements,
)
from pytest_modelperf.errors import UsageError

VERSIONS = st.lists(st.integers(0, 99), min_size=1, max_size=4).map(
    lambda parts: ".".join(map(str, parts))
)


@pytest.mark.parametrize(
    ("text", "key", "is_exact"),
    [
        ("onnxruntime==1.22.0", "onnxruntime==1.22", True),
        ("OnnxRuntime == 1.22", "onnxruntime==1.22", True),
        ("onnxruntime==1.22.*", "onnxruntime==1.22.*", False),
        ("onnxruntime>=1.20,<1.22", "onnxruntime<1.22,>=1.20", False),
        ("onnxruntime~=1.22", "onnxruntime~=1.22", False),
        ("onnxruntime", "onnxruntime", False),
        ("a_b.c[y,x]==1.0", "a-b-c[x,y]==1", True),
    ],
)
def test_a_requirement_has_one_form(text: str, key: str, is_exact: bool) -> None:  # noqa: FBT001
    wanted = read_requirements([text])
    assert wanted.key == (key,)
    assert (wanted.versions is not None) is is_exact


@given(VERSIONS)
def test_zeros_at_the_end_of_a_version_change_nothing(version: str) -> None:
    longer = read_requirements([f"engine=={version}.0"])
    assert longer.key == read_requirements([f"engine=={version}"]).key


@given(st.permutations(["engine==1.0", "numpy<2", "onnxruntime==1.18.0"]))
def test_the_order_of_requirements_changes_nothing(texts: list[str]) -> None:
    assert read_requirements(texts) == read_requirements(sorted(texts))


def test_several_requirements_are_exact_if_all_are() -> None:
    assert read_requirements(["engine==1", "numpy==2.1"]).versions == {
        "engine": "1",
        "numpy": "2.1",
    }
    assert read_requirements(["engine==1", "numpy"]).versions is None


def test_what_a_range_resolved_to_is_exact() -> None:
    exact = read_requirements(["engine[extra]>1", "numpy"]).exactly(
        {"engine": "2.0", "numpy": "2.1.0", "other": "3"}
    )
    assert exact.requirements == ("engine[extra]==2.0", "numpy==2.1.0")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "no requirement is given"),
        (["onnxruntime 1.22"], "cannot be read"),
        (["--index-url=https://elsewhere"], "cannot be read"),
        (["onnxruntime==1.22.0 --index-url https://elsewhere"], "cannot be read"),
        (["onnxruntime @ https://elsewhere/a.whl"], "names an address"),
        (["onnxruntime==1; python_version > '3'"], "has a condition"),
        (["engine==1", "Engine==2"], "engine is required twice"),
        (["engine\n==1\nother"], "cannot be read"),
    ],
)
def test_a_requirement_that_is_none_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        read_requirements(texts)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("requirement", "packages", "constraints"),
    [
        ("onnxruntime", {"onnxruntime": "1.18.1"}, ("numpy<2",)),
        ("onnxruntime", {"onnxruntime": "1.19.0"}, ()),
        ("onnxruntime-gpu", {"onnxruntime-gpu": "1.17.0"}, ("numpy<2",)),
        ("onnxruntime-gpu", {"onnxruntime-gpu": "1.22.0"}, ()),
        ("engine", {"engine": "1.0", "numpy": "2.1.0"}, ()),
        ("engine", {"onnxruntime": "no version"}, ()),
    ],
)
def test_an_old_runtime_gets_the_numpy_that_it_was_compiled_for(
    requirement: str, packages: dict[str, str], constraints: tuple[str, ...]
) -> None:
    assert constraints_of(read_requirements([requirement]), packages) == constraints


def test_the_numpy_of_the_user_is_not_constrained() -> None:
    wanted = read_requirements(["onnxruntime==1.17", "numpy==2.1"])
    assert constraints_of(wanted, {"onnxruntime": "1.17"}) == ()


def test_a_constraint_is_about_a_package_that_is_there() -> None:
    assert is_met("numpy<2", {"numpy": "1.26.4"})
    assert is_met("numpy<2", {"engine": "3"})
    assert not is_met("numpy<2", {"numpy": "2.1.0"})


PIP = """\
Looking in indexes: https://pypi.org/simple
WARNING: Retrying (Retry(total=1)) after connection broken: /simple/engine/
WARNING: Retrying (Retry(total=0)) after connection broken: /simple/engine/
ERROR: Could not find a version that satisfies the requirement engine==9 (from versions: none)
ERROR: No matching distribution found for engine==9
"""


def test_the_errors_of_pip_are_told_and_nothing_else() -> None:
    assert failure_of(PIP.replace("none", "1.0, 2.0")) == (
        "  Could not find a version that satisfies the requirement engine==9 "
        "(from versions: 1.0, 2.0)\n"
        "  No matching distribution found for engine==9"
    )


def test_an_index_that_cannot_be_reached_is_told_too() -> None:
    assert failure_of(PIP).splitlines()[0] == (
        "  Retrying (Retry(total=0)) after connection broken: /simple/engine/"
    )


def test_output_without_an_error_is_told_by_its_end() -> None:
    assert failure_of("\n".join(f"line {n}" for n in range(30))).splitlines() == [
        f"  line {n}" for n in range(18, 30)
    ]
    assert failure_of("\n \n") == ""


def test_nothing_of_an_index_steers_the_terminal() -> None:
    assert failure_of("ERROR: \x1b[2Jgone") == "  \\x1b[2Jgone"
