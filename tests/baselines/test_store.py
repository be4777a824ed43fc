"""Baselines on disk: they are read back as written, and the error of a broken one names the place.

The writers that are killed, and those that work at once, are in `tests.support.baseline_writer`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from inline_snapshot import snapshot
from msgspec import inspect
from msgspec.structs import replace

import pytest_modelperf
from pytest_modelperf.baselines.changes import list_changes, plan_removal, plan_update
from pytest_modelperf.baselines.document import (
    read_machine,
    read_model,
    store_case,
    store_latency,
    thin,
    write_machine,
    write_model,
)
from pytest_modelperf.baselines.records import (
    Baseline,
    BaselineRecording,
    Fidelity,
    MachineBaseline,
    ModelBaseline,
    OutputSketch,
    StoredCase,
    StoredLatency,
    StoredPlan,
    StoredProcess,
    StoredStatic,
    UpdatePlan,
)
from pytest_modelperf.baselines.report import plan_table
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.errors import BaselineError, ModelPerfError, OutputError, UsageError
from pytest_modelperf.files.documents import MAX_INTEGER, rounded
from pytest_modelperf.files.names import MAX_LENGTH, folder_name, is_safe_name, model_path
from pytest_modelperf.files.store import locked
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.report.model import Report, Rows
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from tests.support.baseline_writer import DAY, MACHINE, NAME, make_case, make_recording
from tests.support.checkout import ROOT
from tests.support.doubted_twin import SLOWER
from tests.support.facts import make_provenance
from tests.support.known import known
from tests.support.profiles import make_measurement, make_round, measured_classifier

# Enough for a hundred times the work: a child that takes longer hangs.
_SECONDS = 300
_MODEL = Path("baselines/m/model.json")
_MACHINE = Path(f"baselines/m/{MACHINE.key}.json")


def store_recording(root: Path, recording: BaselineRecording | None = None) -> Baseline:
    """The baseline after a recording was stored."""
    store = BaselineStore(root)
    recording = recording or make_recording()
    store.apply(plan_update(store.read(recording.name), recording))
    return known(store.read(recording.name))


def snapshot_files(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder with its content and the time of its last change."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def spawn(*arguments: str) -> subprocess.Popen[str]:
    # The package may be installed elsewhere than these tests are.
    tests, package = ROOT, Path(pytest_modelperf.__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.baseline_writer", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tests, package)))},
        cwd=tests,
        stdout=subprocess.PIPE,
        text=True,
    )


MODEL_BYTES = write_model(plan_update(None, make_recording()).after.model)  # type: ignore[union-attr]  # it stores something
MACHINE_BYTES = write_machine(plan_update(None, make_recording()).after.machines[0])  # type: ignore[union-attr]  # it stores something


def test_the_name_of_a_folder_reads_like_the_path_of_the_model() -> None:
    paths = (
        "encoder.onnx",
        "models/ResNet-50.onnx",
        "a--b/-c.onnx",
        "m.ort",
        "../é:?.onnx",
        "con.onnx",
    )
    assert {path: folder_name(path) for path in paths} == snapshot(
        {
            "encoder.onnx": "encoder",
            "models/ResNet-50.onnx": "models--+res+net-50",
            "a--b/-c.onnx": "a-%2db--%2dc",
            "m.ort": "m.ort+",
            "../é:?.onnx": "%2e%2e--%c3%a9%3a%3f",
            "con.onnx": "%63on",
        }
    )


# Any character of a path, with those that the encoding itself uses more often than chance would.
_PATHS = st.lists(
    st.text(st.sampled_from("aAzZ09.-_+%/ é:\\~con") | st.characters(codec="utf-8"), min_size=1)
    | st.sampled_from(["..", "--", "-", ".onnx", "%2d", "+a", "con", "NUL.x"]),
    min_size=1,
    max_size=4,
).map(lambda parts: os.path.normpath("/".join(parts).replace("\0", "")))


@pytest.mark.slow
@given(_PATHS, _PATHS)
@example("a/m.onnx", "b/m.onnx")
@example("A.onnx", "a.onnx")
@example("a", "a.onnx")
@example("a--b.onnx", "a/b.onnx")
def test_two_models_never_share_a_folder_and_each_folder_names_its_model(
    one: str, two: str
) -> None:
    for path in (one, two):
        if path.startswith("/") or path == ".":
            with pytest.raises(UsageError):
                folder_name(path)
            return
        name = folder_name(path)
        assert is_safe_name(name)
        assert name.isascii()
        assert name == name.lower()
        assert os.path.normpath(f"baselines/{name}") == f"baselines/{name}"
        assert not name.startswith((".", "-"))
        assert not name.endswith(".")
        assert model_path(name) == (None if "%--" in name else path)
    assert (folder_name(one).casefold() == folder_name(two).casefold()) == (one == two)


def test_a_long_name_is_cut_and_still_unique() -> None:
    names = {folder_name(f"{'long/' * 60}{number}.onnx") for number in range(20)}
    assert len(names) == 20
    assert all(len(name) == MAX_LENGTH and is_safe_name(name) for name in names)


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../a", "a\0b", "/etc", ".git", "a.", "A"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BaselineError, match="is not a name for a baseline"):
        BaselineStore(tmp_path).read(name)


@pytest.mark.parametrize("key", ["model", "../x", "a/b", "", "A-b", "twin.next", "a" * 300])
def test_a_key_of_a_machine_cannot_name_another_file(tmp_path: Path, key: str) -> None:
    store_recording(tmp_path)
    with pytest.raises(BaselineError, match="is not the key of a machine"):
        BaselineStore(tmp_path).read(NAME, [key])
    store = BaselineStore(tmp_path)
    with pytest.raises(BaselineError, match="is not the key of a machine"):
        store.apply(plan_update(store.read(NAME), make_recording(version=2, key=key)))
    assert not list(tmp_path.rglob("*.tmp"))


_COUNT = st.integers(0, MAX_INTEGER)
_TEXT = st.text(max_size=8)
_DAY = st.dates()
_KEY = st.from_regex(r"[a-z0-9_]{1,9}-[a-z0-9_]{1,9}", fullmatch=True)
_FLOAT = st.floats(0, 2**62).map(rounded)
_Given = Mapping[type, st.SearchStrategy[Any]]


def _hex(size: int) -> st.SearchStrategy[str]:
    return st.text("0123456789abcdef", min_size=size, max_size=size)


def _records(kind: type[Any], given: _Given, **fields: st.SearchStrategy[Any]) -> Any:  # noqa: ANN401  # of any kind
    """Records by the types of their fields; those of some kinds, and some fields, are given."""
    found = {
        each.name: _values(inspect.type_info(each.type), given)
        for each in msgspec.structs.fields(kind)
        if each.name not in fields and each.default is not msgspec.UNSET
    }
    return st.builds(kind, **found, **fields)


def _values(info: inspect.Type, given: _Given) -> st.SearchStrategy[Any]:  # noqa: PLR0911  # one for each type
    match info:
        case inspect.UnionType():
            return st.one_of(*(_values(each, given) for each in info.types))
        case inspect.StructType():
            return given[info.cls] if info.cls in given else _records(info.cls, given)
        case inspect.DictType():
            kinds = (_values(each, given) for each in (info.key_type, info.value_type))
            return st.dictionaries(*kinds, min_size=info.min_length or 0, max_size=3)
        case inspect.VarTupleType():
            items = _values(info.item_type, given)
            return st.lists(items, min_size=info.min_length or 0, max_size=2).map(tuple)
        case inspect.IntType():
            return st.integers(info.ge or 0, MAX_INTEGER)
        case inspect.StrType() if info.pattern:
            size = re.search(r"\{(\d+)\}", info.pattern)
            return _hex(int(size[1])) if size else _KEY
        case inspect.EnumType():
            return st.sampled_from(list(info.cls))
    return _OF_TYPES[type(info)]


_OF_TYPES: Mapping[type, st.SearchStrategy[Any]] = {
    inspect.StrType: _TEXT,
    inspect.FloatType: _FLOAT,
    inspect.BoolType: st.booleans(),
    inspect.NoneType: st.none(),
    inspect.DateType: _DAY,
}
_LAYER_TYPES = st.lists(_records(LayerType, {}, ns=st.none(), share=st.none()), max_size=3)
_STATIC = _records(
    StoredStatic, {}, layer_types=_LAYER_TYPES.map(lambda each: {k.qualified_op: k for k in each})
)


def _fidelity(
    ratios: list[float],
    *,
    has_interval: bool,
    is_trusted: bool,
    **rest: Any,  # noqa: ANN401  # the other fields
) -> Fidelity:
    """A fidelity as a recording makes it: a twin that was shown to be near is trusted."""
    low, ratio, high = sorted(ratios)
    is_near = has_interval and abs(low - 1.0) < 0.02 and abs(high - 1.0) < 0.02
    return Fidelity(
        ratio=ratio,
        interval=(low, high) if has_interval else None,
        is_trusted=is_trusted or is_near,
        **rest,
    )


_FIDELITY: st.SearchStrategy[Fidelity] = st.builds(
    _fidelity,
    st.lists(_FLOAT, min_size=3, max_size=3),
    has_interval=st.booleans(),
    rounds=_COUNT,
    is_trusted=st.booleans(),
    reason=st.none() | _TEXT,
    has_same_plan=st.none() | st.booleans(),
)
_CASE = st.builds(
    lambda case, suffix: replace(case, id=f"b{case.batch_size}-c{case.cores}{suffix}"),
    _records(StoredCase, {StoredStatic: _STATIC, Fidelity: _FIDELITY}),
    st.just("") | _TEXT.map("-{}".format),
)


def _by_id(cases: list[Any]) -> tuple[Any, ...]:
    return tuple(case for _, case in sorted({case.id: case for case in cases}.items()))


def _has_one_structure(cases: tuple[StoredCase, ...]) -> bool:
    """Whether cases of one model have one structure, as any recording gives them."""
    of_models = {(c.model_sha256, c.structure) for c in cases if c.model_sha256 is not None}
    return len(of_models) == len({digest for digest, _ in of_models})


_MODELS = _records(
    ModelBaseline,
    {ModelFacts: _records(ModelFacts, {}, path=st.none(), function_file=st.none())},
    cases=st.lists(_CASE, min_size=1, max_size=2).map(_by_id).filter(_has_one_structure),
)
_TIMES = st.lists(st.lists(_COUNT, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2)


def _process(times: list[tuple[int, ...]], start: int, **rest: Any) -> StoredProcess:  # noqa: ANN401  # fields
    starts = (start,) * len(times)
    return StoredProcess(
        load_ns=starts,
        first_ns=starts,
        samples=tuple(map(len, times)),
        times_ns=tuple(times),
        **rest,
    )


_PROCESS = st.builds(
    _process,
    _TIMES,
    _COUNT,
    date=_DAY,
    peak_rss_bytes=st.none() | _COUNT,
    layer_type_ns=st.none() | st.dictionaries(_TEXT, _COUNT, max_size=3),
)
_LATENCY = _records(
    StoredLatency,
    {StoredProcess: _PROCESS},
    processes=st.lists(_PROCESS, min_size=1, max_size=2).map(tuple),
)
_MACHINES = _records(
    MachineBaseline,
    {},
    key=_KEY,
    cases=st.dictionaries(_TEXT, _LATENCY, min_size=1, max_size=2),
)


@pytest.mark.slow
@given(_MODELS)
def test_a_model_is_read_as_it_was_written(stored: ModelBaseline) -> None:
    data = write_model(stored)
    assert read_model(data, _MODEL) == stored
    assert write_model(read_model(data, _MODEL)) == data
    assert json.loads(data)["schema"] == 1


@given(_MACHINES)
def test_a_machine_is_read_as_it_was_written(stored: MachineBaseline) -> None:
    path = Path(f"{stored.key}.json")
    data = write_machine(stored)
    assert read_machine(data, path) == stored
    assert write_machine(read_machine(data, path)) == data


def test_a_model_file_has_a_line_for_what_a_reviewer_looks_at() -> None:
    assert MODEL_BYTES.decode() == snapshot("""\
{
 "cases": {
  "b1-c1": {
   "batch_size": 1,
   "cores": 1,
   "dims": {"seq": 64},
   "engine": "onnxruntime",
   "fidelity": {
    "has_same_plan": null,
    "interval": [0.995, 1.002],
    "is_trusted": true,
    "ratio": 0.998,
    "reason": null,
    "rounds": 9
   },
   "generation": null,
   "inputs": {
    "sha256": null,
    "specs": {}
   },
   "layer_types": {
    "Conv": {"backward_macs": 1800, "count": 5, "domain": "", "elementwise_ops": 10, "macs": 900, "output_bytes": 400, "params": 70, "weight_bytes": 280},
    "my.ops::Blend": {"backward_macs": null, "count": 1, "domain": "my.ops", "elementwise_ops": null, "macs": null, "output_bytes": null, "params": 0, "weight_bytes": 0}
   },
   "model_sha256": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
   "observed": null,
   "options": null,
   "plan": null,
   "provenance": {
    "date": "2026-01-31",
    "machine": "linux-x86_64-zen4-2c",
    "packages": {"onnx": "1.23.2"}
   },
   "static": {
    "activation_bytes": 400,
    "backward_macs": 1800,
    "effective_macs": null,
    "elementwise_ops": 10,
    "knows_activations": false,
    "macs": 900,
    "notes": ["a note"],
    "params": 70,
    "peak_activation_bytes": null,
    "scalar_params": null,
    "uncounted_ops": {"my.ops::Blend": 1},
    "weight_bytes": 280
   },
   "structure": "0123456789abcdef0123456789abcdef"
  }
 },
 "model": {
  "bytes": 1001,
  "name": "encoder.onnx",
  "opsets": {"ai.onnx": 17},
  "producer": "torch",
  "sha256": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
  "total_bytes": null
 },
 "schema": 1,
 "twin": {"bytes": 68, "left_out_bytes": 0, "model_sha256": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b", "sha256": "5872d41384fce1ff5eaf9da822316f9cd84e1c983e9b393a3ef69a2746c71d08"}
}
""")  # noqa: E501  # the lines of a file


def test_a_machine_file_has_a_line_for_the_samples_of_a_round() -> None:
    assert MACHINE_BYTES.decode() == snapshot("""\
{
 "cases": {
  "b1-c1": {
   "engine": {
    "name": "onnxruntime",
    "options": {"threads": "1"},
    "providers": ["CPUExecutionProvider"],
    "python": null,
    "version": "1.31.1"
   },
   "model_sha256": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
   "processes": [
    {
     "date": "2026-01-31",
     "first_ns": [9400000, 9400000],
     "layer_type_ns": {"Conv": 900000, "layout": 100},
     "load_ns": [21300000, 21300000],
     "peak_rss_bytes": 118489088,
     "samples": [40, 40],
     "times_ns": [
      [1000000, 1001000, 1002000, 1003000, 1004000],
      [1000000, 1001000, 1002000, 1003000, 1004000]
     ]
    },
    {
     "date": "2026-01-31",
     "first_ns": [9400000, 9400000],
     "layer_type_ns": {"Conv": 900000, "layout": 100},
     "load_ns": [21300000, 21300000],
     "peak_rss_bytes": 118489088,
     "samples": [40, 40],
     "times_ns": [
      [1000100, 1001100, 1002100, 1003100, 1004100],
      [1000100, 1001100, 1002100, 1003100, 1004100]
     ]
    }
   ]
  }
 },
 "machine": {
  "architecture": "x86_64",
  "caches": {"L1d": 32768},
  "cpu": "AMD EPYC 9R14",
  "distribution": null,
  "governor": null,
  "instruction_sets": ["avx2", "fma"],
  "kernel": null,
  "key": "linux-x86_64-zen4-2c",
  "logical_cores": null,
  "memory_bytes": null,
  "memory_limit_bytes": null,
  "microarchitecture": "zen4",
  "packages": {"onnxruntime": "1.31.1"},
  "physical_cores": null,
  "python": null,
  "quota_cores": 1.5,
  "system": "Linux",
  "turbo": true,
  "usable_cores": 2,
  "virtualization": null
 },
 "schema": 1
}
""")


def machine_file(*processes: Sequence[Sequence[int]], also: Sequence[Sequence[int]] = ()) -> bytes:
    """A machine's file with the samples of the processes of a case, and those of another case."""

    def part(times_ns: Sequence[Sequence[int]]) -> dict[str, Any]:
        rounds = len(times_ns)
        return {
            "date": "2026-01-31",
            "first_ns": [1] * rounds,
            "layer_type_ns": None,
            "load_ns": [1] * rounds,
            "peak_rss_bytes": None,
            "samples": [200] * rounds,
            "times_ns": times_ns,
        }

    document = json.loads(MACHINE_BYTES)
    case = document["cases"]["b1-c1"]
    document["cases"] = {"b1-c1": {**case, "processes": [*map(part, processes)]}}
    if also:
        document["cases"]["b8-c1"] = {**case, "processes": [part(also)]}
    return json.dumps(document).encode()


RUN = [[1_000_000 + 977 * step for step in range(6)], [1_100_000 + 977 * step for step in range(6)]]
LONG = [1_000_000 + 977 * step for step in range(12)]
OTHER = [1_200_000 + 977 * step for step in range(12)]


FIRST, SECOND, EIGHT = (
    f'cases["{case}"].processes[{number}].times_ns'
    for case, number in (("b1-c1", 0), ("b1-c1", 1), ("b8-c1", 0))
)


@pytest.mark.parametrize(
    ("data", "copy", "first"),
    [
        (machine_file(RUN, RUN, [OTHER]), SECOND, FIRST),
        (machine_file([OTHER], also=[OTHER]), EIGHT, FIRST),
        (machine_file([OTHER, LONG], [LONG, RUN[0]]), f"{SECOND}[0]", f"{FIRST}[1]"),
        (machine_file([LONG, OTHER, LONG]), f"{FIRST}[2]", f"{FIRST}[0]"),
    ],
    ids=["a process", "a process of another case", "a round", "a round of the same process"],
)
def test_copied_samples_are_a_broken_baseline(data: bytes, copy: str, first: str) -> None:
    path = Path("baselines/m") / f"{MACHINE.key}.json"
    message = re.escape(f"{path}, {copy}: the samples are those of {first}, which no two runs have")
    with pytest.raises(BaselineError, match=f"^{message}.*--modelperf-update-baseline"):
        read_machine(data, path)


@pytest.mark.parametrize(
    "times_ns",
    [
        [[500_000] * 40] * 3,
        [[15_625_000 * (1 + step % 11) for step in range(200)]],
        [LONG[:4], LONG[4:8], LONG[8:11]],
    ],
    ids=["one value", "a coarse clock", "a few samples"],
)
def test_samples_that_can_be_equal_by_chance_are_read(times_ns: list[list[int]]) -> None:
    data = machine_file(times_ns, times_ns, also=times_ns)
    assert len(read_machine(data, Path(f"{MACHINE.key}.json")).cases) == 2


def test_a_diff_of_one_more_layer_touches_only_its_lines() -> None:
    before = known(plan_update(None, make_recording()).after)
    case = before.model.cases[0]
    assert case.static is not None
    kinds = dict(case.static.layer_types)
    kinds["Conv"] = replace(kinds["Conv"], count=6, macs=1000)
    changed = replace(case, static=replace(case.static, macs=1000, layer_types=kinds))
    after = write_model(replace(before.model, cases=(changed,))).decode().splitlines()
    lines = zip(MODEL_BYTES.decode().splitlines(), after, strict=True)
    assert [new.split(":")[0].strip() for old, new in lines if old != new] == ['"Conv"', '"macs"']


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401  # JSON
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else ()
    for key, item in enumerate(value) if isinstance(value, list) else entries:
        yield from _places(item, (*path, key))


def _with(data: bytes, path: tuple[Any, ...], value: object) -> bytes:
    """The file with another value at one place."""
    document = json.loads(data)
    if not path:
        return json.dumps(value).encode()
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return json.dumps(document).encode()


def _decode(data: bytes, original: bytes) -> object:
    return read_model(data, _MODEL) if original is MODEL_BYTES else read_machine(data, _MACHINE)


_FILES = pytest.mark.parametrize("data", [MODEL_BYTES, MACHINE_BYTES], ids=["model", "machine"])
_OUT_OF_RANGE: tuple[Any, ...] = (-1, 2**63, 10**30, 1e400)
_VALUES = (7, 0.5, "text", True, [], {}, [[]], *_OUT_OF_RANGE)


@_FILES
def test_any_field_of_another_type_is_an_error_with_its_place(data: bytes) -> None:
    document = json.loads(data)
    checked = 0
    for path in _places(document):
        value = document
        for key in path:
            value = value[key]
        for other in _VALUES:
            # A whole number is a number. What may be null may be of any type, as it is null here.
            is_valid = type(other) is type(value) and other not in _OUT_OF_RANGE
            is_valid |= isinstance(value, float) and other in (7, 2**63)
            if is_valid or value is None:
                continue
            with pytest.raises(BaselineError, match=rf"{path[0]}|31 digits|Infinity|NaN"):
                _decode(_with(data, path, other), data)
            checked += 1
    assert checked > 500


@_FILES
def test_any_key_that_is_missing_or_unknown_is_an_error(data: bytes) -> None:
    document = json.loads(data)
    free = {"cases", "dims", "layer_types", "opsets", "packages", "uncounted_ops", "caches"}
    free |= {"layer_type_ns", "options", "specs"}
    for path in [(), *_places(document)]:
        value = document
        for key in path:
            value = value[key]
        if not isinstance(value, dict) or (path and path[-1] in free):
            continue
        changes = [{**value, "unknown": 1}]
        # A fact of a machine that is missing is one that could not be had.
        needed = ["key"] if path == ("machine",) else list(value)
        changes += [{k: v for k, v in value.items() if k != key} for key in needed]
        for changed in changes:
            with pytest.raises(BaselineError, match=r"unknown field|missing"):
                _decode(_with(data, path, changed), data)


@_FILES
def test_a_file_cut_at_any_byte_is_an_error_with_its_line(data: bytes) -> None:
    """But for the last line break, without which nothing is missing."""
    whole = _decode(data, data)
    assert _decode(data[:-1], data) == whole
    for length in range(len(data) - 1):
        line = data[:length].count(b"\n") + 1
        with pytest.raises(BaselineError, match=rf", line {line}: "):
            _decode(data[:length], data)


@settings(max_examples=300)
@given(st.integers(0, len(MODEL_BYTES) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_any_changed_bytes_raise_no_other_error(start: int, put: bytes, removed: int) -> None:
    """And what is read is written as something that reads the same."""
    with contextlib.suppress(BaselineError):
        read = read_model(MODEL_BYTES[:start] + put + MODEL_BYTES[start + removed :], _MODEL)
        assert read_model(write_model(read), _MODEL) == read


def _replace(old: str, new: str) -> bytes:
    text = MODEL_BYTES.decode()
    assert old in text
    return text.replace(old, new, 1).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1: the file ends too early"),
        (_replace('"macs": 900,\n', '"macs": 9,\n"macs": 9,\n'), 'found the key "macs" twice'),
        (_replace('"macs": 900,\n', '"macs": NaN,\n'), "found NaN, which is not JSON"),
        (_replace('"ratio": 0.998', '"ratio": Infinity'), "found Infinity, which is not JSON"),
        (_replace('"ratio": 0.998', '"ratio": 1e999'), "found 1e999, which is infinite"),
        (_replace('"ratio": 0.998', '"ratio": 2'), "the ratio is outside of its interval"),
        (_replace('"macs": 900,\n', '"macs": -1,\n'), r"\[...\].static.macs: expected int >= 0"),
        (_replace('"macs": 900,\n', f'"macs": {2**63},\n'), f"expected int <= {2**63 - 1}"),
        (_replace('"macs": 900,\n', f'"macs": 1{"0" * 9999},\n'), "found a number of 10000 digits"),
        (_replace('"schema": 1', '"schema": 2'), "schema: this file has schema 2.*pip install"),
        (_replace('"schema": 1', '"schema": "1"'), "schema: expected a whole number"),
        (_replace('"schema": 1', '"schema": 0'), "schema: expected a whole number from 1"),
        (_replace('"schema": 1', '"scheme": 1'), 'the key "schema" is missing'),
        (_replace("a note", "?").replace(b"?", b"\xff"), "line 41: a byte that is not UTF-8"),
        (_replace("2026-01-31", "2026-02-31"), "provenance.date: invalid RFC3339 encoded date"),
        (_replace('"b1-c1": {', '"b2-c1": {'), "a case of batch size 1 and 1 cores is b1-c1"),
        (_replace('"my.ops::Blend": {', '"Blend": {'), 'of the domain "my.ops" is named'),
        (_replace('"machine": "linux', '"machine": "../linux'), "expected str matching"),
        (_replace('"sha256": "6b', '"sha256": "../6b'), "expected a SHA-256 digest"),
        (_replace('"a note"', "[" * 100_000), "nested too deeply"),
        (_replace('"a note"', "'a note'"), r"line 41: not valid JSON, column 15"),
        (b"[]", "expected an object, found a list"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "a Git LFS pointer, not the file itself. Run `git lfs pull`",
        ),
        (
            _replace('   "cores": 1,\n', '<<<<<<< ours\n"cores": 1,\n=======\n>>>>>>> theirs\n'),
            "line 5: a merge conflict was not resolved. .*git checkout",
        ),
        (_replace('"twin": {', '"twin": {"\\u001b[31m": 1, '), r"unknown field \\x1b\[31m"),
    ],
)  # fmt: skip
def test_the_error_of_a_broken_file_names_the_place(data: bytes, message: str) -> None:
    with pytest.raises(BaselineError, match=rf"^baselines/m/model\.json.*{message}") as raised:
        read_model(data, _MODEL)
    assert str(raised.value).isprintable()
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"load_ns": [21300000, ', '"load_ns": [', r"processes\[0\]: .* different lengths"),
        ("[40, 40]", "[40, 4]", r"processes\[0\]: 5 samples are stored of 4"),
        ("1000000, 1001000", "1000000, -1", r"times_ns\[0\]\[1\]: expected int >= 0"),
        ("zen4-2c", "zen4-4c", r"machine.key: the key is .*name it linux-x86_64-zen4-4c.json"),
    ],
)
def test_the_error_of_a_broken_machine_file_names_the_place(
    old: str, new: str, message: str
) -> None:
    text = MACHINE_BYTES.decode()
    assert old in text
    with pytest.raises(BaselineError, match=message):
        read_machine(text.replace(old, new, 1).encode(), _MACHINE)


def with_fidelity(**figures: Any) -> bytes:  # noqa: ANN401  # any value of JSON
    """The file, whose twin is not trusted."""
    document = json.loads(MODEL_BYTES)
    document["cases"]["b1-c1"]["fidelity"] |= {"is_trusted": False, "reason": "doubt", **figures}
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "figures",
    [
        {"ratio": 1.001, "interval": [0.995, 1.007]},
        {"ratio": 1.001, "interval": [0.995, 1.007], "has_same_plan": True},
        {"ratio": None, "interval": None, "rounds": 0, "has_same_plan": True},
    ],
)
def test_a_twin_that_was_shown_to_run_like_its_model_is_trusted(figures: dict[str, Any]) -> None:
    with pytest.raises(BaselineError, match=r"fidelity: the twin is not trusted, but was shown"):
        read_model(with_fidelity(**figures), _MODEL)


