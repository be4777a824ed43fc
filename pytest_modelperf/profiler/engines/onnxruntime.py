"""ONNX Runtime as an engine.

Its source is sent to a worker; it needs numpy and the runtime.

Options are strings. `provider` names the execution providers in order of preference, separated by
commas (CPU by default). `provider.<key>` is an option of the first of them. Another name with a dot
is an entry of the session's configuration (`session.force_spinning_stop`). `custom_ops` is the path
of a library of operators. Any other name is an attribute of `SessionOptions`
(`graph_optimization_level=basic`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import os
import platform
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Array, ModelRef, StepPlan

NAME = "onnxruntime"

# Threads of an idle session would go on spinning on processors while something else is timed. With
# this entry they stop when an inference ends, at no cost to the next.
_DEFAULTS = {"session.force_spinning_stop": "1"}
_MEMBERS = {
    "sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL", "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT", "all": "ORT_ENABLE_ALL",
}  # fmt: skip
_PROVIDER = "provider"
_SUFFIX = "ExecutionProvider"
# Only errors are logged: the layers show which provider a node fell back to.
_LOG_SEVERITY = 3
_CUSTOM_OPS = "custom_ops"
_THREADS = "intra_op_num_threads"
# Options that the worker sets.
_OURS = {
    "enable_profiling": "layers are timed in a session of their own",
    "profile_file_prefix": "layers are timed in a session of their own",
    "optimized_model_filepath": "a worker leaves no files behind",
}
_TEXT = "string"
# Types of inputs that numpy lacks, as `TensorProto.DataType` numbers them.
_ONNX_TYPES = {
    "bfloat16": 16, "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19,
    "float8e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4e2m1": 23, "float8e8m0": 24,
    "uint2": 25, "int2": 26,
}  # fmt: skip
# Types that the runtime packs, several to a byte, and their bits.
_PACKED_BITS = {"uint4": 4, "int4": 4, "float4e2m1": 4, "uint2": 2, "int2": 2}
# A profile's names of tensor types that differ from numpy's.
_PROFILE_TYPES = {"float": "float32", "double": "float64"}
# Types of indices and conditions, which do not show the precision.
_INDEX_TYPES = ("bool", "int32", "int64")
# A profile truncates durations to whole microseconds: on average half of one is missing.
_NS_PER_US = 1000
_CUT_OFF_US = 0.5
# The most events that a profile can hold.
_MAX_EVENTS = 1_000_000
_KERNEL_EVENT = "_kernel_time"
_CPU = "CPUExecutionProvider"
# The providers whose plans show all that runs; others compile parts of a plan.
_PLANNED = {_CPU, "CUDAExecutionProvider"}
# Without optimizations, exactly the kernels of a plan run.
_AS_IT_IS = {"graph_optimization_level": "none"}
_PLAN_FILE, _WEIGHTS_FILE = "plan.onnx", "plan.weights"
# The bytes of the smallest weights in that file. Shape inference needs the values of smaller ones,
# such as the pads of four axes, and does not read them from another file.
_LEAST_APART = "128"
# The runtime itself checks for the instructions.
_BFLOAT16_PRODUCTS = "mlas.enable_gemm_fastmath_arm64_bfloat16"
_ARM_64 = ("aarch64", "arm64")
_CUDA = "cuda"
# Providers whose outputs stay on a device, and its name. Others write into main memory.
_DEVICES = {
    "CUDAExecutionProvider": _CUDA,
    "DmlExecutionProvider": "dml",
    "TensorrtExecutionProvider": _CUDA,
}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class OptionError(ValueError):
    """The runtime does not have this option, or refuses its value."""


def describe(options: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": NAME,
        "version": ort.__version__,
        "options": {**_DEFAULTS, **options},
        "providers": [name for name, _ in _providers(options)],
    }


def load(model: ModelRef, threads: int, options: Mapping[str, str]) -> _Session:
    return _Session(_open(model, _session_options(threads, options), options))


def load_profiled(
    model: ModelRef, threads: int, options: Mapping[str, str], folder: str
) -> _ProfiledSession:
    own = Path(tempfile.mkdtemp(prefix="profile-", dir=folder))
    try:
        made = _profiled_options(threads, options, own)
        _save_plan(made, own)
        try:
            session = _open(model, made, options)
        except OptionError:
            raise
        except Exception:  # noqa: BLE001  # raised again if it persists
            # A provider that compiles its part of the graph cannot save a plan.
            made.optimized_model_filepath = ""
            session = _open(model, made, options)
        return _ProfiledSession(session, own)
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise


def save_plan(model: ModelRef, threads: int, options: Mapping[str, str], folder: str) -> str | None:
    """See `Engine`. Providers that compile parts of a plan have none to save."""
    if not _can_save_plan(options):
        return None
    path = Path(folder) / _PLAN_FILE
    made = _saving_options(threads, options, path)
    # This session never runs, so its weights need not be packed.
    made.add_session_config_entry("session.disable_prepacking", "1")
    _open(model, made, options)
    return str(path) if path.exists() else None


def load_and_save_plan(
    model: ModelRef, threads: int, options: Mapping[str, str], folder: str
) -> tuple[_Session, str | None]:
    if not _can_save_plan(options):
        return load(model, threads, options), None
    path = Path(folder) / _PLAN_FILE
    session = _Session(_open(model, _saving_options(threads, options, path), options))
    return session, str(path) if path.exists() else None


def _can_save_plan(options: Mapping[str, str]) -> bool:
    return _PLANNED.issuperset(name for name, _ in _providers(options))


def _saving_options(threads: int, options: Mapping[str, str], path: Path) -> ort.SessionOptions:
    made = _session_options(threads, options)
    made.optimized_model_filepath = str(path)
    _keep_weights_apart(made)
    return made


def runs_parts(options: Mapping[str, str]) -> bool:
    """See `Engine`. On a device the inputs of each part would first have to be copied there."""
    return all(name == _CPU for name, _ in _providers(options))


def load_part(model: ModelRef, threads: int, options: Mapping[str, str]) -> _PartSession:
    made = _session_options(threads, plan_options(options))
    return _PartSession(_open(model, made, options))


def plan_options(options: Mapping[str, str]) -> Mapping[str, str]:
    return {**options, **_AS_IT_IS}


def read_tensors(  # noqa: PLR0913, PLR0917  # see `Engine`
    model: ModelRef,
    threads: int,
    options: Mapping[str, str],
    inputs: Mapping[str, Array],
    dtypes: Mapping[str, str],
    names: Sequence[str],
) -> Mapping[str, Array]:
    """See `Engine`. Raise ValueError for a tensor whose type numpy lacks."""
    session = _open(model, _session_options(threads, plan_options(options)), options)
    if _TEXT in dtypes.values():
        # The runtime cannot make an `OrtValue` from text.
        results = session.run(list(names), dict(inputs))
    else:
        kept: list[Array] = []
        results = session.run_with_ort_values(list(names), _ort_values(inputs, dtypes, kept))
    return {name: _array_of(name, result) for name, result in zip(names, results)}  # noqa: B905  # 3.9 has no strict


def _array_of(name: str, result: Any) -> Array:  # noqa: ANN401  # a value of the runtime, or an output of `run`
    is_value = isinstance(result, ort.OrtValue)
    array = result.numpy() if is_value and result.is_tensor() else result
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        kind = result.data_type() if is_value else "no array of numbers"
        raise ValueError(f"the tensor {name!r} is {kind}, which no part can be given")
    return array


def observe_shapes(
    model: ModelRef,
    options: Mapping[str, str],
    inputs: Mapping[str, Array],
    dtypes: Mapping[str, str],
    folder: str,
) -> list[dict[str, Any]]:
    """See `Engine`. The runtime does not report outputs that are left out or are not tensors."""
    own = Path(tempfile.mkdtemp(prefix="shapes-", dir=folder))
    try:
        plain = {k: v for k, v in plan_options(options).items() if k != _THREADS}
        session = _open(model, _profiled_options(1, plain, own), plain)
        _Session(session).prepare(inputs, dtypes)()
        seen: dict[str, dict[str, Any]] = {}
        for event in _read_events(Path(session.end_profiling())):
            if _is_kernel(event):
                name: str = event["name"].removesuffix(_KERNEL_EVENT)
                results = _types(event["args"], "output_type_shape")
                node = seen.setdefault(name, {"name": name, "calls": [], "spent_ns": 0})
                node["calls"].append([list(shape) for _, shape in results])
                node["types"] = [_PROFILE_TYPES.get(kind, kind) for kind, _ in results]
                node["spent_ns"] += event["dur"] * _NS_PER_US
        return list(seen.values())
    finally:
        shutil.rmtree(own, ignore_errors=True)


def precision_options(precision: str, options: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG001  # see `Engine`
    """See `Engine`. Only ARM has an option, which multiplies float32 matrices in bfloat16."""
    limit = f"onnxruntime {ort.__version__} runs a model in the precision that it is stored in."
    if platform.machine().lower() not in _ARM_64:
        raise OptionError(f"{limit} Give another --engine, such as openvino.")
    if precision != "bf16":
        raise OptionError(
            f"{limit} On this processor it can multiply matrices of float32 in bf16: give that, or "
            "another --engine."
        )
    return {_BFLOAT16_PRODUCTS: "1"}


class _Session:
    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        # Values of types that numpy lacks use the memory of these arrays.
        self._kept: list[Array] = []
        self._infer: Callable[[], Any] = list

    def prepare(self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]) -> Callable[[], Any]:
        self._infer = self.prepare_another(inputs, dtypes)
        return self._infer

    def prepare_steps(self, plan: StepPlan, dtypes: Mapping[str, str]) -> _Steps:
        return _Steps(self._session, plan, dtypes)

    def read_outputs(self) -> Mapping[str, Array]:
        names = [output.name for output in self._session.get_outputs()]
        values = self._infer()
        return {name: v for name, v in zip(names, values) if isinstance(v, np.ndarray)}  # noqa: B905  # 3.9 has no strict

    # Several threads may run a session at once.
    def prepare_another(
        self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]
    ) -> Callable[[], Any]:
        if not any(dtype in _ONNX_TYPES for dtype in dtypes.values()):
            return functools.partial(self._session.run, None, dict(inputs))
        values = _ort_values(inputs, dtypes, self._kept)
        outputs = [output.name for output in self._session.get_outputs()]
        return functools.partial(self._session.run_with_ort_values, outputs, values)

    def peak_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        del self._infer, self._session


class _PartSession(_Session):
    """A session whose outputs stay in the memory of the runtime, as those of a kernel do."""

    def prepare_another(
        self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]
    ) -> Callable[[], Any]:
        self._kept.extend(inputs.values())
        values = {name: _ort_value(array, dtypes.get(name, "")) for name, array in inputs.items()}
        outputs = [output.name for output in self._session.get_outputs()]
        if not all(output.type.startswith("tensor") for output in self._session.get_outputs()):
            return functools.partial(self._session.run_with_ort_values, outputs, values)
        # Naming all inputs again takes as long as a kernel of a small model.
        binding = self._session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        run, bind_output = self._session.run_with_iobinding, binding.bind_output

        def infer() -> None:
            for name in outputs:
                # Otherwise the runtime would overwrite the output of the previous run.
                bind_output(name)
            run(binding)

        return infer


class _Steps:
    """The steps of a generation, whose state stays in values of the runtime, on its device."""

    def __init__(
        self, session: ort.InferenceSession, plan: StepPlan, dtypes: Mapping[str, str]
    ) -> None:
        self._outputs = [output.name for output in session.get_outputs()]
        # A binding keeps what does not change, which saves 20 to 30 µs per step.
        self._binding = session.io_binding()
        self._bind_input = self._binding.bind_ortvalue_input
        # Outputs stay on the device that the first provider computes on.
        provider = session.get_providers()[0]
        kind = _DEVICES.get(provider, "cpu")
        number = int(session.get_provider_options().get(provider, {}).get("device_id", "0"))
        self._bind_output = self._binding.bind_output
        if kind != "cpu":
            self._bind_output = functools.partial(
                self._bind_output, device_type=kind, device_id=number
            )
        self._run = functools.partial(session.run_with_iobinding, self._binding)
        self._handed_on = [(past, self._outputs.index(present)) for past, present in plan.state]
        self._plan = plan
        self._dtypes = dtypes
        # Values use the memory of their arrays.
        self._kept: list[Array] = []
        self._kept_state: list[Array] = []
        self._count = plan.count
        self._inputs = [
            tuple(_ort_values(plan.inputs_at(step), dtypes, self._kept).items())
            for step in range(plan.count)
        ]
        self._first = _ort_values(plan.state_at(0), dtypes, self._kept)
        self._bind({**_ort_values(plan.fixed, dtypes, self._kept), **self._first})
        self._next = 0

    def __call__(self) -> Any:  # noqa: ANN401  # what the runtime returns
        bind, bind_output = self._bind_input, self._bind_output
        step = self._next
        for name, value in self._inputs[step]:
            bind(name, value)
        for name in self._outputs:
            # Otherwise the runtime would overwrite the output of the previous step.
            bind_output(name)
        self._run()
        outputs = self._binding.get_outputs()
        step += 1
        if step == self._count:
            self._next = 0
            self._bind(self._first)
            return outputs
        self._next = step
        for past, place in self._handed_on:
            bind(past, outputs[place])
        return outputs

    def rewind(self, step: int) -> None:
        if step == self._next:
            return
        kept: list[Array] = []
        self._bind(
            _ort_values(self._plan.state_at(step), self._dtypes, kept) if step else self._first
        )
        # The arrays of the previous state are in use until here.
        self._kept_state = kept
        self._next = step

    def _bind(self, values: Mapping[str, ort.OrtValue]) -> None:
        for name, value in values.items():
            self._bind_input(name, value)


class _ProfiledSession(_Session):
    def __init__(self, session: ort.InferenceSession, folder: Path) -> None:
        super().__init__(session)
        self._folder = folder

    def report(self, runs: int) -> dict[str, Any]:
        """See `ProfiledSession`. There are fewer runs if a profile cannot hold that many."""
        try:
            profile = _Profile(runs)
            profile.read(Path(self._session.end_profiling()))
            plan = self._folder / _PLAN_FILE
            return {
                "kernels": profile.kernels(),
                "plan": plan.read_bytes() if plan.exists() else None,
                "peak_bytes": profile.peak_bytes,
            }
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _open(
    model: ModelRef, session_options: ort.SessionOptions, options: Mapping[str, str]
) -> ort.InferenceSession:
    source: str | bytes = model.path
    if model.folder is not None:
        # Read here, because the runtime looks for external data next to a file that it opens.
        session_options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", model.folder
        )
        with open(model.path, "rb") as file:  # noqa: PTH123  # a path is a string on this side
            source = file.read()
    providers = _providers(options)
    if any(_DEVICES.get(name) == _CUDA for name, _ in providers):
        _load_cuda()
    # Versions before 1.21 ignore that entry, and look in the working folder.
    with _working_in(model.folder):
        session = ort.InferenceSession(source, session_options, providers=providers)
    missing = [name for name, _ in providers if name not in session.get_providers()]
    if missing:
        raise OptionError(_why_missing(missing[0]))
    return session


def _why_missing(provider: str) -> str:
    missing = _load_cuda() if _DEVICES.get(provider) == _CUDA else ()
    if missing:
        return (
            f"{provider} could not be set up, because these libraries could not be loaded: "
            f"{', '.join(missing)}. Install them, as in `pip install "
            "'onnxruntime-gpu[cuda,cudnn]'`, or choose another provider."
        )
    return (
        f"{provider} could not be set up. Its libraries may be missing, or its device: "
        "install them, or choose another provider."
    )


@functools.cache
def _load_cuda() -> tuple[str, ...]:
    """Load CUDA's libraries from pip packages. Return those that the runtime cannot load."""
    # Versions before 1.21 lack it.
    load_libraries = getattr(ort, "preload_dlls", None)
    said = io.StringIO()
    if load_libraries is not None:
        with contextlib.redirect_stdout(said):
            load_libraries()
    return tuple(re.findall(r"^Failed to load (.+?): ", said.getvalue(), re.MULTILINE))


