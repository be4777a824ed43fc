"""Watches the sessions of ONNX Runtime that a program makes and runs.

The methods are wrapped as soon as the program imports the runtime, so that sessions of fixtures are
known. While no call is recorded a wrapper only calls its original.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.labels import add_recorder
from pytest_modelperf.programs.messages import ModelPlace
from pytest_modelperf.programs.station.call_record import CallRecord, CallSpan

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.watched import InputShapes

IN_MEMORY = "model in memory"
# The attribute of a session that holds its group.
_GROUP = "_modelperf_group"
_SAMPLED_BYTES = 4096
# Those that decide how fast a session is; they are named even if they have their default value.
_MAIN_OPTIONS = (
    "intra_op_num_threads",
    "inter_op_num_threads",
    "graph_optimization_level",
    "execution_mode",
)
_OTHER_OPTIONS = (
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
    "enable_mem_reuse",
    "enable_profiling",
    "optimized_model_filepath",
    "use_deterministic_compute",
    "use_per_session_threads",
)
# The runtime lists no entries, so those are asked for that change how fast a session is.
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


class SessionGroup:
    """Sessions of one model with the same options."""

    def __init__(self, name: str, source: str | bytes | None, options: Mapping[str, str]) -> None:
        self.name = name
        self.source = source
        self.options = options

    @functools.cached_property
    def digest(self) -> str | None:
        """The digest of a model in memory; that of a file is left to the parent."""
        source = self.source
        return hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else None


class _Key(Struct, frozen=True):
    source: tuple[object, ...]
    options: tuple[tuple[str, str], ...]


class Sessions:
    """All sessions of this process, and the call that is recorded, if one is."""

    def __init__(self, scratch: Path) -> None:
        self.record: CallRecord | None = None
        self._groups: dict[_Key, SessionGroup] = {}
        self._names: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._scratch = scratch
        add_recorder(self._label)

    def wrap_runtime(self) -> None:
        """Wrap the methods of the runtime, which the program has just imported."""
        from pytest_modelperf.profiler.engines.onnxruntime_methods import RUNS, WrappedMethods
        from pytest_modelperf.profiler.engines.onnxruntime_sessions import (
            SeenBindings,
            shapes_finder,
        )

        methods, bindings = WrappedMethods(), SeenBindings()
        bindings.begin()
        methods.wrap("__init__", self._creating)
        methods.wrap("run_async", self._running_later)
        for name in RUNS:
            find = shapes_finder(name, bindings)
            methods.wrap(name, functools.partial(self._running, find))

    # -- what was recorded

    def work_of(self, record: CallRecord) -> CallWork:
        """The work of a watched call, by session in the order of their names."""
        made = Counter(group.name for group in record.made)
        counts = Counter((group.name, inputs) for group, inputs in record.inferences)
        groups = {group.name: group for group in self._groups.values()}
        names = sorted({*made, *(name for name, _ in counts)})
        return CallWork(
            sessions=tuple(
                SessionWork(
                    model=name,
                    sha256=groups[name].digest,
                    options=groups[name].options,
                    made=made[name],
                    inferences=tuple(
                        InferenceWork(inputs=inputs, count=count)
                        for (owner, inputs), count in sorted(counts.items())
                        if owner == name
                    ),
                )
                for name in names
            )
        )

    def models(self) -> dict[str, ModelPlace]:
        """The places of all models, by the names of their sessions."""
        return {group.name: self._place(group) for group in tuple(self._groups.values())}

    def _place(self, group: SessionGroup) -> ModelPlace:
        if isinstance(group.source, bytes):
            copy = self._scratch / f"{group.digest}.onnx"
            if not copy.exists():
                copy.write_bytes(group.source)
            return ModelPlace(path=str(copy), sha256=group.digest, is_copy=True)
        return ModelPlace(path=group.source)

    # -- wrappers

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(session: Any, path_or_bytes: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401, N807  # it stands in for that
            original(session, path_or_bytes, *arguments, **named)
            group = self._group(session, path_or_bytes)
            record = self.record
            if record is not None and record.is_watched:
                record.made.append(group)

        return __init__

    def _running(
        self,
        find_shapes: Callable[[tuple[Any, ...], Mapping[str, Any]], InputShapes | None],
        original: Callable[..., Any],
    ) -> Callable[..., Any]:
        clock, cpu_clock = time.perf_counter_ns, time.thread_time_ns

        # All of this is overhead, and a small inference takes only 10 us.
        def run(session: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # no types
            record = self.record
            if record is None:
                return original(session, *arguments, **named)
            group = getattr(session, _GROUP, None) or self._group(session, None)
            if record.is_watched:
                record.inferences.append((group, _texts(find_shapes(arguments, named))))
            is_own = get_ident() == record.thread
            if is_own:
                waited_ns, cpu_ns = record.waited(), cpu_clock()
            start_ns = clock()
            try:
                return original(session, *arguments, **named)
            finally:
                end_ns = clock()
                if is_own:
                    record.session_cpu_ns += cpu_clock() - cpu_ns
                    record.session_waited_ns += record.waited() - waited_ns
                record.spans.append(CallSpan(group.name, start_ns, end_ns))

        return run

    def _running_later(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_async(  # noqa: PLR0913, PLR0917  # as the runtime has it
            session: Any,  # noqa: ANN401
            output_names: Any,  # noqa: ANN401
            input_feed: Any,  # noqa: ANN401
            callback: Callable[..., Any],
            user_data: Any,  # noqa: ANN401
            run_options: Any = None,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            record = self.record
            if record is None:
                return original(session, output_names, input_feed, callback, user_data, run_options)
            group = getattr(session, _GROUP, None) or self._group(session, None)
            if record.is_watched:
                from pytest_modelperf.profiler.engines.onnxruntime_sessions import feed_shapes

                record.inferences.append((group, _texts(feed_shapes(input_feed))))
            start_ns = time.perf_counter_ns()

            def ended(results: Any, data: Any, problem: str) -> Any:  # noqa: ANN401
                record.spans.append(CallSpan(group.name, start_ns, time.perf_counter_ns()))
                return callback(results, data, problem)

            return original(session, output_names, input_feed, ended, user_data, run_options)

        return run_async

    def _label(self, name: str) -> AbstractContextManager[None]:
        record = self.record
        return nullcontext() if record is None else record.label(name)

    def _group(self, session: Any, source: Any) -> SessionGroup:  # noqa: ANN401
        """The group of a session, which is noted at the session."""
        options = _options(session)
        given = source if source is not None else getattr(session, "_model_path", None)
        model = _model(given)
        key = _Key(_identity(model), tuple(options.items()))
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                name = Path(model).name if isinstance(model, str) else IN_MEMORY
                self._names[name] += 1
                number = self._names[name]
                shown = name if number == 1 else f"{name} {number}"
                group = self._groups[key] = SessionGroup(shown, model, options)
        setattr(session, _GROUP, group)
        return group


def _model(source: Any) -> str | bytes | None:  # noqa: ANN401  # anything that the runtime takes
    if isinstance(source, str | os.PathLike):
        return os.path.abspath(os.fsdecode(source))  # noqa: PTH100  # links stay as they are
    return bytes(source) if isinstance(source, bytes | bytearray | memoryview) else None


def _identity(model: str | bytes | None) -> tuple[object, ...]:
    """What makes two models the same; of a large one in memory a sample, which takes no time."""
    if not isinstance(model, bytes):
        return (model,)
    step = max(len(model) // _SAMPLED_BYTES, 1)
    ends = model[:_SAMPLED_BYTES], model[-_SAMPLED_BYTES:]
    return (len(model), *map(hash, ends), hash(model[::step]))


def _options(session: Any) -> dict[str, str]:  # noqa: ANN401  # the runtime has no types
    """The options of a session as texts: the main ones, and others that differ from the default."""
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
    """A number, a truth value or the name of a member of an enumeration."""
    return str(getattr(value, "name", value))


def _texts(shapes: InputShapes | None) -> tuple[str, ...]:
    """The inputs of an inference as texts, by name: their order changes no work."""
    return tuple(sorted(_described(name, shape, kind) for name, shape, kind in shapes or ()))


def _described(name: str, shape: Iterable[int], kind: object) -> str:
    type_name = str(kind)
    if type_name.startswith("tensor(") and type_name.endswith(")"):
        type_name = type_name[len("tensor(") : -1]
        type_name = _NUMPY_NAMES.get(type_name, type_name)
    size = "x".join(map(str, shape)) or "scalar"
    return f"{name}: {size} {type_name}"