@pytest.mark.parametrize("interval", [[0.97, 1.01], [0.99, 1.03], [0.995, 1.02], None])
def test_a_twin_with_an_open_interval_need_not_be_trusted(interval: list[float] | None) -> None:
    data = with_fidelity(ratio=1.001, interval=interval, has_same_plan=True)
    assert not read_model(data, _MODEL).cases[0].fidelity.is_trusted  # type: ignore[union-attr]  # it is there


def test_a_structure_that_another_case_of_the_model_lacks_is_a_broken_baseline() -> None:
    stored = known(plan_update(None, make_recording(("b1-c1", "b8-c2"))).after)
    first, second = stored.model.cases
    cases = replace(first, structure="0" * 32), replace(second, structure="1" * 32)
    with pytest.raises(BaselineError) as raised:
        read_model(write_model(replace(stored.model, cases=cases)), _MODEL)
    place = f'{_MODEL}, cases["b8-c2"].structure'
    assert str(raised.value).startswith(f'{place}: it is not that of cases["b1-c1"], which is ')
    apart = replace(stored.model, cases=(cases[0], replace(cases[1], model_sha256="e" * 64)))
    assert read_model(write_model(apart), _MODEL) == apart


def test_only_a_case_of_the_last_recorded_model_has_its_size() -> None:
    stored = read_model(MODEL_BYTES, _MODEL)
    sized = replace(stored, model=replace(stored.model, total_bytes=2000))
    other = replace(sized, model=replace(sized.model, sha256="f" * 64))
    unknown = replace(sized, model=replace(sized.model, sha256=None))
    sizes = [each.size_of("b1-c1") for each in (stored, sized, other, unknown)]
    assert sizes == [None, 2000, None, None]
    assert sized.size_of("b9-c9") is None