@contextlib.contextmanager
def _working_in(folder: str | None) -> Iterator[None]:
    before = os.getcwd()  # noqa: PTH109  # a path is a string on this side
    os.chdir(before if folder is None else folder)
    try:
        yield
    finally:
        os.chdir(before)


def _session_options(threads: int, options: Mapping[str, str]) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.intra_op_num_threads = threads
    made.inter_op_num_threads = 1
    made.log_severity_level = _LOG_SEVERITY
    for name, value in {**_DEFAULTS, **options}.items():
        if name == _PROVIDER or name.startswith(f"{_PROVIDER}."):
            continue
        if name == _CUSTOM_OPS:
            made.register_custom_ops_library(value)
        elif "." in name:
            made.add_session_config_entry(name, value)
        elif name == _THREADS:
            made.intra_op_num_threads = _fewer_threads(value, threads)
        else:
            _set_attribute(made, name, value)
    return made


def _set_attribute(session_options: ort.SessionOptions, name: str, text: str) -> None:
    if name in _OURS:
        raise OptionError(f"the session option {name} cannot be set: {_OURS[name]}.")
    names = (n for n in dir(ort.SessionOptions) if not n.startswith("_") and n not in _OURS)
    known = sorted(n for n in names if isinstance(getattr(ort.SessionOptions, n), property))
    if name not in known:
        raise OptionError(
            f"onnxruntime {ort.__version__} has no session option {name!r}. "
            f"There are: {', '.join(known)}, custom_ops, provider, provider.<key>, and entries "
            "of the session's configuration, which have a dot in their name."
        )
    present = getattr(session_options, name)
    try:
        setattr(session_options, name, _parsed(text, present))
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"the session option {name} cannot be {text!r}: it can be {_choices(present)}."
        ) from error


