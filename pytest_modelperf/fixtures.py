"""The `modelperf` fixture: profiles of models, for plain assertions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.errors import ModelPerfError

if TYPE_CHECKING:
    from pytest_modelperf.graph.model_file import ModelSource
    from pytest_modelperf.hookspecs import Operators
    from pytest_modelperf.records import CaseProfile

SWITCHED_OFF = "needs --modelperf"


@dataclass(frozen=True, slots=True, repr=False)
class ModelPerf:
    """What the fixture hands to a test: call it with a model to get the profile of one case."""

    operators: Operators

    def __repr__(self) -> str:
        return "<modelperf>"

    def __call__(  # noqa: PLR0913  # each is one thing a test may say of its model
        self,
        model: ModelSource,
        *,
        batch_size: int | None = None,
        cores: int = 1,
        dims: Mapping[str, int] | None = None,
        inputs: Sequence[str] | str = (),
        sparsity: bool = False,
    ) -> CaseProfile:
        """The profile of `model` at one batch size; the test fails where it cannot be made.

        `dims` gives sizes to named dimensions, `inputs` whole inputs as `name:dtype:shape`.
        """
        __tracebackhide__ = True
        # Imported here: a test run without --modelperf must not pay for numpy and onnx.
        from pytest_modelperf.graph.binding import parse_input_spec
        from pytest_modelperf.session import ProfileRequest, profile_model

        texts = [inputs] if isinstance(inputs, str) else inputs
        try:
            request = ProfileRequest(
                batch_sizes=(batch_size,),
                cores=(cores,),
                dims={name: (size,) for name, size in (dims or {}).items()},
                inputs=tuple(map(parse_input_spec, texts)),
                sparsity=sparsity,
            )
            return profile_model(model, request, self.operators).cases[0]
        except ModelPerfError as error:
            message = _in_python(str(error))
        # Outside of the except block, or pytest would show both errors.
        pytest.fail(message)


@pytest.fixture(scope="session")
def modelperf(request: pytest.FixtureRequest) -> ModelPerf:
    """Profile an ONNX model: `modelperf("model.onnx", batch_size=8).static.macs`."""
    if not request.config.getoption("modelperf"):
        pytest.skip(SWITCHED_OFF)
    try:
        return ModelPerf(_operators_of(request.config))
    except ModelPerfError as error:
        message = str(error)
    pytest.fail(message, pytrace=False)


def _in_python(message: str) -> str:
    """A message with the arguments of the fixture in place of the options of the command."""
    message = re.sub(r"--dim (\S+)=SIZE", r'dims={"\1": SIZE}', message)
    for option, argument in (("--batch", "batch_size"), ("--dim", "dims"), ("--input", "inputs")):
        message = message.replace(option, argument)
    return message


def _operators_of(config: pytest.Config) -> Operators:
    """What installed extensions and every conftest of this run say about operators."""
    from pytest_modelperf.hookspecs import (
        collect_extensions,
        is_hook_name,
        make_plugin_manager,
        register_plugin,
    )

    manager = make_plugin_manager()
    for plugin in config.pluginmanager.get_plugins():
        if any(map(is_hook_name, dir(plugin))):
            register_plugin(manager, plugin)
    return collect_extensions(manager).operators