@pytest.mark.parametrize(
    ("data", "read"), [(MODEL_BYTES, read_model), (MACHINE_BYTES, read_machine)]
)
def test_a_file_without_a_case_is_refused(data: bytes, read: Callable[..., object]) -> None:
    path = Path("baselines/m") / f"{MACHINE.key}.json"
    with pytest.raises(BaselineError, match="json, cases: expected object of length >= 1"):
        read(_with(data, ("cases",), {}), path)


def test_a_missing_baseline_reads_as_none_without_an_error(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path / "missing")
    assert store.names() == ()
    assert store.read(NAME) is None
    (tmp_path / "missing" / NAME).mkdir(parents=True)
    assert store.read(NAME) is None
    assert store.names() == ()


def test_the_machines_that_are_asked_for_are_read_and_no_others(tmp_path: Path) -> None:
    store_recording(tmp_path)
    stored = store_recording(tmp_path, make_recording(key="linux-arm64-4c"))
    assert [machine.key for machine in stored.machines] == ["linux-arm64-4c", MACHINE.key]
    (tmp_path / NAME / "linux-arm64-4c.json").write_text("broken")
    store = BaselineStore(tmp_path)
    mine = known(store.read(NAME, [MACHINE.key, "unheard-of"]))
    assert [machine.key for machine in mine.machines] == [MACHINE.key]
    with pytest.raises(BaselineError, match=r"linux-arm64-4c\.json, line 1"):
        store.read(NAME)
    (tmp_path / NAME / "linux-arm64-4c.json").rename(tmp_path / NAME / "Copy of it.json")
    with pytest.raises(BaselineError, match="is not named after a machine"):
        store.read(NAME)
    assert store.names() == (NAME,)


