"""Advised commands and tables: a shell, Python and TOML read them as meant, whatever the name."""

from __future__ import annotations

import ast
import re
import shlex
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.errors import BindingError
from pytest_modelperf.graph.binding import Binding, bind_inputs
from pytest_modelperf.graph.load import declared_inputs
from pytest_modelperf.testing.wording import in_python, in_table
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shell_path, shell_word
from tests.hostile.named_models import EVERYTHING, NAMES, named_model
from tests.support.known import known

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def missing(*names: str) -> BindingError:
    """The error for a model whose inputs have dimensions of these names."""
    model = named_model("m")
    shape = model.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for name in ("batch", *names):
        shape.dim.add().dim_param = name
    with pytest.raises(BindingError) as caught:
        bind_inputs(declared_inputs(model), Binding(), "m.onnx")
    return caught.value


@pytest.mark.parametrize(
    "name",
    [*NAMES.values(), EVERYTHING, "seq", "a b", "x.1", "größe"],
    ids=[*NAMES, "everything", "plain", "blank", "dot", "letters"],
)
def test_dimensions_that_are_missing(name: str) -> None:
    names = [f"{name}A", f"{name}B"]
    shown = [printable(each) for each in names]
    error = missing(*names)

    message = error.worded(COMMAND_WORDING)
    advice = message[message.rindex(" Give --dim ") + len(" Give ") :]
    assert shlex.split(advice) == [
        f"--dim {e}=SIZE".split(" ", 1)[i] for e in shown for i in (0, 1)
    ]

    code = in_python(error)
    code = code[code.rindex(" Give dims=") + len(" Give dims=") :]
    assert [ast.literal_eval(key) for key in _keys(code)] == shown

    found = known(re.search(r" Give (dims = \{.*\}) in the table of the model, ", in_table(error)))
    (dims,) = tomllib.loads(found[1].replace(" = SIZE", " = 1")).values()
    assert list(dims) == shown


def _keys(code: str) -> list[str]:
    """The keys of a dict whose values are not Python code yet."""
    (expression,) = ast.parse(code).body
    assert isinstance(expression, ast.Expr)
    assert isinstance(expression.value, ast.Dict)
    return [ast.unparse(key) for key in expression.value.keys if key is not None]


@given(st.text(max_size=30))
@example(EVERYTHING)
@example("")
def test_a_word_is_one_word(text: str) -> None:
    assert [printable(word) for word in shlex.split(shell_word(text))] == [printable(text)]


@pytest.mark.parametrize("path", ["-p.onnx", "--rootdir=x.onnx", "@arguments.onnx"])
def test_a_path_is_not_taken_for_an_option(path: str) -> None:
    assert shlex.split(shell_path(path)) == [f"./{path}"]


def test_a_plain_path_stays_as_it_is() -> None:
    assert shell_path("models/encoder-1.onnx") == "models/encoder-1.onnx"