def _fewer_threads(text: str, threads: int) -> int:
    if text.isdecimal() and 1 <= int(text) <= threads:
        return int(text)
    raise OptionError(
        f"the session option {_THREADS} cannot be {text!r}: give a number from 1 to the cores "
        f"of the case, here {threads}."
    )


def _choices(present: object) -> str:
    """Return the values of an option, by the names that our documentation uses."""
    if isinstance(present, bool):
        return "true or false"
    if isinstance(present, int):
        return "a whole number"
    short = {member: name for name, member in _MEMBERS.items()}
    return ", ".join(short.get(name, name) for name in getattr(type(present), "__members__", ()))


def _parsed(text: str, present: object) -> object:
    """Return `text` converted to the type of the option's current value."""
    if isinstance(present, bool):
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ValueError(text)
        return text.lower() in _TRUE
    if isinstance(present, int):
        return int(text)
    if isinstance(present, str):
        return text
    kind = type(present)
    member = getattr(kind, _MEMBERS.get(text.lower(), text), None)
    if not isinstance(member, kind):
        raise ValueError(text)  # noqa: TRY004  # the text is not the name of a member
    return member


def _providers(options: Mapping[str, str]) -> list[tuple[str, dict[str, str]]]:
    """Return the providers with their options. The CPU is the last and runs what others cannot."""
    available = ort.get_available_providers()
    names = []
    for part in options.get(_PROVIDER, "CPU").split(","):
        name = part.strip()
        full = next(
            (a for a in available if a.lower() in (name.lower(), f"{name}{_SUFFIX}".lower())), None
        )
        if full is None:
            raise OptionError(
                f"this onnxruntime has no execution provider {name!r}. There are: "
                f"{', '.join(available)}."
            )
        names.append(full)
    if _CPU not in names:
        names.append(_CPU)
    prefix = f"{_PROVIDER}."
    first = {k.removeprefix(prefix): v for k, v in options.items() if k.startswith(prefix)}
    return [(name, first if index == 0 else {}) for index, name in enumerate(names)]