def test_a_twin_that_is_not_the_recorded_one_is_an_error(tmp_path: Path) -> None:
    stored = store_recording(tmp_path)
    twin = tmp_path / NAME / "twin.onnx"
    assert stored.twin == twin.read_bytes()
    twin.write_bytes(b"another")
    with pytest.raises(BaselineError, match=r"twin\.onnx is not the one that model\.json names"):
        BaselineStore(tmp_path).read(NAME)
    twin.unlink()
    with pytest.raises(BaselineError, match=r"twin\.onnx is missing, that model\.json names"):
        BaselineStore(tmp_path).read(NAME)


def test_a_twin_that_git_lfs_did_not_fetch_has_an_error_of_its_own(tmp_path: Path) -> None:
    store_recording(tmp_path)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (tmp_path / NAME / "twin.onnx").write_bytes(pointer)
    with pytest.raises(BaselineError, match="Git LFS pointer, not the twin: run `git lfs pull`"):
        BaselineStore(tmp_path).read(NAME)


def test_files_without_their_model_json_are_an_error(tmp_path: Path) -> None:
    store_recording(tmp_path)
    (tmp_path / NAME / "model.json").unlink()
    with pytest.raises(BaselineError, match=r"has no model\.json"):
        BaselineStore(tmp_path).read(NAME)


