"""The options for where a model runs: engines, Pythons, packages, clusters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cli.options import with_options
from pytest_modelperf.cli.output import shown_progress
from pytest_modelperf.cli.parameters import (
    Command,
    HelpGroup,
    Option,
    option_of,
    parse_interpreter,
    setting_option,
)
from pytest_modelperf.errors import EngineError, UsageError
from pytest_modelperf.spec.run_definitions import CLUSTER, ENGINE_OPTION, MACHINE
from pytest_modelperf.text.words import shell_word

if TYPE_CHECKING:
    from pytest_modelperf.cluster.cluster import Cluster
    from pytest_modelperf.cluster.records import ClusterStatus
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.model_request import SharedRequest
    from pytest_modelperf.profiler.sampling.setup import Setup


class SecondEngine(Struct, frozen=True):
    """The engine of the second side and its options, by default those of the first side."""

    engine_b: str | None
    engine_option_b: tuple[str, ...]

    def check_static(self) -> None:
        """Raise UsageError if one of them is given, because an engine needs a run of the models."""
        options = {"--engine-b": self.engine_b, "--engine-option-b": self.engine_option_b}
        for option, value in options.items():
            if value:
                raise UsageError(
                    f"{option} needs a run of the models: leave out --static or {option}."
                )

    def setup(self, setup: Setup, extensions: Extensions) -> Setup:
        if self.engine_b is None and not self.engine_option_b:
            return setup
        from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE
        from pytest_modelperf.spec.kinds import read_typed

        engine = setup.engine
        if self.engine_b is not None:
            engine = extensions.engines.find(self.engine_b)
        if engine.name == CALLABLE_ENGINE:
            raise UsageError(
                f"the engine {engine.name} runs Python functions, but this command takes only ONNX "
                "models: give another engine."
            )
        options = read_typed(ENGINE_OPTION, self.engine_option_b, "--engine-option-b")
        return replace(setup, engine=engine, options=options)

    @contextmanager
    def naming_requirement(self, setup: Setup) -> Iterator[None]:
        """Add to the error of an engine that is not installed how to run it in an environment."""
        try:
            yield
        except EngineError as error:
            name = self.engine_b
            if name is None or repr(name) not in error.message:
                raise
            if "python=" in setup.spec:
                # Its environment is already given, and lacks the runtime.
                raise
            from pytest_modelperf.bisect.versions import PACKAGES

            package = PACKAGES.get(name, "PACKAGE")
            hint = f"Or give --requirement-b {shell_word(package)}: it runs in an environment then."
            raise EngineError(f"{error.message} {hint}", error.remedy) from error


engine_option_b = option_of(
    HelpGroup.ENGINE,
    "--engine-option-b",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the second engine; repeatable. With it or a second engine, --engine-option "
    "applies only to the first one.",
)


# -- the options that have a model run in an environment with given packages


def requirement_option(name: str, runs: str) -> Option:
    """Return a repeatable option for requirements. `runs` names what runs with them."""
    return option_of(
        HelpGroup.ENGINE,
        name,
        multiple=True,
        metavar="REQ",
        help=f"Run {runs} with this package, as in onnxruntime==1.22.0, in an environment that is "
        "made once and kept; repeatable.",
    )


def require_this_machine(option: str, requirements: Sequence[str], *, is_on_cluster: bool) -> None:
    """Raise UsageError for packages on this machine if a cluster measures."""
    if requirements and is_on_cluster:
        raise UsageError(
            f"{option} runs the model in an environment on this machine: leave out --cluster or "
            f"{option}."
        )


def require_local_gateway(option: str, gateway: str | None) -> None:
    """Raise UsageError for a Python of this machine if the other side runs on another machine."""
    from pytest_modelperf.profiler.worker.gateway import is_local

    if gateway is not None and not is_local(gateway):
        raise UsageError(
            f"{option} runs a model on this machine, and --gateway on another one, so they could "
            "not be compared: leave out one of them."
        )


def environment_spec(option: str, requirements: Sequence[str]) -> str | None:
    """Return the gateway to a Python with these packages, if any are given."""
    if not requirements:
        return None
    from pytest_modelperf.environments.store import make_environment
    from pytest_modelperf.profiler.worker.gateway import interpreter_spec

    with shown_progress() as progress:
        made = make_environment(requirements, on_progress=progress.tell)
    return interpreter_spec(str(made.python), option)


# -- the options for the Pythons that run the two sides of a comparison


class InterpreterOptions(Struct, frozen=True):
    """The Python that runs each of the two models, or its packages. The default is this Python."""

    python_a: str | None
    python_b: str | None
    requirement_a: tuple[str, ...]
    requirement_b: tuple[str, ...]

    def check(self, *, static: bool, is_on_cluster: bool, gateway: str | None) -> None:
        """Raise UsageError if one is given that has no effect, or contradicts another option."""
        for side, python, requirements in (
            ("a", self.python_a, self.requirement_a),
            ("b", self.python_b, self.requirement_b),
        ):
            given = [
                *([f"--python-{side}"] if python is not None else []),
                *([f"--requirement-{side}"] if requirements else []),
            ]
            if static and given:
                raise UsageError(
                    f"{given[0]} needs a run of the models: leave out --static or {given[0]}."
                )
            require_this_machine(f"--requirement-{side}", requirements, is_on_cluster=is_on_cluster)
            for option in given:
                require_local_gateway(option, gateway)
            if len(given) > 1:
                raise UsageError(
                    f"{given[0]} and {given[1]} both say which Python runs a model: leave one of "
                    "them out."
                )

    def setups(self, setup_a: Setup, setup_b: Setup, *, are_here: bool) -> tuple[Setup, Setup]:
        """Return the setup of each model.

        Environments with requirements are made here. On a cluster, the Pythons are those of its
        machines.
        """
        specs = (
            parse_interpreter("--python-a", self.python_a, is_here=are_here)
            or environment_spec("--requirement-a", self.requirement_a),
            parse_interpreter("--python-b", self.python_b, is_here=are_here)
            or environment_spec("--requirement-b", self.requirement_b),
        )
        before, after = (
            replace(setup, spec=spec or setup.spec)
            for setup, spec in zip((setup_a, setup_b), specs, strict=True)
        )
        return before, after


def interpreter_options(command: Command) -> Command:
    """Add the options whose values `InterpreterOptions` takes."""
    return with_options(
        command,
        option_of(
            HelpGroup.ENGINE,
            "--python-a",
            metavar="PATH",
            help="Run A in this Python.  [default: this one]",
        ),
        option_of(
            HelpGroup.ENGINE,
            "--python-b",
            metavar="PATH",
            help="Run B in this Python.  [default: this one]",
        ),
        requirement_option("--requirement-a", "A"),
        requirement_option("--requirement-b", "B"),
    )


# -- the options that have a command measure on a cluster


_Result = TypeVar("_Result")


class ClusterOptions(Struct, frozen=True):
    """The cluster that measures, and the keys and tags of its machines: by default all."""

    cluster: str | None = None
    machine: tuple[str, ...] = ()

    @property
    def is_given(self) -> bool:
        return self.cluster is not None

    def check(self, *, static: bool = False, roofline: str | None = None) -> None:
        """Raise UsageError for an option that cannot be used with a cluster.

        `roofline` is the option that requests a roofline, if any.
        """
        if self.cluster is None:
            if self.machine:
                raise UsageError("--machine chooses machines of a cluster: give --cluster too.")
            return
        if static:
            raise UsageError("--cluster needs a run of the model: leave out --static or --cluster.")
        if roofline is not None:
            raise UsageError(
                f"a roofline needs the peaks of this machine: leave out {roofline} or --cluster."
            )
        from pytest_modelperf.cluster.places import check_cluster_extra

        check_cluster_extra("--cluster")

    @contextmanager
    def opened(self, *setups: Setup, plugins: Sequence[str]) -> Iterator[Cluster]:
        """Yield the cluster after checking that it has machines for these setups and plugins."""
        from pytest_modelperf.cluster.cluster import open_cluster
        from pytest_modelperf.cluster.machines import status_line
        from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE
        from pytest_modelperf.profiler.worker.gateway import is_this_python

        if any(setup.engine.name == CALLABLE_ENGINE for setup in setups):
            raise UsageError("--cluster measures models: leave it out to measure a function.")
        # Another interpreter of a machine has its own engine.
        engines = {setup.engine.name for setup in setups if is_this_python(setup.spec)}
        with shown_progress() as line:

            def show(status: ClusterStatus) -> None:
                line.show(status_line(status, shutil.get_terminal_size().columns - 1))

            with open_cluster(self.cluster or "", show, on_warning=line.warn) as cluster:
                for engine in sorted(engines) or (None,):
                    cluster.require([self.machine], engine, plugins)
                yield cluster

    def run(self, asked: SharedRequest[_Result], *setups: Setup, plugins: Sequence[str]) -> _Result:
        with self.opened(*setups, plugins=plugins) as cluster:
            from pytest_modelperf.cluster.cluster import run_on_cluster

            return run_on_cluster(cluster, asked, plugins=plugins, machines=self.machine)


def cluster_options(command: Command) -> Command:
    return with_options(
        command,
        setting_option(CLUSTER, more="`modelperf worker` starts them."),
        setting_option(MACHINE),
    )