def _packed(array: Array, dtype: str) -> Array:
    """Pack the bits as the runtime reads them: several elements to a byte, lowest bits first.

    The array keeps its shape, which the runtime takes as the input's shape; its end is unused.
    """
    if dtype not in _PACKED_BITS:
        return array
    # Higher bits of an element repeat its sign.
    bits = np.unpackbits(
        array.view(np.uint8).reshape(-1, 1), axis=1, count=_PACKED_BITS[dtype], bitorder="little"
    )
    packed = np.zeros(array.shape, np.uint8)
    filled = np.packbits(bits, bitorder="little")
    packed.reshape(-1)[: filled.size] = filled
    return packed


def _ort_values(
    arrays: Mapping[str, Array], dtypes: Mapping[str, str], kept: list[Array]
) -> dict[str, ort.OrtValue]:
    """Return values of the runtime, and add the arrays whose memory they use to `kept`."""
    stored = {name: _packed(array, dtypes[name]) for name, array in arrays.items()}
    kept.extend(stored.values())
    return {name: _ort_value(array, dtypes[name]) for name, array in stored.items()}


def _ort_value(array: Array, dtype: str) -> ort.OrtValue:
    """Return a value of the runtime that uses the memory of `array`, with a type numpy may lack."""
    if dtype not in _ONNX_TYPES:
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_TYPES[dtype])