@pytest.mark.parametrize("name", ["model.json", "twin.onnx", f"{MACHINE.key}.json"])
def test_no_advice_leads_to_files_without_their_model_json(tmp_path: Path, name: str) -> None:
    """A recording does not replace what it cannot read, and the other files need model.json."""
    store_recording(tmp_path)
    (tmp_path / NAME / name).write_text("{")
    with pytest.raises(BaselineError, match="after deleting the folder"):
        BaselineStore(tmp_path).read(NAME)


@pytest.mark.parametrize("name", ["model.json", "twin.onnx", f"{MACHINE.key}.json"])
def test_a_link_is_not_followed_and_no_pipe_is_waited_for(tmp_path: Path, name: str) -> None:
    store_recording(tmp_path)
    path = tmp_path / NAME / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BaselineError, match="is a link"):
        BaselineStore(tmp_path).read(NAME)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BaselineError, match="is not a file"):
        BaselineStore(tmp_path).read(NAME)


def test_a_folder_that_is_a_link_or_a_file_is_an_error(tmp_path: Path) -> None:
    store_recording(tmp_path / "elsewhere")
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere" / NAME)
    with pytest.raises(BaselineError, match="is a link"):
        BaselineStore(tmp_path).read(NAME)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).write_text("")
    with pytest.raises(BaselineError, match="Not a directory"):
        BaselineStore(tmp_path).read(NAME)
    with pytest.raises(BaselineError, match="Not a directory"):
        BaselineStore(tmp_path / NAME).names()


def test_a_path_that_is_too_long_for_a_folder_of_baselines_is_an_error(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path / ("x" * 300))
    for reading in (store.names, lambda: store.read(NAME)):
        with pytest.raises(BaselineError, match=r"cannot be read as a folder.*name too long"):
            reading()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    store_recording(tmp_path)
    os.truncate(tmp_path / NAME / "model.json", 1 << 40)
    with pytest.raises(BaselineError, match=r"has 1\.000 TiB"):
        BaselineStore(tmp_path).read(NAME)


