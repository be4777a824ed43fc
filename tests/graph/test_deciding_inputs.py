"""The table of the inputs that decide how long an operator takes, against all known operators."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import onnx
import pytest
from msgspec import Struct
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from pytest_modelperf.graph.deciding_inputs import deciding_inputs

# Nothing is known of these on purpose: they hide what they run.
_HIDING = frozenset({
    "BeamSearch", "EPContext", "Gradient", "GreedySearch", "Sampling", "Snpe", "WhisperBeamSearch",
})  # fmt: skip
_RUNTIME = tuple(map(int, version("onnxruntime").split(".")[:2]))


class _Operator(Struct, frozen=True):
    domain: str
    name: str
    since: int
    inputs: int

    def __str__(self) -> str:
        return f"{self.domain}:{self.name}-{self.since}"


def _known() -> Iterator[_Operator]:
    schemas = [*onnx.defs.get_all_schemas_with_history(), *runtime.get_all_operator_schema()]
    for schema in schemas:
        yield _Operator(schema.domain, schema.name, schema.since_version, len(schema.inputs))


def test_every_operator_of_onnx_and_the_runtime_has_an_entry() -> None:
    missing = {
        str(each)
        for each in _known()
        if deciding_inputs(each.name, each.domain) is None and each.name not in _HIDING
    }
    assert missing == set()


@pytest.mark.skipif(_RUNTIME < (1, 32), reason="the operators of an older runtime lack inputs")
def test_every_place_is_an_input_of_the_newest_version() -> None:
    newest: dict[tuple[str, str], _Operator] = {}
    for each in _known():
        known = newest.setdefault((each.domain, each.name), each)
        if each.since > known.since:
            newest[each.domain, each.name] = each
    beyond = {
        str(each)
        for each in newest.values()
        if max(deciding_inputs(each.name, each.domain) or (-1,)) >= each.inputs
    }
    assert beyond == set()


@pytest.mark.parametrize("domain", ["com.example", "ai.onnx.contrib", "com.microsoft"])
def test_nothing_is_known_of_an_operator_that_is_not_listed(domain: str) -> None:
    assert deciding_inputs("Mine", domain) is None


def test_onnx_has_two_names() -> None:
    assert deciding_inputs("Resize", "ai.onnx") == deciding_inputs("Resize", "") == (1, 2, 3)


def test_only_a_scan_of_opset_8_is_given_lengths() -> None:
    assert deciding_inputs("Scan", "", opset=8) == (0,)
    assert deciding_inputs("Scan", "", opset=9) == deciding_inputs("Scan", "") == ()


def test_the_numbers_of_a_max_pool_decide_only_if_it_returns_their_places() -> None:
    assert deciding_inputs("MaxPool", "") == ()
    assert deciding_inputs("MaxPool", "", outputs=2) == (0,)
