"""How right the reasons of a comparison are, and how steady the times of layers.

`modelperf compare` compares each model of parts.py with each changed one, in both directions, on a
quiet machine and with processes that keep both cores busy. The first reason has to name an operator
that was added, removed or widened. Where the parts that changed were measured, no other reason may
have a figure, and the figures have to sum to the difference that was judged, within its interval.

Then `modelperf profile` profiles each model, quiet and with busy processes: the times of its
larger layers have to agree. At last `modelperf whatif --quantize int8-dynamic` is compared with a
profile that ONNX Runtime alone writes of the quantized model.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from bare_sessions import profile_runs
from changes import CHANGES
from commands import run_modelperf
from expected import Expectation, expect_none, expect_share
from kept import keep_row, read_rows
from loads import BUSY, QUIET, loaded
from measuring import Program, say
from onnx import ModelProto
from parts import MODELS, Bench
from parts_results import PARTS
from results import Result, Row, Rows
from shown import count_of, grouped, markdown, table

from pytest_modelperf.errors import ModelError
from pytest_modelperf.whatif.quantizing import quantize

LOADS = (QUIET, BUSY)
MAX_SECONDS = 6.0
# A layer counts from this share of the model on; its times may differ by so much.
LEAST_SHARE, MOST_APART = 0.05, 0.15
MIN_SUMS, MIN_AGREEING = 0.95, 0.95
# The tables of rows that a run stores, and the runs of the engine's own profile.
_KINDS = ("comparisons", "layers", "quantized")
_PROFILED_RUNS = 60
_QUANTIZING_S = 300.0
_FIGURE = re.compile(r"([+-]?\d+\.\d+) ms(?: \(.*?\))?, (?:measured in place|by the whole model)")
_NOISE = re.compile(r"([+-]?\d+\.\d+) ms(?: \(.*?\))?, within the noise")
# A figure of a profiled layer.
_OTHER = re.compile(r"x as long| ms, \d+ %$")


@dataclass(frozen=True, slots=True)
class Told:
    """What a comparison said: by what it judged, its first reason, and whether reasons are right.

    `is_first` says whether the first reason names what was changed; `is_sum` whether the figures of
    all reasons sum to the judged difference, and `foreign` counts figures of what did not change.
    They are None and 0 if parts did not decide.
    """

    how: str
    reason: str
    is_first: bool
    is_sum: bool | None
    foreign: int


def measure(options: argparse.Namespace) -> Rows:
    bench = Bench(options.folder)
    for load in options.loads:
        with loaded(load):
            for model in options.models:
                compare_all(bench, load, model, options.changes)
                profile_once(bench, load, model)
                if load == QUIET:
                    quantize_once(bench, model)
            say(f"{load}: done")
    return {kind: asked_for(options.folder, kind, options) for kind in _KINDS}


def asked_for(folder: Path, kind: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The stored rows of the models, loads and changes that this run is about."""
    asked = {"model": options.models, "load": options.loads, "change": options.changes}
    return [
        row
        for row in read_rows(folder, kind)
        if all(row[name] in names for name, names in asked.items() if name in row)
    ]


def compare_all(bench: Bench, load: str, model: str, changes: Sequence[str]) -> None:
    """Compares a model with each changed one, in both directions, unless that is stored."""
    known = read_rows(bench.folder, "comparisons")
    for change in changes:
        setting = {"load": load, "model": model, "change": change}
        done = {row["is_undone"] for row in known if setting.items() <= row.items()}
        with bench.sides(model, change) as sides:
            if sides is None:
                continue
            words = words_of_change(*map(onnx.load, sides))
            for is_undone in sorted({False, True} - done):
                before, after = reversed(sides) if is_undone else sides
                told = read_reasons(_run("compare", before, after), words)
                keep_row(
                    bench.folder, "comparisons", {**setting, "is_undone": is_undone, **asdict(told)}
                )


def profile_once(bench: Bench, load: str, model: str) -> None:
    """Stores the times of the layers of a model under a load."""
    stored = read_rows(bench.folder, "layers")
    if any((row["load"], row["model"]) == (load, model) for row in stored):
        return
    with tempfile.TemporaryDirectory(dir=bench.folder) as place:
        path = Path(place, "model.onnx")
        onnx.save(bench.model(model), path)
        case = _run("profile", path)
    for layer in case["layers"]:
        if layer["ms"] is not None and layer["kind"] == "layer":
            row = {"load": load, "model": model, "id": layer["id"], "ms": layer["ms"]}
            keep_row(bench.folder, "layers", row)


