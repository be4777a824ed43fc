"""Profiles of a model, as a request asks for them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pytest_modelperf.errors import ExtensionError
from pytest_modelperf.graph.operators.cost import FREE, Cost
from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.request import profile_model
from tests.support.small_models import parse


@pytest.fixture
def collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_garbage_collector_rests_while_a_model_is_counted(
    *, is_enabled: bool, fails: bool
) -> None:
    seen: list[bool] = []

    def count(_: Node) -> Cost:
        seen.append(gc.isenabled())
        if fails:
            raise ValueError
        return FREE

    operators = Operators()
    operators.register("Relu", count=count)
    (gc.enable if is_enabled else gc.disable)()
    with suppress(ExtensionError):
        profile_model(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"), None, operators)
    assert seen == [False]
    assert gc.isenabled() is is_enabled