def test_a_run_of_one_case_leaves_the_others_byte_for_byte(tmp_path: Path) -> None:
    def lines_of(case_id: str) -> list[str]:
        texts = [path.read_text() for path in sorted((tmp_path / NAME).glob("*.json"))]
        return [
            match
            for text in texts
            for match in re.findall(rf'^  "{case_id}": {{\n(?:   .*\n)+', text, re.MULTILINE)
        ]

    before = store_recording(tmp_path, make_recording(("b1-c1", "b8-c2")))
    kept, changed = lines_of("b1-c1"), lines_of("b8-c2")
    assert len(kept) == len(changed) == 2
    after = store_recording(tmp_path, make_recording(("b8-c2",), version=2))
    assert lines_of("b1-c1") == kept
    assert all(new != old for new, old in zip(lines_of("b8-c2"), changed, strict=True))
    assert after.model.case("b1-c1") == before.model.case("b1-c1")


def test_an_unchanged_file_is_not_written_not_even_its_date(tmp_path: Path) -> None:
    store_recording(tmp_path)
    before = snapshot_files(tmp_path)
    again = make_recording()
    later = make_provenance(dt.date(2027, 1, 1), machine="linux-x86_64-other-8c")
    again = replace(again, cases=tuple(replace(case, provenance=later) for case in again.cases))
    store = BaselineStore(tmp_path)
    plan = plan_update(store.read(NAME), again)
    assert plan.is_empty
    assert plan.changes == ()
    assert store.apply(plan).is_empty
    assert snapshot_files(tmp_path) == before


def test_another_version_of_the_engine_is_other_content(tmp_path: Path) -> None:
    """Otherwise a recording would not accept an upgrade of the engine that changes no plan."""

    def recorded_with(version: str) -> BaselineRecording:
        origin = make_provenance(DAY, {"onnxruntime": version, "onnx": version})
        recording = make_recording()
        (case,) = recording.cases
        return replace(recording, cases=(replace(case, provenance=origin),))

    store_recording(tmp_path, recorded_with("1.31.1"))
    store = BaselineStore(tmp_path)
    plan = store.apply(plan_update(store.read(NAME), recorded_with("1.32.0")))
    assert [(change.name, change.before, change.after) for change in plan.changes] == [
        ("engine version", "1.31.1", "1.32.0")
    ]
    (case,) = known(store.read(NAME)).model.cases
    assert case.provenance.packages == {"onnxruntime": "1.32.0", "onnx": "1.32.0"}


def test_only_files_whose_content_changes_are_written(tmp_path: Path) -> None:
    store_recording(tmp_path)
    before = snapshot_files(tmp_path)
    slower = make_recording(version=2).machine
    store_recording(tmp_path, replace(make_recording(), machine=slower))
    changed = {name for name, state in snapshot_files(tmp_path).items() if state != before[name]}
    assert changed == {f"{NAME}/{MACHINE.key}.json"}


_RECORDINGS = st.builds(
    make_recording,
    st.lists(st.sampled_from(["b1-c1", "b1-c2", "b8-c2"]), unique=True, max_size=3),
    st.integers(1, 3),
    twin=st.none() | st.just(b"twin"),
    key=st.sampled_from([MACHINE.key, "linux-arm64-4c"]),
)


@given(_RECORDINGS, _RECORDINGS)
def test_a_plan_lists_every_case_that_it_changes_and_only_those(
    first: BaselineRecording, second: BaselineRecording
) -> None:
    stored = known(plan_update(None, first).after)
    plan = plan_update(stored, second)
    assert plan.after is not None
    assert bool(plan.changes) == (not plan.is_empty)
    for case_id in ("b1-c1", "b1-c2", "b8-c2"):
        differs = plan.after.model.case(case_id) != stored.model.case(case_id) or any(
            _case_on(plan.after, key, case_id) != _case_on(stored, key, case_id)
            for key in (MACHINE.key, "linux-arm64-4c")
        )
        assert differs == any(change.case == case_id for change in plan.changes)
        if case_id not in {case.id for case in second.cases}:
            assert not differs
    assert plan_update(plan.after, second).is_empty


def _case_on(baseline: Baseline, key: str, case_id: str) -> StoredLatency | None:
    machine = baseline.machine(key)
    return None if machine is None else machine.cases.get(case_id)


@pytest.mark.slow
@given(_CASE, _CASE)
def test_no_difference_of_two_cases_goes_without_a_row(one: StoredCase, two: StoredCase) -> None:
    same_id = replace(two, id=one.id, batch_size=one.batch_size, cores=one.cores)
    stored = known(plan_update(None, replace(make_recording(), cases=(one,), machine=None)).after)
    plan = plan_update(stored, replace(make_recording(), cases=(same_id,), machine=None))
    differs = plan.after is not None and plan.after.model.cases != stored.model.cases
    assert differs == any(change.case for change in plan.changes)


def test_cases_of_an_older_model_are_not_judged_by_the_twin_of_a_newer_one(tmp_path: Path) -> None:
    stored = store_recording(tmp_path, make_recording(("b1-c1", "b8-c2")))
    assert stored.model.twin_refusal("b8-c2") is None
    plan = plan_update(stored, make_recording(("b1-c1",), version=2))
    assert len(plan.notes) == 1
    assert plan.notes[0].startswith("b8-c2: not measured now")
    stored = store_recording(tmp_path, make_recording(("b1-c1",), version=2))
    assert stored.model.twin_refusal("b1-c1") is None
    assert "another model than the twin" in str(stored.model.twin_refusal("b8-c2"))
    assert "no baseline of b9-c9" in str(stored.model.twin_refusal("b9-c9"))


def test_without_a_new_twin_the_old_one_stays_while_a_case_needs_it(tmp_path: Path) -> None:
    store_recording(tmp_path, make_recording(("b1-c1", "b8-c2")))
    stored = store_recording(tmp_path, make_recording(("b1-c1",), version=2, twin=None))
    assert stored.model.twin_refusal("b1-c1") is not None
    assert stored.model.twin_refusal("b8-c2") is None
    stored = store_recording(tmp_path, make_recording(("b8-c2",), version=2, twin=None))
    assert stored.model.twin is None
    assert not (tmp_path / NAME / "twin.onnx").exists()


def test_counts_alone_keep_what_ran_of_the_very_same_case_only(tmp_path: Path) -> None:
    recording = make_recording()
    (case,) = recording.cases
    ran = replace(case, outputs=OutputSketch(inputs="0" * 32, weights="1" * 32, tensors={}))
    stored = store_recording(tmp_path, replace(recording, cases=(ran,)))
    counted = replace(case, engine=None, fidelity=None)
    again = replace(recording, cases=(counted,), twin=None, machine=None)
    assert plan_update(stored, again).is_empty
    longer = replace(counted, dims={"seq": 128})
    after = known(plan_update(stored, replace(again, cases=(longer,))).after)
    assert after.model.cases == (longer,)