def quantize_once(bench: Bench, model: str) -> None:
    """Stores the times of the quantized layers, as a what-if and as the engine alone tell them."""
    if any(row["model"] == model for row in read_rows(bench.folder, "quantized")):
        return
    with tempfile.TemporaryDirectory(dir=bench.folder) as place:
        path, variant = Path(place, "model.onnx"), Path(place, "quantized.onnx")
        onnx.save(bench.model(model), path)
        try:
            quantize(path, variant, "dynamic", [], _QUANTIZING_S)
        except ModelError as error:
            # A model of integers has nothing left to quantize.
            say(f"{model}: {error}")
            return
        case = _run("whatif", path, options=("--quantize=int8-dynamic",))
        own = kernel_times(variant, Path(place))
    level = next(level for level in case["levels"] if level["kind"] == "quantized")
    for layer in case["layers"]:
        ms = level["layers"].get(layer["id"])
        times = [ns for name, ns in own.items() if is_form_of(name, layer["name"])]
        if ms is not None and times:
            row = {"model": model, "id": layer["id"], "ms": ms, "own_ms": sum(times) / 1e6}
            keep_row(bench.folder, "quantized", row)


def is_form_of(kernel: str, layer: str) -> bool:
    """Whether a kernel is a layer, or what a quantizer made of it.

    A number after the name is that of another layer.
    """
    rest = kernel.removeprefix(layer)
    return rest != kernel and (not rest or re.match(r"[_/][A-Za-z]", rest) is not None)


def kernel_times(model: Path, folder: Path) -> Mapping[str, float]:
    """The median time of each kernel in nanoseconds, by its name, as the engine writes it down."""
    path = folder / "profile.json"
    profile_runs(model, path, _PROFILED_RUNS, make_feeds)
    events = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {}
    for event in events:
        name = event["name"].removesuffix("_kernel_time")
        if name != event["name"]:
            found.setdefault(name, []).append(1e3 * event["dur"])
    return {name: statistics.median(times) for name, times in found.items()}


def make_feeds(session: ort.InferenceSession) -> dict[str, Any]:
    """Ones for each input, the batch and other open dimensions of size 1."""
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    return {
        each.name: np.ones([d if isinstance(d, int) else 1 for d in each.shape], types[each.type])
        for each in session.get_inputs()
    }


def _run(command: str, *models: Path, options: Sequence[str] = ()) -> Row:
    """The only case of a command on one core."""
    given = ("--batch=1", "--cores=1", f"--max-seconds={MAX_SECONDS:g}", *options)
    return run_modelperf(command, *models, options=given).case()


def words_of_change(before: ModelProto, after: ModelProto) -> frozenset[str]:
    """Words of which a reason has to name one: operators that differ, or what is around them."""
    here, there = _kernels(before), _kernels(after)
    operators = {op for op, *_ in ((here - there) + (there - here))}
    outputs = [len(model.graph.output) for model in (before, after)]
    return frozenset(operators | ({"output", "Reorder"} if outputs[0] != outputs[1] else set()))


def _kernels(model: ModelProto) -> Counter[tuple[Any, ...]]:
    """Each node by its operator, names, attributes, and the shapes and types of its weights."""
    weights = {w.name: (w.data_type, *w.dims) for w in model.graph.initializer}
    found: Counter[tuple[Any, ...]] = Counter()
    for node in model.graph.node:
        attributes = tuple(sorted(each.SerializeToString() for each in node.attribute))
        inputs = tuple(weights.get(name) for name in node.input)
        found[node.op_type, node.name, node.output[0], attributes, inputs] += 1
    return found


def read_reasons(case: Mapping[str, Any], words: frozenset[str]) -> Told:
    """What a compared case says of why."""
    reasons = case["reasons"]
    first = reasons[0] if reasons else ""
    is_first = any(word in first for word in words)
    if case["how"] != PARTS:
        return Told(case["how"], first, is_first, None, 0)
    p50 = next(metric for metric in case["metrics"] if metric["name"] == "latency_p50")
    figures = [float(found[1]) for text in reasons for found in _FIGURE.finditer(text)]
    figures += [float(found[1]) for text in reasons for found in _NOISE.finditer(text)]
    bounds = [p50["before"] * (ratio - 1) for ratio in p50["interval"]]
    # Each figure is rounded to a microsecond.
    slack = 0.0006 * (len(figures) + 1)
    is_sum = bounds[0] - slack <= sum(figures) <= bounds[1] + slack
    foreign = sum(_OTHER.search(text) is not None for text in reasons)
    return Told(case["how"], first, is_first, is_sum, foreign)


