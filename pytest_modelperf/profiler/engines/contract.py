"""The contract of an engine: a module that loads a model, runs it, and describes itself.

The source of the module is sent to a worker, so it imports only the standard library, numpy and its
own runtime, and nothing of this package. It has the functions of `Engine`. All but `describe` and
`load` are optional, and so are `prepare_another`, `prepare_steps` and `read_outputs` of a session.

Element types have numpy's names, or `bfloat16`, `float8e4m3fn`, `int4` and so on if numpy lacks the
type. An input of such a type arrives as unsigned integers that hold its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.generic]


class ModelRef(Protocol):
    """The location of a model: a file, and the folder of its external data if that is elsewhere."""

    @property
    def path(self) -> str: ...

    @property
    def folder(self) -> str | None: ...


class StepPlan(Protocol):
    """The steps of a generation: the inputs that change, and the state that each step passes on.

    The inferences of one pass of a workload are also such steps, without a state.
    """

    @property
    def count(self) -> int:
        """The number of steps. The last one is followed by the first."""

    @property
    def state(self) -> Sequence[tuple[str, str]]:
        """Pairs of an input and the output whose value it gets at the next step."""

    @property
    def fixed(self) -> Mapping[str, Array]:
        """The inputs that are the same at each step."""

    def inputs_at(self, step: int) -> Mapping[str, Array]:
        """Return the inputs of a step that change but are not state, such as tokens or masks."""

    def state_at(self, step: int) -> Mapping[str, Array]:
        """Return the state before a step, for an engine that has not run the steps before it."""


class Steps(Protocol):
    """The steps of a generation, one after the other."""

    def __call__(self) -> Any:  # noqa: ANN401  # what the runtime returns
        """Run the next step. Its state stays in the runtime, and nothing is copied."""

    def rewind(self, step: int) -> None:
        """Make this step the next one to run."""


class Session(Protocol):
    """A model that is loaded and ready to run."""

    def prepare(self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]) -> Callable[[], Any]:
        """Return a function that runs one inference on these inputs to its end."""

    def prepare_another(
        self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]
    ) -> Callable[[], Any]:
        """Return another such function, for another thread to run at the same time."""

    def prepare_steps(self, plan: StepPlan, dtypes: Mapping[str, str]) -> Steps:
        """Return the steps of a generation. Several threads may run steps of their own at once."""

    def read_outputs(self) -> Mapping[str, Array]:
        """Return the outputs of an inference on the prepared inputs, by name.

        Outputs that are not arrays, or whose type numpy lacks, are left out.
        """

    def peak_bytes(self) -> int | None:
        """Return the peak memory that the engine reports, or None if it reports none."""

    def close(self) -> None:
        """Free the resources of the session."""


class ProfiledSession(Session, Protocol):
    """A session that records how long each of its kernels takes."""

    def report(self, runs: int) -> dict[str, Any]:
        """Return the times of the last `runs` inferences, by kernel, and end the session.

        `kernels` is a list of dicts: `name`, `op_type`, `provider` and `precision` (or None),
        `calls` in one run, `originals` (names of the nodes of the model that the kernel runs, or
        None), and `self_ns`, one number per run, without the time of what ran inside the kernel.
        `plan` is the engine's own graph as the bytes of an ONNX file without weights, or None.
        `peak_bytes` is the most memory in use, or None.
        """


class Engine(Protocol):
    """The functions of an engine's module. `options` are strings, as users write them."""

    def describe(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Return `name`, `version`, `options` (those that were set) and `providers`."""

    def load(self, model: ModelRef, threads: int, options: Mapping[str, str]) -> Session:
        """Load the model, ready to run on that many threads."""

    def load_profiled(
        self, model: ModelRef, threads: int, options: Mapping[str, str], folder: str
    ) -> ProfiledSession:
        """Load the model in a session that times each kernel and writes its files into `folder`."""

    def observe_shapes(
        self,
        model: ModelRef,
        options: Mapping[str, str],
        inputs: Mapping[str, Array],
        dtypes: Mapping[str, str],
        folder: str,
    ) -> list[dict[str, Any]]:
        """Return the shapes that one unoptimized run saw at each node that ran.

        The result is a list of dicts: `name` of the node, and `calls`, which has for every call the
        list of the shapes of its outputs. Outputs that are not tensors may be None or left out. Two
        keys are optional: `types`, the types of these outputs in its last call, and `spent_ns`, the
        time of all calls.
        """

    def stream_options(self, streams: int, options: Mapping[str, str]) -> Mapping[str, str]:
        """Return the additional options that a session needs to run that many requests at once."""

    def precision_options(self, precision: str, options: Mapping[str, str]) -> Mapping[str, str]:
        """Return the additional options that make a model run in `f32`, `bf16` or `f16`.

        If the engine or the machine lacks this precision, an `OptionError` lists the others.
        """

    def sparsity_options(self, share: float, options: Mapping[str, str]) -> Mapping[str, str]:
        """Return the additional options that exploit weights with this share of zeros."""

    def save_plan(
        self, model: ModelRef, threads: int, options: Mapping[str, str], folder: str
    ) -> str | None:
        """Write the plan that a session would run, as an ONNX file.

        The weights go into a file next to it. Return the path of the ONNX file in `folder`, or None
        if a file cannot show all that runs. An engine with this function also has `load_part`,
        `plan_options` and `read_tensors`.
        """

    def load_and_save_plan(
        self, model: ModelRef, threads: int, options: Mapping[str, str], folder: str
    ) -> tuple[Session, str | None]:
        """Load a session as `load` does, and write its plan as `save_plan` does.

        Without this function, a model whose plan is needed is loaded a second time to run.
        """

    def runs_parts(self, options: Mapping[str, str]) -> bool:
        """Whether a part of a plan takes as long alone as it takes in the model.

        Without this function, every part does. If it is false, plans are only compared.
        """

    def load_part(self, model: ModelRef, threads: int, options: Mapping[str, str]) -> Session:
        """Load a part of a plan so that it runs as it is: no kernel is replaced by another."""

    def plan_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """Return the options with which a plan runs as it is: no kernel is replaced by another."""

    def read_tensors(  # noqa: PLR0913, PLR0917  # a plan, how it runs, on what, and what to read
        self,
        model: ModelRef,
        threads: int,
        options: Mapping[str, str],
        inputs: Mapping[str, Array],
        dtypes: Mapping[str, str],
        names: Sequence[str],
    ) -> Mapping[str, Array]:
        """Run a plan once as it is, and return these outputs by name."""

    def clock_ns(self) -> int:
        """Return the current time, which replaces the machine's clock.

        An engine that simulates its hardware has this function.
        """

    def wait_until(self, moment_ns: int) -> None:
        """Wait until this moment of `clock_ns`, for an engine that has one."""
