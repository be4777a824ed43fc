"""Options for a user to paste, as code and as a `pyproject.toml` table, and a tuning as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.report.document import dump_document
from pytest_modelperf.text.words import quoted_text, toml_key
from pytest_modelperf.tuning.records import TUNING, TunedCase, Tuning

_THREADS = "intra_op_num_threads"
_ENUMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "execution_mode": (
        "ort.ExecutionMode",
        {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"},
    ),
    "execution_order": ("ort.ExecutionOrder", {}),
    "graph_optimization_level": (
        "ort.GraphOptimizationLevel",
        {
            "none": "ORT_DISABLE_ALL",
            "basic": "ORT_ENABLE_BASIC",
            "extended": "ORT_ENABLE_EXTENDED",
            "layout": "ORT_ENABLE_LAYOUT",
            "all": "ORT_ENABLE_ALL",
        },
    ),
}
# Attributes of `SessionOptions` that are on or off.
_SWITCHES = frozenset({
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "use_deterministic_compute",
    "use_per_session_threads",
})  # fmt: skip
_OFF = frozenset({"0", "false", "no", "off"})


def engine_options_table(case: TunedCase, engine: str) -> str:
    """Return the winner as tables of `pyproject.toml`, with the options that were given."""
    options = {**case.given, **({} if case.winner is None else case.winner.options)}
    own = [] if engine == DEFAULT_ENGINE else [f"engine = {quoted_text(engine)}", ""]
    lines = [*(["[tool.modelperf]", *own] if own else []), "[tool.modelperf.engine_options]"]
    lines += [f"{toml_key(key)} = {quoted_text(value)}" for key, value in options.items()]
    return "\n".join(lines)


def session_code(facts: EngineFacts, model: str, cores: int) -> str | None:
    """Return Python code for the measured session, or None for an engine of an extension."""
    if facts.name == "onnxruntime":
        return "\n".join(_ort_lines(facts, model, cores))
    if facts.name == "openvino":
        return "\n".join(_openvino_lines(facts, model, cores))
    return None


def _ort_lines(facts: EngineFacts, model: str, cores: int) -> Iterator[str]:
    options = {_THREADS: str(cores), "inter_op_num_threads": "1", **facts.options}
    yield "import onnxruntime as ort"
    yield ""
    yield "options = ort.SessionOptions()"
    for key, value in options.items():
        if key == "custom_ops":
            yield f"options.register_custom_ops_library({quoted_text(value)})"
        elif key.startswith("provider.") or key == "provider":
            continue
        elif "." in key:
            yield f"options.add_session_config_entry({quoted_text(key)}, {quoted_text(value)})"
        else:
            yield f"options.{key} = {_ort_value(key, value)}"
    yield "session = ort.InferenceSession("
    yield f"    {quoted_text(model)},"
    yield "    options,"
    yield f"    providers=[{', '.join(_ort_providers(facts))}],"
    yield ")"


def _ort_value(key: str, value: str) -> str:
    if key in _ENUMS:
        kind, members = _ENUMS[key]
        return f"{kind}.{members.get(value.lower(), value)}"
    if key in _SWITCHES:
        return str(value.lower() not in _OFF)
    return value if value.lstrip("-").isdecimal() else quoted_text(value)


def _ort_providers(facts: EngineFacts) -> Iterator[str]:
    prefix = "provider."
    first = {k[len(prefix) :]: v for k, v in facts.options.items() if k.startswith(prefix)}
    for index, name in enumerate(facts.providers):
        shown = quoted_text(name)
        yield f"({shown}, {_dict_of(first)})" if first and not index else shown


def _openvino_lines(facts: EngineFacts, model: str, cores: int) -> Iterator[str]:
    options = dict(facts.options)
    # The runtime knows its devices only in upper case.
    device = options.pop("device", "CPU").upper()
    if device == "CPU":
        # Other devices do not accept this option.
        options = {"INFERENCE_NUM_THREADS": str(cores), **options}
    yield "import openvino as ov"
    yield ""
    yield "options = {"
    for key, value in options.items():
        yield f"    {quoted_text(key)}: {quoted_text(value)},"
    yield "}"
    place = quoted_text(device)
    yield f"compiled = ov.Core().compile_model({quoted_text(model)}, {place}, options)"


def _dict_of(options: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{quoted_text(key)}: {quoted_text(value)}" for key, value in options.items())
    return f"{{{pairs}}}"


# -- a tuning as JSON, with the code to paste


def dump_tuning(tuning: Tuning) -> str:
    document = TUNING.of(tuning)
    for case, found in zip(tuning.cases, document["cases"], strict=True):
        if found["winner"] is not None:
            found["winner"] |= _pasted(tuning, case)
    return dump_document(document)


def _pasted(tuning: Tuning, case: TunedCase) -> dict[str, Any]:
    facts = case.winner_engine
    if facts is None:
        return {}
    return {
        "python": session_code(facts, tuning.model.name, case.case.cores),
        "table": engine_options_table(case, facts.name),
    }
