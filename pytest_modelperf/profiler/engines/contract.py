"""The contract of an engine: a module that loads a model, runs it, and describes itself.

The source of the module is sent to a worker, so it imports only the standard library, numpy and its
own runtime, and nothing of this package. It has the functions of `Engine`; all but `describe` and
`load` are optional, and so are `prepare_another`, `prepare_steps` and `read_outputs` of a session.
Element types have numpy's names, or `bfloat16`, `float8e4m3fn`, `int4` and so on if numpy lacks the
type: such an input comes as unsigned integers that hold its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.generic]


class ModelRef(Protocol):
    """Where the model is: a file, and the folder of its external data if that is another."""

    @property
    def path(self) -> str: ...

    @property
    def folder(self) -> str | None: ...


class StepPlan(Protocol):
    """The steps of a generation: the inputs that change, and the state that is handed on.

    The inferences of one pass of a workload are such steps, too, without a state.
    """

    @property
    def count(self) -> int:
        """How many steps there are; after the last one the first follows."""
        ...

    @property
    def state(self) -> Sequence[tuple[str, str]]:
        """Inputs, each with the output that it takes over at the next step."""
        ...

    @property
    def fixed(self) -> Mapping[str, Array]:
        """The inputs that are the same at each step."""
        ...

    def inputs_at(self, step: int) -> Mapping[str, Array]:
        """The inputs that change with the steps and are no state: tokens, masks, positions."""
        ...

    def state_at(self, step: int) -> Mapping[str, Array]:
        """The state before a step, for an engine that has not run the steps before it."""
        ...


class Steps(Protocol):
    """Steps of a generation that follow one another."""

    def __call__(self) -> Any:  # noqa: ANN401  # what the runtime returns
        """Run the next step; its state stays where the runtime has it, and nothing is copied."""
        ...

    def rewind(self, step: int) -> None:
        """Have this step run next."""
        ...


class Session(Protocol):
    """A model that is loaded and ready to run."""

    def prepare(self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]) -> Callable[[], Any]:
        """A function that runs one inference on these inputs and returns when it is complete."""
        ...

    def prepare_another(
        self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]
    ) -> Callable[[], Any]:
        """Another such function, for another thread to run while the first runs."""
        ...

    def prepare_steps(self, plan: StepPlan, dtypes: Mapping[str, str]) -> Steps:
        """The steps of a generation; several threads may run steps of their own at once."""
        ...

    def read_outputs(self) -> Mapping[str, Array]:
        """The outputs of an inference on the inputs that were prepared, by name.

        Outputs that are no arrays, or whose type numpy lacks, are left out.
        """
        ...

    def peak_bytes(self) -> int | None:
        """The engine's own figure of its peak memory; None if it does not tell."""
        ...

    def close(self) -> None:
        """Free the resources of the session."""
        ...


class ProfiledSession(Session, Protocol):
    """A session that writes down how long each of its kernels takes."""

    def report(self, runs: int) -> dict[str, Any]:
        """The times of the last `runs` inferences, by kernel. It ends the session.

        `kernels` is a list of dicts: `name`, `op_type`, `provider` and `precision` (or None),
        `calls` in one run, `originals` (names of nodes of the model that it stands for, or None),
        and `self_ns`, one number a run, without what ran inside of the kernel. `plan` is the
        engine's own graph as the bytes of an ONNX file without weights, or None; `peak_bytes`
        the most memory in use, or None.
        """
        ...


class Engine(Protocol):
    """The functions of an engine's module. `options` are texts, as users write them."""

    def describe(self, options: Mapping[str, str]) -> dict[str, Any]:
        """`name`, `version`, `options` (those that were set) and `providers`."""
        ...

    def load(self, model: ModelRef, threads: int, options: Mapping[str, str]) -> Session:
        """The model, ready to run on so many threads."""
        ...

    def load_profiled(
        self, model: ModelRef, threads: int, options: Mapping[str, str], folder: str
    ) -> ProfiledSession:
        """The model with times for each kernel; its files go into `folder`."""
        ...

    def observe_shapes(
        self,
        model: ModelRef,
        options: Mapping[str, str],
        inputs: Mapping[str, Array],
        dtypes: Mapping[str, str],
        folder: str,
    ) -> list[dict[str, Any]]:
        """The shapes that one unoptimized run saw at each node that ran.

        A list of dicts: `name` of the node, and `calls`: for every call the list of the shapes of
        its outputs. Outputs that are no tensors may be None or left out. `types`, the types of
        these outputs in its last call, and `spent_ns`, the time of all calls, are optional.
        """
        ...

    def stream_options(self, streams: int, options: Mapping[str, str]) -> Mapping[str, str]:
        """The additional options that a session needs to run so many requests at once."""
        ...

    def precision_options(self, precision: str, options: Mapping[str, str]) -> Mapping[str, str]:
        """The additional options that make a model run in `f32`, `bf16` or `f16`.

        If the engine or the machine lacks this precision, an `OptionError` lists the others.
        """
        ...

    def sparsity_options(self, share: float, options: Mapping[str, str]) -> Mapping[str, str]:
        """The additional options that make use of weights with this share of zeros."""
        ...

    def save_plan(
        self, model: ModelRef, threads: int, options: Mapping[str, str], folder: str
    ) -> str | None:
        """Write the plan that a session would run, as an ONNX file with its weights beside it.

        Returns the path of that file in `folder`; None if a file cannot tell all that runs. An
        engine with this function has `load_part`, `plan_options` and `read_tensors` too.
        """
        ...

    def load_and_save_plan(
        self, model: ModelRef, threads: int, options: Mapping[str, str], folder: str
    ) -> tuple[Session, str | None]:
        """A session as `load` makes it, whose plan it also writes as `save_plan` does.

        Without this function, a model whose plan is looked at is loaded once more to run.
        """
        ...

    def runs_parts(self, options: Mapping[str, str]) -> bool:
        """Whether a part of a plan takes by itself the time that it takes in the model.

        Without this function all do. Otherwise plans are only compared.
        """
        ...

    def load_part(self, model: ModelRef, threads: int, options: Mapping[str, str]) -> Session:
        """A part of a plan, ready to run as it is: no kernel is replaced by another."""
        ...

    def plan_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """The options with which a plan runs as it is: no kernel is replaced by another."""
        ...

    def read_tensors(  # noqa: PLR0913, PLR0917  # a plan, how it runs, on what, and what to read
        self,
        model: ModelRef,
        threads: int,
        options: Mapping[str, str],
        inputs: Mapping[str, Array],
        dtypes: Mapping[str, str],
        names: Sequence[str],
    ) -> Mapping[str, Array]:
        """These outputs of a plan that runs once as it is, by name."""
        ...

    def clock_ns(self) -> int:
        """The current time, which replaces the machine's clock.

        For an engine that simulates what it runs on.
        """
        ...

    def wait_until(self, moment_ns: int) -> None:
        """Wait until this moment of `clock_ns`, for an engine that has one."""
        ...
