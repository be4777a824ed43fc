"""The table of all operators: complete, without strangers, and each operator in one family only."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter as Multiset
from collections.abc import Mapping

import onnx
import onnxruntime
import pytest
from onnx import defs
from onnxruntime.capi import onnxruntime_pybind11_state

from pytest_modelperf.graph.operators.operator import Operator
from pytest_modelperf.graph.operators.registry import FAMILIES, OPERATORS
from tests.graph.operators.nodes import node, ops

# The releases whose operators the rules name. Older ones lack some of them.
NEWEST_ONNX, NEWEST_ONNXRUNTIME = (1, 23), (1, 32)


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def standard_operators() -> Mapping[str, bool]:
    """Every operator that onnx ever defined, and whether its newest version is deprecated."""
    newest: dict[str, defs.OpSchema] = {}
    for schema in defs.get_all_schemas_with_history():
        op = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
        if op not in newest or newest[op].since_version < schema.since_version:
            newest[op] = schema
    return {op: schema.deprecated for op, schema in newest.items()}


def runtime_operators() -> frozenset[str]:
    schemas = onnxruntime_pybind11_state.get_all_operator_schema()
    return frozenset(f"{s.domain}::{s.name}" if s.domain else s.name for s in schemas)


def test_every_standard_operator_has_a_rule_or_a_reason_for_none() -> None:
    current = {op for op, deprecated in standard_operators().items() if not deprecated}
    assert len(current) > 200
    assert current - OPERATORS.keys() == set()


@pytest.mark.skipif(
    version(onnx.__version__) < NEWEST_ONNX
    or version(onnxruntime.__version__) < NEWEST_ONNXRUNTIME,
    reason="rules name operators of newer releases than these",
)
def test_no_rule_names_an_operator_that_does_not_exist() -> None:
    assert OPERATORS.keys() - standard_operators().keys() - runtime_operators() == set()


def test_no_operator_is_in_two_families() -> None:
    occurrences = Multiset(op for family in FAMILIES for op in family.OPERATORS)
    assert [op for op, count in occurrences.items() if count > 1] == []


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        OPERATORS["Relu"] = Operator()  # type: ignore[index]  # that is the point


def test_an_operator_has_a_counter_or_a_reason_that_ends_a_sentence() -> None:
    for op, known in OPERATORS.items():
        assert (known.count is None) != (known.uncounted == Operator().uncounted), op
        assert known.uncounted[0].islower()
        assert not known.uncounted.endswith(".")


@pytest.mark.parametrize(
    "op",
    [
        "HardSigmoid", "HardSwish", "Mish", "ReduceL1", "ReduceLogSum", "ReduceSumSquare", "Relu",
        "Softplus", "Softsign", "SwiGLU",
    ],
)  # fmt: skip
def test_an_operator_costs_what_the_operators_of_its_own_definition_cost(op: str) -> None:
    """Onnx defines these as functions of others, here with scalar constants and nothing else."""
    x = (2, 3, 4)
    try:
        schema = defs.get_schema(op)
    except defs.SchemaError:
        pytest.skip("this onnx is older than the operator")
    parts = [n for n in schema.function_body.node if n.op_type not in {"Constant", "CastLike"}]
    expected = sum(ops(node(n.op_type, [x] * len(n.input), [x])) for n in parts)
    assert parts
    call = node(op, [x] * len(schema.inputs), [x])
    assert ops(call) == expected


def test_importing_the_table_does_not_import_numpy() -> None:
    program = (
        "import sys, pytest_modelperf.graph.operators.registry; sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