def test_a_twin_that_is_not_trusted_says_why() -> None:
    case = make_case("b1-c1", None, 1)
    assert case.fidelity is not None
    doubted = replace(case, fidelity=SLOWER)
    recording = make_recording()
    cases = (replace(doubted, model_sha256=recording.model.sha256),)
    stored = known(plan_update(None, replace(recording, cases=cases)).after)
    assert stored.model.twin_refusal("b1-c1") == SLOWER.reason


def test_removing_is_explicit_and_takes_a_case_from_every_machine(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    store_recording(tmp_path, make_recording(("b1-c1", "b8-c2")))
    stored = store_recording(tmp_path, make_recording(("b8-c2",), key="linux-arm64-4c"))
    store.apply(plan_removal(stored, ["b8-c2"]))
    left = known(store.read(NAME))
    assert [case.id for case in left.model.cases] == ["b1-c1"]
    assert [machine.key for machine in left.machines] == [MACHINE.key]
    store.apply(plan_removal(left))
    assert store.read(NAME) is None
    assert list(tmp_path.iterdir()) == []


def test_the_table_of_a_plan_shows_each_figure_before_and_after() -> None:
    stored = plan_update(None, make_recording(("b1-c1", "b8-c2"))).after
    table = plan_table(plan_update(stored, make_recording(("b1-c1", "b1-c2"), version=2)))
    lines = [[column.title for column in table.columns], *table.rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    text = [" | ".join(map(str.ljust, cells, widths)).rstrip() for cells in lines]
    assert "\n".join([table.title, *text, table.caption]) == snapshot("""\
models/encoder.onnx
case  | what        | before       | after        | change
model | model       | 6b86b273ff34 | d4735e3a265e | changed
      | twin        | 5872d41384fc | 7fd9335a4e60 | changed
b1-c1 | MACs        | 900          | 1.800 k      | +100.0 %
      | Conv MACs   | 900          | 1.800 k      | +100.0 %
      | p50 latency | 1.002 ms     | 2.002 ms     | +99.8 %
      | p95 latency | 1.004 ms     | 2.004 ms     | +99.6 %
b1-c2 | MACs        | -            | 1.800 k      | new
      | params      | -            | 70           | new
      | p50 latency | -            | 2.002 ms     | new
      | p95 latency | -            | 2.004 ms     | new
b8-c2: not measured now, and recorded with another model than the new twin, which cannot replace it: record these cases too\
""")  # noqa: E501  # a caption is wrapped where it is shown


def test_another_plan_of_the_engine_is_a_change() -> None:
    """A model whose plan is the recorded one passes without a duet, so a review has to see it."""
    before = known(plan_update(None, make_recording()).after)
    (case,) = before.model.cases
    now = replace(case, plan=StoredPlan(digest="0123456789abcdef", kernels=9, machine=MACHINE.key))
    after = replace(before, model=replace(before.model, cases=(now,)))
    assert [
        (each.case, each.name, each.before, each.after) for each in list_changes(before, after)
    ] == [("b1-c1", "plan", None, "0123456789ab")]


def test_no_name_in_a_plan_can_steer_a_terminal() -> None:
    recording = make_recording()
    case = replace(recording.cases[0], engine="\x1b[31mengine\n" + "x" * 99)
    stored = plan_update(None, recording).after
    table = plan_table(plan_update(stored, replace(recording, cases=(case,))))
    assert all(len(cell) <= 24 for row in table.rows for cell in row)
    text = render_report(Report(title="", blocks=(Rows(table),)), TextStyle())
    assert all(line.isprintable() for line in text.splitlines())
    assert " \\x1b[31mengine\\nx" in text


def test_a_profile_is_stored_without_paths_and_its_samples_in_order() -> None:
    profile = measured_classifier()
    case = profile.cases[0]
    stored = store_case(case, profile.model, make_provenance(date=DAY), "0" * 32)
    latency = store_latency([case], profile.model, DAY)
    assert stored.static is not None
    assert stored.static.macs == case.static.macs
    assert dict(stored.static.layer_types).keys() == case.static.layer_types.keys()
    assert stored.static.flops == case.static.flops
    assert stored.static.coverage == case.static.coverage
    assert stored.engine == "onnxruntime"
    assert [p.times_ns[0] for p in latency.processes] == [known(case.measured).rounds[0].times_ns]
    p50 = case.latency.percentile(50.0).value_ns
    assert latency.percentile_ns(50.0) == pytest.approx(p50)
    assert sum(known(latency.processes[0].layer_type_ns).values()) == pytest.approx(p50, rel=1e-6)
    recording = BaselineRecording(
        name="m",
        model=replace(profile.model, path="/home/me/m.onnx"),
        cases=(stored,),
        machine=MachineBaseline(key=MACHINE.key, machine=MACHINE, cases={stored.id: latency}),
    )
    after = known(plan_update(None, recording).after)
    assert b"/home/me" not in write_model(after.model) + write_machine(after.machines[0])


@given(st.lists(st.integers(0, 10**10), min_size=2, max_size=400), st.integers(4, 100))
def test_a_thinned_round_keeps_its_order_its_ends_and_nearly_its_percentiles(
    times: list[int], most: int
) -> None:
    kept = thin(times, most)
    assert len(kept) == min(most, len(times))
    rest = iter(times)
    assert all(time in rest for time in kept)
    assert (min(kept), max(kept)) == (min(times), max(times))
    ordered = np.sort(times)
    for percent in (50, 90, 95):
        # Half a rank of rounding on either side of a neighbour in the thinned ranks.
        reach = (len(times) - 1) / (len(kept) - 1) + 1
        rank = percent / 100 * (len(times) - 1)
        low = ordered[max(0, int(np.floor(rank - reach)))]
        high = ordered[min(len(times) - 1, int(np.ceil(rank + reach)))]
        assert low <= np.percentile(kept, percent) <= high


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50), st.floats(0, 100))
def test_a_percentile_of_stored_samples_is_that_of_numpy(times: list[int], percent: float) -> None:
    made = _process([tuple(times)], 0, date=DAY, peak_rss_bytes=None, layer_type_ns=None)
    found = made.percentile_ns(percent)
    assert found == pytest.approx(np.percentile(times, percent), rel=1e-12, abs=1e-3)


def test_the_samples_of_a_long_measurement_take_less_than_50_kb_a_case() -> None:
    rng = np.random.default_rng(7)
    profile = measured_classifier()
    runs = []
    for _ in range(5):
        rounds = [make_round(rng.integers(10**9, 9 * 10**9, 400).tolist()) for _ in range(35)]
        runs.append(replace(profile.cases[0], measured=make_measurement(rounds=rounds)))
    latency = store_latency(runs, profile.model, DAY)
    stored = MachineBaseline(key=MACHINE.key, machine=MACHINE, cases={"b1-c1": latency})
    assert 20_000 < len(write_machine(stored)) < 50_000
    assert latency.processes[0].samples[0] == 400


