"""Describe the sessions of an engine that a program runs: records, a watcher, and facts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

PLAN_FILE = "plan.onnx"

# Name, shape and type of an input of an inference. The type is any object whose `str` is its name:
# making that string takes longer than all the rest.
InputShape: TypeAlias = tuple[str, tuple[int, ...], object]
InputShapes: TypeAlias = tuple[InputShape, ...]


@dataclass(slots=True, eq=False)
class WatchedSession:
    """The facts of a session, kept after it has ended. Times are of `perf_counter_ns`.

    `model` is a file that holds its model. `folder` is where it writes a profile for us; if it
    writes none, `why` gives the reason. `begun_ns` is when its profile began, and `profiles` are
    the finished ones. Our profile ends after `calls_left` calls, if these are counted; `is_limited`
    is true once it has.
    """

    model: Path | None = None
    file_name: str | None = None
    folder: Path | None = None
    why: str | None = None
    begun_ns: int = 0
    profiles: list[Path] = field(default_factory=list)
    calls_left: int = 0
    is_limited: bool = False

    @property
    def plan(self) -> bytes | None:
        """The runtime's optimized graph of the model, if it saved one."""
        path = None if self.folder is None else self.folder / PLAN_FILE
        return path.read_bytes() if path is not None and path.is_file() else None


class Watcher(Protocol):
    """A receiver of sessions and inferences, on the threads that they run on."""

    def new_folder(self) -> Path | None:
        """Return an empty folder for the profile of a session, or None if no profile is wanted."""

    def on_session(self, session: WatchedSession, start_ns: int, end_ns: int) -> None: ...

    def on_profile_written(self, session: WatchedSession, start_ns: int, end_ns: int) -> None:
        """Note that the runtime wrote a session's profile, for which the program had to wait."""

    def on_inference(  # noqa: PLR0913, PLR0917  # a record of them would cost as much as all the rest
        self,
        session: WatchedSession,
        method: str,
        start_ns: int,
        end_ns: int,
        shapes: InputShapes | None,
        error: str | None,
        has_waited: bool = False,  # noqa: FBT001, FBT002  # the same
    ) -> None:
        """Note that an inference has ended on the current thread.

        `shapes` is None if they are unknown, and `error` is the type of the exception. An inference
        that `has_waited` was requested by another thread and was queued first.
        """

    def on_callback_end(self) -> None:
        """Note that a callback has ended on this thread, which may begin a queued inference."""


# These decide how fast a session is, so they are listed even with their default value.
_MAIN_OPTIONS = (
    "intra_op_num_threads", "inter_op_num_threads", "graph_optimization_level", "execution_mode",
)  # fmt: skip
_OTHER_OPTIONS = (
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling",
    "optimized_model_filepath", "use_deterministic_compute", "use_per_session_threads",
)  # fmt: skip
# The runtime cannot list its entries, so we query those that change how fast a session is.
_ENTRIES = (
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
    "optimization.disable_specified_optimizers",
    "optimization.enable_gelu_approximation",
    "optimization.minimal_build_optimizations",
    "session.disable_aot_function_inlining",
    "session.disable_cpu_ep_fallback",
    "session.disable_double_qdq_remover",
    "session.disable_prepacking",
    "session.disable_quant_qdq",
    "session.dynamic_block_base",
    "session.enable_quant_qdq_cleanup",
    "session.force_spinning_stop",
    "session.inter_op.allow_spinning",
    "session.intra_op.allow_spinning",
    "session.intra_op_thread_affinities",
    "session.qdq_matmulnbits_accuracy_level",
    "session.qdqisint8allowed",
    "session.set_denormal_as_zero",
    "session.use_device_allocator_for_initializers",
    "session.use_env_allocators",
)
_NUMPY_NAMES = {"float": "float32", "double": "float64"}
_SAMPLED_BYTES = 4096


def session_model(source: Any) -> str | bytes | None:  # noqa: ANN401  # anything that the runtime takes
    """Return the absolute path of a model, or its bytes, or None if it is neither."""
    if isinstance(source, str | os.PathLike):
        return os.path.abspath(os.fsdecode(source))  # noqa: PTH100  # links stay as they are
    return bytes(source) if isinstance(source, bytes | bytearray | memoryview) else None


def model_identity(model: str | bytes | None) -> tuple[object, ...]:
    """Return a key that is equal for equal models. Only a sample of a large one is hashed."""
    if not isinstance(model, bytes):
        return (model,)
    step = max(len(model) // _SAMPLED_BYTES, 1)
    ends = model[:_SAMPLED_BYTES], model[-_SAMPLED_BYTES:]
    return (len(model), *map(hash, ends), hash(model[::step]))


def session_options(session: Any) -> dict[str, str]:  # noqa: ANN401  # the runtime has no types
    """Return the options of a session as text: the main ones, and all that are not the default."""
    options = session.get_session_options()
    default = type(options)()
    found = {name: _text(getattr(options, name)) for name in _MAIN_OPTIONS}
    for name in _OTHER_OPTIONS:
        value = getattr(options, name, None)
        if value != getattr(default, name, None):
            found[name] = _text(value)
    for key in _ENTRIES:
        with suppress(RuntimeError):
            found[key] = str(options.get_session_config_entry(key))
    found["providers"] = ", ".join(session.get_providers())
    for provider, given in session.get_provider_options().items():
        found |= {f"{provider}.{name}": str(value) for name, value in given.items()}
    return found


def _text(value: Any) -> str:  # noqa: ANN401
    return str(getattr(value, "name", value))


def input_texts(shapes: InputShapes | None) -> tuple[str, ...]:
    """Return the inputs of an inference as text, by name: their order does not change the work."""
    return tuple(sorted(_described(name, shape, kind) for name, shape, kind in shapes or ()))


def _described(name: str, shape: Iterable[int], kind: object) -> str:
    type_name = str(kind)
    if type_name.startswith("tensor(") and type_name.endswith(")"):
        type_name = type_name[len("tensor(") : -1]
        type_name = _NUMPY_NAMES.get(type_name, type_name)
    size = "x".join(map(str, shape)) or "scalar"
    return f"{name}: {size} {type_name}"


# The values of options that are enumerations, by the names that our engine uses.
_MEMBERS: Mapping[str, int] = {
    "none": 0, "basic": 1, "extended": 2, "layout": 3, "all": 99, "sequential": 0, "parallel": 1,
    "true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0,
}  # fmt: skip
# The options that our engine sets for every session.
_OPTIONS: Mapping[str, int | str] = {"inter_op_num_threads": 1, "log_severity_level": 3}
# Options that are neither attributes of `SessionOptions` nor configuration entries.
_OTHERS = ("provider", "custom_ops")


class SessionAttributes(Struct, frozen=True):
    """Attributes of `SessionOptions`, and entries of its configuration."""

    options: Mapping[str, int | str]
    config: Mapping[str, str]


def session_attributes(options: Mapping[str, str]) -> SessionAttributes:
    """Return the settings of the engine's session with these options, including its defaults."""
    own = {name: value for name, value in options.items() if name.partition(".")[0] not in _OTHERS}
    return SessionAttributes(
        {**_OPTIONS, **{name: _value(text) for name, text in own.items() if "." not in name}},
        {name: text for name, text in own.items() if "." in name},
    )


def _value(text: str) -> int | str:
    if text.lower() in _MEMBERS:
        return _MEMBERS[text.lower()]
    return int(text) if text.removeprefix("-").isdecimal() else text
