"""What an engine is: a module that loads a model, runs it, and says what it is.

The source of the module is sent to a worker, so it imports only the standard library, numpy and
its own runtime, and nothing of this package. Its functions are those of `Engine`; the last six
are optional, and so are `prepare_another` and `read_outputs` of a session. Names of element types
are those of numpy, and `bfloat16`, `float8e4m3fn`, `int4` and so on for types that numpy lacks:
such an input comes as the unsigned integers that hold its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class Session(Protocol):
    """A model that is loaded and ready to run."""

    def prepare(self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]) -> Callable[[], Any]:
        """A function that runs one inference on these inputs and returns when it is complete."""
        ...

    def prepare_another(
        self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]
    ) -> Callable[[], Any]:
        """The same once more, to be run by another thread while the first runs."""
        ...

    def read_outputs(self) -> Mapping[str, Array]:
        """The outputs of an inference on the inputs that were prepared, by name.

        Those that are no arrays, or of a type that numpy lacks, are left out.
        """
        ...

    def peak_bytes(self) -> int | None:
        """The most memory that the engine itself says it used; None where it does not tell."""
        ...

    def close(self) -> None:
        """Give back what the session holds."""
        ...


class ProfiledSession(Session, Protocol):
    """A session that writes down how long each of its kernels takes."""

    def report(self, runs: int) -> dict[str, Any]:
        """What the last `runs` inferences took, kernel by kernel. The session is over after it.

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
        """The same with times for each kernel; its files go into `folder`."""
        ...

    def observe_shapes(
        self,
        model: ModelRef,
        options: Mapping[str, str],
        inputs: Mapping[str, Array],
        dtypes: Mapping[str, str],
        folder: str,
    ) -> list[dict[str, Any]]:
        """What one run with no optimization saw of each node that ran.

        A list of dicts: `name` of the node, and `calls`: for every call the list of the shapes of
        its outputs. What is no tensor may be None or left out.
        """
        ...

    def stream_options(self, streams: int, options: Mapping[str, str]) -> Mapping[str, str]:
        """Options beside those given that a session needs to run so many requests at once."""
        ...

    def precision_options(self, precision: str, options: Mapping[str, str]) -> Mapping[str, str]:
        """Options beside those given that have a model run in `f32`, `bf16` or `f16`.

        An `OptionError` says which there are where the engine, or the machine, has not this one.
        """
        ...

    def sparsity_options(self, share: float, options: Mapping[str, str]) -> Mapping[str, str]:
        """Options beside those given that make use of weights of which this share is zero."""
        ...

    def clock_ns(self) -> int:
        """The time now, by which inferences are timed in place of the machine's.

        For an engine that simulates what it runs on.
        """
        ...