def _profiled_options(threads: int, options: Mapping[str, str], folder: Path) -> ort.SessionOptions:
    made = _session_options(threads, options)
    made.enable_profiling = True
    made.profile_file_prefix = str(folder / "profile")
    return made


def _save_plan(session_options: ort.SessionOptions, folder: Path) -> None:
    """Save the optimized graph without its weights, which may be gigabytes."""
    session_options.optimized_model_filepath = str(folder / _PLAN_FILE)
    # A link to the null device, because the runtime deletes a file of weights that stays empty. If
    # links are not allowed, as on most Windows, the weights go into the folder.
    with contextlib.suppress(OSError):
        (folder / _WEIGHTS_FILE).symlink_to(os.devnull)
    _keep_weights_apart(session_options)


def _keep_weights_apart(session_options: ort.SessionOptions) -> None:
    prefix = "session.optimized_model_external_initializers"
    session_options.add_session_config_entry(f"{prefix}_file_name", _WEIGHTS_FILE)
    session_options.add_session_config_entry(f"{prefix}_min_size_in_bytes", _LEAST_APART)


def _read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a profile, one per line, in the order in which they ended."""
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise _incomplete(path) from None
    with file:
        for line in file:
            text = line.strip().rstrip(",")
            if text == "]":
                return
            if text == "[":
                continue
            try:
                event = json.loads(text)
            except ValueError:
                # The disk had no room for the rest of the last line.
                if next(file, None) is None:
                    break
                raise ValueError(
                    f"a line of the profile is not JSON, perhaps because of a name: {text[:200]}"
                ) from None
            yield event
    raise _incomplete(path)


def _incomplete(path: Path) -> OSError:
    """Return the error for a profile cut short. The runtime itself does not report write errors."""
    return OSError(errno.ENOSPC, "the profile file is incomplete", str(path))


def _is_kernel(event: Mapping[str, Any]) -> bool:
    # Versions before 1.21 also write events for the fences around a kernel.
    return bool(event["cat"] == "Node" and event["name"].endswith(_KERNEL_EVENT))


def _types(args: Mapping[str, Any], key: str) -> list[tuple[str, list[int]]]:
    return [pair for entry in args.get(key, ()) for pair in entry.items()]


def _precision(args: Mapping[str, Any]) -> str | None:
    """Return the type that a kernel computes in: its first input's, unless that is an index."""
    names = [name for name, _ in _types(args, "input_type_shape")[:1]]
    if not names or names[0] in _INDEX_TYPES:
        names = [name for name, _ in _types(args, "output_type_shape")[:1]] or names
    return _PROFILE_TYPES.get(names[0], names[0]) if names else None


