"""The options for a second engine that runs in turn with the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import EngineError, UsageError
from pytest_modelperf.spec.run_definitions import ENGINE_OPTION
from pytest_modelperf.text.quoting import shell_word

if TYPE_CHECKING:
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.sampling.setup import Setup


class SecondEngine(Struct, frozen=True):
    """The engine of the second side and its options; where nothing is given, the first side's."""

    engine_b: str | None
    engine_option_b: tuple[str, ...]

    def check_static(self) -> None:
        """UsageError if one of them is given, because an engine needs a run of the models."""
        options = {"--engine-b": self.engine_b, "--engine-option-b": self.engine_option_b}
        for option, value in options.items():
            if value:
                raise UsageError(
                    f"{option} needs a run of the models: leave out --static or {option}."
                )

    def setup(self, setup: Setup, extensions: Extensions) -> Setup:
        """Returns the setup of the second side."""
        if self.engine_b is None and not self.engine_option_b:
            return setup
        from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE
        from pytest_modelperf.spec.kinds import read_typed

        engine = setup.engine
        if self.engine_b is not None:
            engine = extensions.engines.find(self.engine_b)
        if engine.name == CALLABLE_ENGINE:
            raise UsageError(
                f"the engine {engine.name} runs Python functions, and here are only ONNX models: "
                "give another engine."
            )
        options = read_typed(ENGINE_OPTION, self.engine_option_b, "--engine-option-b")
        return replace(setup, engine=engine, options=options)

    @contextmanager
    def naming_requirement(self, setup: Setup) -> Iterator[None]:
        """Adds to the error of an engine that is not installed how to run it nevertheless."""
        try:
            yield
        except EngineError as error:
            name = self.engine_b
            if name is None or repr(name) not in error.message:
                raise
            if "python=" in setup.spec:
                # Its environment is given already, and lacks the runtime.
                raise
            from pytest_modelperf.bisect.releases import PACKAGES

            package = PACKAGES.get(name, "PACKAGE")
            hint = f"Or give --requirement-b {shell_word(package)}: it runs in an environment then."
            raise EngineError(f"{error.message} {hint}", error.remedy) from error


engine_option_b = click.option(
    "--engine-option-b",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the second engine; repeatable. With it or a second engine, --engine-option "
    "is for the first one alone.",
)
