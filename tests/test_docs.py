"""The examples of the documentation run as they are printed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import onnx
import pytest

from pytest_modelperf.cli import main
from pytest_modelperf.hookspecs import PROJECT, Operators
from pytest_modelperf.profiler.static import cost
from tests.small_models import layer_of, parse, static_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OPERATORS = Path(__file__).parent.parent / "docs" / "operators.md"
GATED = """
    g (float[2,3,8] x, float[8,5] w, float[2,3,5] gate) => (y) {
        [gate_3] h = my.ops.GatedLinear(x, w, gate)
        y = Relu(h)
    }
"""
RESULTS = 2 * 3 * 5


def blocks(language: str) -> list[str]:
    """The code blocks of one language, in order."""
    text = OPERATORS.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """The model that the page speaks of, in a folder together with the extension."""
    model = parse(GATED)
    extension, *_ = blocks("python")
    (tmp_path / "gated.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "gated_ops.py").write_text(extension)
    monkeypatch.chdir(tmp_path)
    return model


def test_the_extension_counts_what_its_formulas_say(gated: onnx.ModelProto) -> None:
    extension, *_ = blocks("python")
    module: dict[str, object] = {}
    exec(extension, module)  # noqa: S102  # our own page
    register = module["modelperf_register_operators"]
    assert callable(register)
    operators = Operators()
    register(operators)
    profile = static_of(gated, operators)
    layer = layer_of(profile, "my.ops::GatedLinear")
    assert layer.macs == 2 * 3 * 8 * 5
    assert layer.elementwise_ops == RESULTS * (32 + 1 + 4 + 1)
    assert layer.output_shape == (2, 3, 5)
    assert layer_of(profile, "Relu").elementwise_ops == RESULTS
    assert profile.coverage == 1.0
    assert static_of(gated).coverage == 0.0


@pytest.mark.usefixtures("gated")
def test_the_command_takes_the_extension(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (console,) = blocks("console")
    prompt, command, *arguments = console.split()
    assert (prompt, command) == ("$", "modelperf")
    monkeypatch.syspath_prepend(Path.cwd())
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--json", "-"])
    assert stopped.value.code == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["static"]["coverage"] == 1.0


@pytest.mark.usefixtures("gated")
def test_a_conftest_takes_the_extension(pytester: pytest.Pytester) -> None:
    extension, test = blocks("python")
    model = parse(GATED).SerializeToString()
    (pytester.path / "gated.onnx").write_bytes(model)
    (pytester.path / "conftest.py").write_text(extension)
    (pytester.path / "test_gate.py").write_text(test)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.chdir(pytester.path)
        result = pytester.runpytest_inprocess("--modelperf", "-p", "pytest_modelperf.plugin")
    result.assert_outcomes(passed=1)


def test_the_entry_point_is_of_the_group_that_is_loaded() -> None:
    (toml,) = blocks("toml")
    groups = tomllib.loads(toml)["project"]["entry-points"]
    assert groups.keys() == {PROJECT}


def test_the_weights_on_the_page_are_those_of_the_code() -> None:
    text = OPERATORS.read_text(encoding="utf-8")
    paragraph = re.search(r"each operation by its weight: (.*?)\.\n", text, re.DOTALL)
    assert paragraph is not None
    printed = {
        name: int(weight)
        for names, weight in re.findall(r"((?:`\w+`(?:, | and )?)+)(?:\s+are)? (\d+)", paragraph[1])
        for name in re.findall(r"`(\w+)`", names)
    }
    assert printed == {
        name: getattr(cost, name)
        for name in dir(cost)
        if re.match("[A-Z]{3,}$", name) and name != "FREE"
    }
