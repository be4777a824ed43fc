"""Choose the values of an engine's options to try, because they may make a model faster.

Each set changes one thing. The sets that helped are then tried together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tuning.records import OptionSet

# The most options that helped to combine, and the most of them to combine in pairs.
_MOST_COMBINED = 4
_TAKEN_IN_PAIRS = 3

_ORT, _OPENVINO = "onnxruntime", "openvino"
_LEVEL = "graph_optimization_level"
_THREADS = {_ORT: "intra_op_num_threads", _OPENVINO: "INFERENCE_NUM_THREADS"}
_BETWEEN = "inter_op_num_threads"
_DENORMALS = {"session.set_denormal_as_zero", "CPU_DENORMALS_OPTIMIZATION"}
_SPINNING = "session.force_spinning_stop"
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


class OptionValues(Struct, frozen=True):
    """An option, its default value, and the values that are tried.

    It has an effect from `least_cores` on.
    """

    key: str
    usual: str
    values: tuple[str, ...]
    least_cores: int = 1


# The most promising come first: if time is short, the last ones are not tried.
_OPTIONS: Mapping[str, tuple[OptionValues, ...]] = {
    _ORT: (
        OptionValues(_LEVEL, "all", ("all", "extended", "basic", "none")),
        OptionValues("session.intra_op.allow_spinning", "1", ("1", "0"), least_cores=2),
        OptionValues("enable_cpu_mem_arena", "1", ("1", "0")),
        OptionValues("enable_mem_pattern", "1", ("1", "0")),
        OptionValues("session.dynamic_block_base", "0", ("4", "0"), least_cores=2),
        # The blocked layout of convolutions, which is faster unless its conversions cost more.
        OptionValues(
            "optimization.disable_specified_optimizers", "", ("NchwcTransformer",)
        ),
        OptionValues("session.set_denormal_as_zero", "0", ("1", "0")),
    ),
    _OPENVINO: (
        OptionValues("INFERENCE_PRECISION_HINT", "", ("f32", "bf16", "f16")),
        OptionValues("PERFORMANCE_HINT", "LATENCY", ("LATENCY", "THROUGHPUT")),
        OptionValues("NUM_STREAMS", "1", ("1", "2"), least_cores=2),
        OptionValues("ENABLE_CPU_PINNING", "", ("YES", "NO"), least_cores=2),
        OptionValues("ENABLE_HYPER_THREADING", "", ("YES", "NO"), least_cores=2),
        OptionValues("CPU_DENORMALS_OPTIMIZATION", "NO", ("YES", "NO")),
    ),
}  # fmt: skip
# Options of the first provider of ONNX Runtime, by its name.
_PROVIDER_OPTIONS: Mapping[str, tuple[OptionValues, ...]] = {
    "cuda": (
        OptionValues(
            "provider.cudnn_conv_algo_search", "EXHAUSTIVE", ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
        ),
        OptionValues("provider.prefer_nhwc", "0", ("1", "0")),
        OptionValues("provider.use_tf32", "1", ("1", "0")),
    ),
    "openvino": (
        # The provider takes the hints of OpenVINO as JSON, by device.
        OptionValues(
            "provider.load_config",
            "",
            tuple(
                f'{{"CPU": {{"INFERENCE_PRECISION_HINT": "{hint}"}}}}'
                for hint in ("f32", "bf16", "f16")
            ),
        ),
        OptionValues("provider.num_streams", "1", ("1", "2"), least_cores=2),
    ),
    "tensorrt": (OptionValues("provider.trt_fp16_enable", "0", ("1", "0")),),
}
# Providers that run a model on their own threads, and the option for their number.
_PROVIDER_THREADS: Mapping[str, str] = {"openvino": "provider.num_of_threads"}


def check_given(engine: str, options: Mapping[str, str]) -> None:
    """Raise a UsageError for options that make the sides of a duet disturb each other."""
    if engine == _ORT and options.get(_SPINNING, "1") in _FALSE:
        raise UsageError(
            f"with {_SPINNING}={printable(options[_SPINNING])} the threads of the side that waits "
            "would take the processors from the other: leave it out."
        )


def usual_sets(engine: str, given: Mapping[str, str], cores: int) -> tuple[OptionSet, ...]:
    """Return the sets of options to try if the user names none, for this number of cores.

    A value that the baseline already has is left out. Raise a UsageError if no option of the engine
    is known.
    """
    if engine not in _OPTIONS:
        raise UsageError(
            f"the options of the engine {printable(engine)} are not known here: name some to try, "
            "as in --try KEY=VALUE."
        )
    options = (*_PROVIDER_OPTIONS.get(_provider(engine, given), ()), *_OPTIONS[engine])
    single = [
        _set({option.key: value})
        for option in options
        if cores >= option.least_cores
        for value in option.values
        if not _is_same(value, given.get(option.key, option.usual))
    ]
    return (*_threads(engine, given, cores), *_modes(engine, given, cores), *single)


def named_sets(
    wanted: Mapping[str, Sequence[str]], given: Mapping[str, str]
) -> tuple[OptionSet, ...]:
    """Return the sets of options that the user named.

    Raise a UsageError if the baseline already has all of them.
    """
    found = tuple(
        _set({key: value})
        for key, values in wanted.items()
        for value in dict.fromkeys(values)
        if not _is_same(value, given.get(key, ""))
    )
    if not found:
        raise UsageError("the values to try are only what the baseline already has: name others.")
    return found


def combined_sets(helped: Sequence[OptionSet]) -> tuple[OptionSet, ...]:
    """Return combinations of the sets that helped: all of them, and the best in pairs.

    `helped` begins with the fastest. If several sets have the same option, only the fastest is
    taken.
    """
    together: list[OptionSet] = []
    for each in helped:
        if not any(each.options.keys() & other.options.keys() for other in together):
            together.append(each)
    if len(together) < 2:
        return ()
    pairs = itertools.combinations(together[:_TAKEN_IN_PAIRS], 2)
    groups = [together, *([*pair] for pair in pairs)]
    merged = {each.name: each for each in map(_merged, groups)}
    return tuple(merged.values())[:_MOST_COMBINED]


def _merged(sets: Sequence[OptionSet]) -> OptionSet:
    first, *others = sets
    for each in others:
        first = first.merged(each)
    return first


def _set(options: Mapping[str, str]) -> OptionSet:
    return OptionSet(options, needs_process=bool(options.keys() & _DENORMALS))


def _provider(engine: str, given: Mapping[str, str]) -> str:
    """Return the first provider of ONNX Runtime in lower case, as in `cuda`, or an empty text."""
    if engine != _ORT:
        return ""
    first = given.get("provider", "").split(",")[0].strip().lower()
    return first.removesuffix("executionprovider")


def _threads(engine: str, given: Mapping[str, str], cores: int) -> Iterator[OptionSet]:
    key = _PROVIDER_THREADS.get(_provider(engine, given), _THREADS[engine])
    threads = _number(given, key, cores)
    tried = cores
    if engine == _ORT and _is_parallel(given):
        # Each thread between operators has this number of threads.
        tried = cores // max(_number(given, _BETWEEN, 1), 1)
    while tried >= 1:
        if tried != threads:
            yield _set({key: str(tried)})
        tried //= 2


def _modes(engine: str, given: Mapping[str, str], cores: int) -> Iterator[OptionSet]:
    """Yield sets that run branches of the graph in parallel, with one thread per core in total.

    If the baseline runs in parallel, yield the sequential mode instead.
    """
    if engine != _ORT:
        return
    if _is_parallel(given):
        yield _set({"execution_mode": "sequential"})
        return
    between = 2
    while between <= cores:
        yield _set(
            {
                "execution_mode": "parallel",
                _BETWEEN: str(between),
                _THREADS[_ORT]: str(cores // between),
            }
        )
        between *= 2


def _is_parallel(given: Mapping[str, str]) -> bool:
    return given.get("execution_mode", "").lower() in {"parallel", "ort_parallel"}


def _number(given: Mapping[str, str], key: str, usual: int) -> int:
    """Return the number that an option has, or else the usual one."""
    text = given.get(key, "")
    return int(text) if text.isdecimal() else usual


def _is_same(value: str, other: str) -> bool:
    """Whether two values of an option mean the same."""
    first, second = value.strip().lower(), other.strip().lower()
    return first == second or any({first, second} <= same for same in (_TRUE, _FALSE))