@pytest.mark.parametrize("longest", [400, 4_000])
def test_rounds_of_unequal_length_keep_the_percentiles_of_all_their_samples(longest: int) -> None:
    """A busy machine has a few long rounds and many short ones, and these take other times."""
    rounds = [make_round(range(1_000, 1_000 + longest)) for _ in range(3)]
    rounds += [make_round(range(9_000, 9_020)) for _ in range(30)]
    profile = measured_classifier()
    run = replace(profile.cases[0], measured=make_measurement(rounds=rounds))
    (process,) = store_latency([run], profile.model, DAY).processes
    every = np.concatenate([made.times_ns for made in rounds])
    assert sum(map(len, process.times_ns)) <= 3_300
    for percent in (50, 95):
        assert process.percentile_ns(percent) == pytest.approx(np.percentile(every, percent), 0.01)


@pytest.mark.slow
def test_a_writer_that_is_killed_at_any_system_call_leaves_old_or_new_files(tmp_path: Path) -> None:
    child = spawn("kill", str(tmp_path))
    output, _ = child.communicate(timeout=_SECONDS)
    attempts = [json.loads(line) for line in output.splitlines()]
    assert child.returncode == 0
    assert len(attempts) >= 100
    assert all(attempt["was_killed"] for attempt in attempts)
    assert [attempt for attempt in attempts if attempt["problem"]] == []


def test_tidying_removes_what_a_killed_writer_left_and_nothing_of_one_at_work(
    tmp_path: Path,
) -> None:
    store_recording(tmp_path, make_recording(("b1-c1",)))
    stored = BaselineStore(tmp_path).read(NAME)
    for left in (".lock", f"{NAME}/.modelperf-0123abcd.tmp", f"{NAME}/.modelperf-89abcdef.tmp"):
        (tmp_path / left).write_bytes(b"half")
    BaselineStore(tmp_path).tidy()
    assert not list(tmp_path.rglob(".*"))
    assert BaselineStore(tmp_path).read(NAME) == stored
    unfinished = tmp_path / NAME / ".modelperf-0123abcd.tmp"
    unfinished.write_bytes(b"half")
    with locked(tmp_path):
        BaselineStore(tmp_path).tidy()
        assert unfinished.exists()
    BaselineStore(tmp_path / "none").tidy()
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_writers_of_different_cases_lose_nothing_of_each_other(tmp_path: Path) -> None:
    children = [spawn("update", str(tmp_path), str(worker), "8") for worker in range(1, 5)]
    assert [child.communicate(timeout=_SECONDS)[0] for child in children] == [""] * 4
    assert [child.returncode for child in children] == [0] * 4
    stored = known(BaselineStore(tmp_path).read(NAME))
    ids = {f"b{batch_size}-c{cores}" for batch_size in range(1, 9) for cores in range(1, 5)}
    assert {case.id for case in stored.model.cases} == ids
    assert stored.machines[0].cases.keys() == ids
    assert not list(tmp_path.rglob(".*"))


def test_files_of_another_writer_since_the_plan_are_kept(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    plan = plan_update(None, make_recording(("b1-c1",)))
    store_recording(tmp_path, make_recording(("b8-c2",)))
    assert {change.case for change in store.apply(plan).changes} == {"b1-c1"}
    assert [case.id for case in known(store.read(NAME)).model.cases] == ["b1-c1", "b8-c2"]


class Refusing:
    """System calls of which one fails, as on a disk that is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.at = at
        self.made = 0
        for module, names in (
            (os, ("open", "write", "fsync")),
            (Path, ("replace", "unlink", "mkdir", "rename")),
            (fcntl, ("flock",)),
        ):
            for name in names:
                monkeypatch.setattr(module, name, self._refuse(getattr(module, name)))

    def _refuse(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def refusing(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # of any function
            self.made += 1
            if self.made - 1 == self.at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))
            return call(*arguments, **options)

        return refusing


def _planned(root: Path) -> tuple[Baseline, UpdatePlan]:
    before = store_recording(root, make_recording(("b1-c1", "b8-c2")))
    return before, plan_update(before, make_recording(("b1-c1",), version=2))


@pytest.mark.slow
def test_any_failing_call_is_reported_and_leaves_no_half_written_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[str] = []
    for at in range(200):
        root = tmp_path / str(at)
        before, plan = _planned(root)
        with monkeypatch.context() as patch:
            refusing = Refusing(patch, at)
            try:
                BaselineStore(root).apply(plan)
            except ModelPerfError as error:
                errors.append(str(error))
            if refusing.made <= at:
                break
        assert not list(root.rglob("*.tmp"))
        assert not list(root.rglob("twin.next.onnx"))
        left = known(BaselineStore(root).read(NAME))
        assert plan.after is not None
        assert (left.model, left.twin) in (
            (before.model, before.twin),
            (plan.after.model, plan.after.twin),
        )
        assert left.machines in (before.machines, plan.after.machines)
        BaselineStore(root).apply(plan_update(left, make_recording(("b1-c1",), version=2)))
        assert BaselineStore(root).read(NAME) == plan.after
        assert not list(root.rglob(".*"))
        assert not list(root.rglob("twin.next.onnx"))
    assert len(errors) > 15
    assert all(os.strerror(errno.ENOSPC) in message for message in errors)


def test_a_new_baseline_of_which_any_call_fails_leaves_nothing_or_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = 0
    for at in range(200):
        root = tmp_path / str(at)
        plan = plan_update(None, make_recording())
        with monkeypatch.context() as patch:
            refusing = Refusing(patch, at)
            with contextlib.suppress(ModelPerfError):
                BaselineStore(root).apply(plan)
            if refusing.made <= at:
                break
        failed += 1
        if root.exists():
            assert BaselineStore(root).read(NAME) in (None, plan.after)
            assert {path.name for path in root.rglob("*")} <= {".lock"} or (
                BaselineStore(root).read(NAME) == plan.after
            )
    assert failed > 15


def test_the_error_of_a_read_only_folder_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, plan = _planned(tmp_path)
    before = snapshot_files(tmp_path)
    opened = os.open

    def read_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:  # noqa: ANN401  # as os.open has it
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OutputError, match=r"Read-only file system.*--modelperf-baseline-dir"):
        BaselineStore(tmp_path).apply(plan)
    assert snapshot_files(tmp_path) == before


def test_nothing_is_written_over_a_broken_file(tmp_path: Path) -> None:
    _, plan = _planned(tmp_path)
    path = tmp_path / NAME / "model.json"
    path.write_bytes(path.read_bytes()[:-9])
    before = snapshot_files(tmp_path)
    with pytest.raises(BaselineError, match=r"model\.json, line "):
        BaselineStore(tmp_path).apply(plan)
    assert snapshot_files(tmp_path) == before


def test_content_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    """A figure beyond the bounds would make every later run fail."""
    recording = make_recording()
    static = known(recording.cases[0].static)
    endless = replace(recording.cases[0], static=replace(static, macs=2**63))
    with pytest.raises(BaselineError, match=r"static\.macs"):
        store_recording(tmp_path, replace(recording, cases=(endless,)))
    assert not (tmp_path / NAME).exists()
