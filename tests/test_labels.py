"""`label`: without effect in a program that nothing records, and seen by all that record it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

import pytest_modelperf
from pytest_modelperf.labels import add_recorder, label, remove_recorder


def test_without_a_recorder_a_label_is_always_the_same_object() -> None:
    assert label("a") is label("b")
    with pytest_modelperf.label("a"):
        pass


def test_each_recorder_sees_a_label_until_it_is_removed() -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def first(name: str) -> Iterator[None]:
        seen.append(f"first {name}")
        yield

    @contextlib.contextmanager
    def second(name: str) -> Iterator[None]:
        seen.append(f"second {name}")
        yield

    add_recorder(first)
    add_recorder(second)
    with label("a"):
        pass
    remove_recorder(first)
    with label("b"):
        pass
    remove_recorder(second)
    with label("c"):
        pass
    assert seen == ["first a", "second a", "second b"]


def test_the_active_trace_has_the_labels() -> None:
    with pytest_modelperf.trace(format="frame") as trace, label("resize"):
        np.ones(3)
    with label("after"):
        pass
    names = [event.name for event in trace.events()]
    assert "resize" in names
    assert "after" not in names


@pytest.mark.parametrize("name", ["label", "trace"])
def test_public_names_are_kept_after_their_first_use(name: str) -> None:
    assert getattr(pytest_modelperf, name) is getattr(pytest_modelperf, name)
    assert name in vars(pytest_modelperf)
