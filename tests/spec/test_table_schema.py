"""validate-pyproject accepts what a run accepts, and refuses what it can of the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import CASE_SETTINGS
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS, Place
from pytest_modelperf.spec.sources import read_settings
from tests.support.checkout import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REGISTERED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
# Tables that a run accepts.
GOOD = (
    "",
    "tolerance = 0.05",
    'tolerance = "3 %"',
    "tolerance = {p50 = 0.02, p99_9 = 0.1, macs = '1 %'}",
    "max-seconds = 3\nwarmup_seconds = 0.5",
    "engine_options.session.intra_op = 1",
    'baseline_requirements = "onnxruntime==1.22.0"',
    'machine = ["board", "quiet"]',
    "machines.board = 'ssh=pi@board'",
    "models.'m.onnx'.batch-size = [1, 8]",
    "models.'m.onnx'.dims = [{seq = 64, past = 0}, {seq = 1, past = 128}]",
    "models.'m.onnx'.state = {past.0 = 'present.0', style = ''}",
    *(
        f"models.'m.onnx'.{each.table_key} = {each.example}"
        for each in CASE_SETTINGS
        if each.example and each.stands_in(Place.MODEL)
    ),
    *(
        f"{each.table_key} = {each.default!r}"
        for each in RUN_SETTINGS
        if each.is_in_files and each.default_text
    ),
)
# Tables that a run refuses, and the schema too.
BAD = (
    "max_second = 3", "max_seconds = '3'", "max_seconds = 0", "strict = 'true'", "prune = true",
    "measure = 'never'", "batch_size = 8", "models = ['m.onnx']", "machines.board = 3",
    "models.'m.onnx'.batch_size = 0", "models.'m.onnx'.batch_size = [1, 1]",
    "models.'m.onnx'.batch_size = []", "models.'m.onnx'.phase = 'steps'",
    "models.'m.onnx'.dims = {seq = -1}", "models.'m.onnx'.budget = {mac = 3}",
    "models.'m.onnx'.timeout = 3",
)  # fmt: skip


@pytest.fixture(scope="module")
def validate() -> Callable[[Mapping[str, object]], object]:
    """The check of a pyproject.toml by the schema as it is registered."""
    pytest.importorskip("validate_pyproject")
    from validate_pyproject.api import Validator
    from validate_pyproject.plugins import PluginWrapper

    ((name, target),) = REGISTERED["validate_pyproject.tool_schema"].items()
    module, _, function = target.partition(":")
    schema = getattr(__import__(module, fromlist=[function]), function)
    validator = Validator(plugins=[PluginWrapper(name, schema)])
    return lambda table: validator({"tool": {name: table}})


@pytest.mark.parametrize("text", GOOD)
def test_tables_that_a_run_accepts_are_valid(
    text: str, validate: Callable[[Mapping[str, object]], object]
) -> None:
    table = tomllib.loads(text)
    read_settings(Path("/project"), {}, {}, table)
    validate(table)


@pytest.mark.parametrize("text", BAD)
def test_tables_that_a_run_refuses_are_invalid(
    text: str, validate: Callable[[Mapping[str, object]], object]
) -> None:
    table = tomllib.loads(text)
    with pytest.raises(UsageError):
        read_settings(Path("/project"), {}, {}, table)
    with pytest.raises(ValueError, match=r"tool\.modelperf"):
        validate(table)


def test_every_key_is_described() -> None:
    from pytest_modelperf.spec.sources import table_schema

    top = table_schema()["properties"]
    assert isinstance(top, Mapping)
    assert set(top) == {e.table_key for e in RUN_SETTINGS if e.is_in_files} | {"models", "machines"}
    model = top["models"]["additionalProperties"]["properties"]
    assert set(model) == {e.table_key for e in CASE_SETTINGS if e.stands_in(Place.MODEL)}
    for described in (*top.values(), *model.values()):
        assert described["description"].endswith(".")