def tables(result: Result) -> Mapping[str, str]:
    columns = {
        "machine": lambda rows: rows[0]["load"],
        "comparisons": len,
        "first reason names the change": lambda rows: count_of(row["is_first"] for row in rows),
        "by parts": lambda rows: len(_by_parts(rows)),
        "reasons sum to the difference": lambda rows: count_of(
            bool(row["is_sum"]) for row in _by_parts(rows)
        ),
        "figures of what did not change": lambda rows: sum(row["foreign"] for row in rows),
    }
    by_load = grouped(result.rows["comparisons"], lambda row: str(row["load"])).values()
    missed = [
        [str(row[name]) for name in ("load", "model", "change", "is_undone", "how", "reason")]
        for row in result.rows["comparisons"]
        if not row["is_first"]
    ]
    titles = ("machine", "model", "change", "undone", "by", "first reason")
    quiet_and_busy, quantized = _layer_pairs(result), _quantized_pairs(result)
    layers = [
        (model, _agreeing(quiet_and_busy.get(model, ())), _agreeing(quantized.get(model, ())))
        for model in dict.fromkeys((*quiet_and_busy, *quantized))
    ]
    return {
        "why": table(by_load, columns),
        "why missed": markdown(titles, missed, "llllll") if missed else "Nothing.",
        "why layers": markdown(("model", "busy as quiet", "quantized as the engine"), layers),
    }


def _by_parts(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["how"] == PARTS]


def expectations(result: Result) -> Sequence[Expectation]:
    rows = result.rows["comparisons"]
    agreeing, forms = (
        [_agrees(*pair) for own in pairs.values() for pair in own]
        for pairs in (_layer_pairs(result), _quantized_pairs(result))
    )
    within = f"within {100 * MOST_APART:g} %"
    layers = f"layers above {100 * LEAST_SHARE:g} % take"
    sums = [bool(row["is_sum"]) for row in _by_parts(rows)]
    foreign = [bool(row["foreign"]) for row in rows]
    own = f"quantized {layers} what the engine's own profile says, {within}"
    return (
        expect_share("first reason names what was changed", (row["is_first"] for row in rows)),
        expect_none("reasons name a kernel that did not change", foreign),
        expect_share("figures of reasons sum to the judged difference", sums, MIN_SUMS),
        expect_share(f"{layers} the same {within}, busy and quiet", agreeing, MIN_AGREEING),
        expect_share(own, forms),
    )


def _layer_pairs(result: Result) -> dict[str, list[tuple[float, float]]]:
    """The times of the larger layers of each model, quiet and busy."""
    times: dict[tuple[str, str], dict[str, float]] = {}
    for row in result.rows["layers"]:
        times.setdefault((row["model"], row["load"]), {})[row["id"]] = row["ms"]
    found = {}
    for (model, load), quiet in times.items():
        busy = times.get((model, BUSY))
        if load != QUIET or busy is None:
            continue
        least = LEAST_SHARE * sum(quiet.values())
        found[model] = [(ms, busy[key]) for key, ms in quiet.items() if ms >= least and key in busy]
    return found


def _quantized_pairs(result: Result) -> dict[str, list[tuple[float, float]]]:
    """The times of the larger quantized layers of each model: the engine's own, and ours."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in result.rows.get("quantized", ()):
        found.setdefault(row["model"], []).append((row["own_ms"], row["ms"]))
    least = {model: LEAST_SHARE * sum(own for own, _ in rows) for model, rows in found.items()}
    return {
        model: [pair for pair in rows if pair[0] >= least[model]] for model, rows in found.items()
    }


def _agrees(quiet: float, busy: float) -> bool:
    return abs(busy / quiet - 1) <= MOST_APART


def _agreeing(pairs: Sequence[tuple[float, float]]) -> str:
    return count_of(_agrees(*pair) for pair in pairs)


if __name__ == "__main__":
    program = Program("why", __doc__, tables, expectations)
    program.choose("--models", MODELS)
    program.choose("--changes", CHANGES)
    program.choose("--loads", LOADS)
    sys.exit(program.run(measure))