class _Profile:
    def __init__(self, runs: int, max_events: int = _MAX_EVENTS) -> None:
        self.peak_bytes: int | None = None
        self._wanted = runs
        self._max_events = max_events
        self._facts: dict[tuple[str, str, str], dict[str, Any]] = {}
        # For each run the microseconds and calls of each kernel.
        self._runs: deque[dict[tuple[str, str, str], tuple[float, int]]] = deque(maxlen=runs)

    def read(self, path: Path) -> None:
        run: dict[tuple[str, str, str], tuple[float, int]] = {}
        threads: dict[Any, _Nesting] = {}
        events = complete = 0
        for event in _read_events(path):
            events += 1
            name = event["name"]
            nesting = threads.setdefault(event["tid"], _Nesting())
            if _is_kernel(event):
                key = self._noted(event)
                spent, calls = run.get(key, (0.0, 0))
                own = nesting.end_kernel(event["ts"], event["dur"] + _CUT_OFF_US)
                run[key] = spent + own, calls + 1
            elif name.endswith("::Execute"):
                nesting.end_graph(event["ts"])
            elif name == "model_run":
                self._runs.append(run)
                complete += 1
                run, threads = {}, {}
        if complete >= self._wanted:
            return
        if events < self._max_events:
            raise _incomplete(path)
        if complete < 2:
            raise ValueError(
                f"a profile holds {self._max_events:,} events, and two inferences of this model "
                "make more"
            )
        # The first run was a warm-up.
        self._runs.popleft()

    def _noted(self, event: Mapping[str, Any]) -> tuple[str, str, str]:
        args = event["args"]
        # Inserted kernels may share a name; their index differs.
        name: str = event["name"].removesuffix(_KERNEL_EVENT)
        key = (name, str(args.get("op_name")), str(args.get("node_index")))
        peak = int(args.get("mem_in_use_peak") or 0)
        if peak > (self.peak_bytes or 0):
            self.peak_bytes = peak
        if key not in self._facts:
            self._facts[key] = {
                "name": key[0],
                "op_type": key[1],
                "provider": args.get("provider"),
                "precision": _precision(args),
                "originals": None,
            }
        return key

    def kernels(self) -> list[dict[str, Any]]:
        nothing = (0.0, 0)
        kernels = []
        for key, facts in self._facts.items():
            seen = [run.get(key, nothing) for run in self._runs]
            calls = max((calls for _, calls in seen), default=0)
            if calls:
                self_ns = [_NS_PER_US * spent for spent, _ in seen]
                kernels.append({**facts, "calls": calls, "self_ns": self_ns})
        return kernels


class _Nesting:
    """The events that ended on one thread and may have run inside a later one."""

    def __init__(self) -> None:
        # Start, duration, and whether it is the body of a Loop, an If or a Scan.
        self._ended: list[tuple[int, float, bool]] = []

    def end_graph(self, start: int) -> None:
        """Note the end of a graph: all kernels that started after it ran inside it."""
        inside = 0.0
        while self._ended and self._ended[-1][0] >= start:
            inside += self._ended.pop()[1]
        self._ended.append((start, inside, True))

    def end_kernel(self, start: int, duration: float) -> float:
        """Note the end of a kernel, and return its time without the bodies that ran inside it."""
        inside = 0.0
        while self._ended and self._ended[-1][2] and self._ended[-1][0] >= start:
            inside += self._ended.pop()[1]
        self._ended.append((start, duration, False))
        return max(0.0, duration - inside)
