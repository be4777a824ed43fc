"""The description that an engine of an extension gives of itself, as far as it can be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from pytest_modelperf.errors import ExtensionError
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload, set_up
from pytest_modelperf.profiler.worker.client import Worker


class Describing:
    """A worker whose engine describes itself so."""

    python = "3.14.0"

    def __init__(self, described: Mapping[str, Any]) -> None:
        self._described = described

    def use_engine(self, engine: EngineModule, options: Mapping[str, str]) -> Mapping[str, Any]:  # noqa: ARG002  # a worker's
        return self._described

    def ask(self, command: str, *_: object, **__: object) -> None:
        """Answer with nothing, like an engine with a clock of its own."""


def rig_of(described: Mapping[str, Any]) -> Rig:
    setup = Setup(engine=EngineModule("own", "package.own"))
    return set_up(cast("Worker", Describing(described)), setup, 1, Workload(model="model.onnx"))


@pytest.mark.parametrize(
    ("described", "place"),
    [
        ({"version": 1.5}, "version"),
        ({"options": {"threads": 3}}, "options[...]"),
        ({"providers": ["CPU", None]}, "providers[1]"),
    ],
)
def test_a_value_of_another_type_is_named(described: Mapping[str, Any], place: str) -> None:
    with pytest.raises(ExtensionError) as error:
        rig_of(described)
    assert f"`describe` of the engine 'own' (package.own) returned a wrong value at {place}: " in (
        str(error.value)
    )


def test_facts_left_out_of_a_description_are_unknown() -> None:
    facts = rig_of({"providers": ["CPU"]}).facts
    assert (facts.label, facts.options, facts.providers) == ("own", {}, ("CPU",))
