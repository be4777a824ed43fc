"""The data of report pages, made up: of a comparison, a profile, a sweep, a run, and of hard cases.

Each function returns what a page embeds. The same call returns the same data.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

from pytest_modelperf.report.picture.drawn import picture_entry
from pytest_modelperf.report.picture.records import Box, BoxState, ChangedPart, Picture

# JSON values: the pages read them, and tests look into them.
Data: TypeAlias = dict[str, Any]

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    '"><img src=x onerror=alert(3)>',
    "</style><!-- ]]> {{ 7 * 7 }} %{x} &amp; <b>bold</b>",
    "line\nbreak \u202e right to left",
)
PERCENTS = ("p50", "p90", "p95", "p97", "p99", "p99.9")
SLOWER = (1.0, 1.09, 1.12, 1.16, 1.3, 1.6)


def comparison() -> Data:
    """Two versions of one model, measured at two configurations."""
    chance = random.Random(1)
    cases = [
        _case(chance, "b1-c1", batch=1, cores=1, ms=(12.4, 10.1), word="improved"),
        _case(chance, "b8-c2", batch=8, cores=2, ms=(51.0, 52.9), word="regressed"),
    ]
    return _data(_model("resnet50", ("resnet50", "resnet50-int8"), cases=cases))


def profile() -> Data:
    """One model by itself."""
    cases = [_case(random.Random(2), "b1-c2", batch=1, cores=2, ms=(6.7,), word="")]
    return _data(_model("mobilenet", ("mobilenet",), cases=cases))


def sweep(sides: int = 2, threshold_ms: float | None = 20.0) -> Data:
    """Batch 1, 2, 4, 8 on 1 and 2 cores with 1, 2 and 4 streams; one configuration failed."""
    chance = random.Random(3)
    names = ("resnet50", "resnet50-int8")[:sides]
    points = [
        [
            _point(chance, batch, cores, streams, speed=(1.0, 1.6)[side])
            for batch in (1, 2, 4, 8)
            for cores in (1, 2)
            for streams in (1, 2, 4)
        ]
        for side in range(sides)
    ]
    points[-1][-1] = _failed(points[-1][-1])
    changes = {} if sides == 1 else _changes(points)
    model = _model("resnet50", names, points=points, changes=changes, threshold_ms=threshold_ms)
    return _data(model)


def sweep_with_layers() -> Data:
    """A sweep that also took the layers of its sides at the best of B."""
    data = sweep()
    case = _case(random.Random(8), "b4-c2-s4", batch=4, cores=2, ms=(29.0, 18.0), word="improved")
    data["models"][0]["cases"].append(case)
    return data


def sweep_with_all_layers() -> Data:
    """A sweep of one model that also took the layers at two of its configurations."""
    data, chance = sweep(sides=1), random.Random(8)
    data["models"][0]["cases"] += [
        _case(chance, f"b{batch}-c1", batch=batch, cores=1, ms=(3.0 * batch,), word="")
        for batch in (1, 8)
    ]
    return data


def run() -> Data:
    """Two models of a test run: one with two sides, one that is new and has one."""
    chance = random.Random(4)
    compared = [
        _case(chance, "b1-c1", batch=1, cores=1, ms=(8.0, 8.1), word="passed"),
        _case(chance, "b1-c2", batch=1, cores=2, ms=(4.4, 4.9), word="regressed"),
    ]
    new = [_case(chance, "b1-c1", batch=1, cores=1, ms=(3.3,), word="new")]
    return _data(
        _model("encoder", ("encoder", "encoder"), cases=compared),
        _model("decoder", ("decoder",), cases=new),
    )


def hostile() -> Data:
    """Names that would be markup, code or an end of the page wherever they are not escaped."""
    chance = random.Random(5)
    case = _case(chance, HOSTILE_NAMES[0], batch=1, cores=1, ms=(5.0, 6.0), word="regressed")
    case["name"] = HOSTILE_NAMES[1]
    for layer, name in zip(case["layers"], HOSTILE_NAMES * 4, strict=False):
        layer.update(
            names=[name, name], ids=[name, name], weights=[name, name], kernels=[name, name],
            providers=[name, name], fused=[[fused_layer(name, name)]] * 2,
            attributes=[{name: name}, {name: "1"}],
        )  # fmt: skip
    case["layers"][0]["type"] = case["types"][0]["type"] = HOSTILE_NAMES[0]
    points = [[_point(chance, batch, 1, 1, speed) for batch in (1, 2, 4)] for speed in (1.0, 1.5)]
    for side in points:
        side[0]["id"] = HOSTILE_NAMES[2]
        side[0]["dims"] = {HOSTILE_NAMES[0]: 64}
    points[0][2] = _failed(points[0][2]) | {"reason": HOSTILE_NAMES[1]}
    names = (HOSTILE_NAMES[0], HOSTILE_NAMES[3])
    one = _model(HOSTILE_NAMES[1], names, cases=[case], points=points, changes=_changes(points))
    alone = _case(chance, HOSTILE_NAMES[0], batch=1, cores=1, ms=(5.0,), word="new")
    alone["name"] = HOSTILE_NAMES[1]
    return _data(one, _model(HOSTILE_NAMES[2], names[:1], cases=[alone]))


def big(layers: int = 2000) -> Data:
    """A comparison of a model with many layers."""
    chance = random.Random(6)
    case = _case(
        chance, "b1-c1", batch=1, cores=1, ms=(80.0, 84.0), word="regressed", layers=layers
    )
    return _data(_model("deep", ("deep", "deeper"), cases=[case]))


def bare() -> Data:
    """Static figures only: nothing was measured."""
    case = _case(random.Random(7), "b1-c1", batch=1, cores=1, ms=(5.0,), word="")
    case.update(latency=[None], rounds=[[]])
    for row in (*case["types"], *case["layers"]):
        row.update(ms=[None], precisions=[None])
    return _data(_model("static", ("static",), cases=[case]))


def program(deep: int = 40) -> Data:
    """A program that became slower, with a deep tree of calls and long names."""
    chance = random.Random(9)
    case = _case(chance, "b1-c1", batch=1, cores=1, ms=(4.0, 10.0), word="regressed", layers=0)
    case |= {"layers": [], "types": [], "graph": None}
    case["calls"] = [
        call("reader.py:Reader.read", 0, (4.0, 10.0)),
        call("reader.py:Reader.prepare", 1, (1.0, 7.5), (1, 2)),
        call(HOSTILE_NAMES[0], 2, (None, 4.0), (None, 300)),
        call("built-in method numpy.array", 3, (None, 1.5), (None, 300)),
        call("resize.py:resize", 2, (0.5, 0.5)),
        call("reader.py:Reader.run", 1, (1.5, 1.5)),
        *(call(f"deep.py:{'level_' * 18}{at}", at + 2, (1.5, 1.5)) for at in range(deep)),
        call("reader.py:Reader.decode", 1, (1.2, 0.6)),
        call("reader.py:Reader.old", 1, (0.2, None), (3, None)),
        call("reader.py:Reader.oldest", 2, (0.1, None), (3, None)),
        call("2 others", 1, (0.02, 0.02), (4, 4)),
    ]
    return _data(_model("test_read.py::test_read", ("before", "test_read.py"), cases=[case]))


def call(
    place: str,
    level: int,
    ms: tuple[float | None, float | None],
    calls: tuple[int | None, int | None] = (1, 1),
) -> Data:
    """A function in the tree of calls of a program."""
    return {"place": place, "level": level, "ms": list(ms), "calls": list(calls)}


def every_page() -> dict[str, Data]:
    """All of the above by name."""
    return {
        "comparison": comparison(),
        "profile": profile(),
        "sweep": sweep(),
        "sweep with layers": sweep_with_layers(),
        "sweep of one": sweep(sides=1, threshold_ms=None),
        "run": run(),
        "hostile": hostile(),
        "big": big(),
        "bare": bare(),
        "program": program(),
    }


def _data(*models: Data) -> Data:
    return {"models": list(models)}


def _model(  # noqa: PLR0913  # what a model may have
    name: str,
    names: Sequence[str],
    *,
    cases: Sequence[Data] = (),
    points: Sequence[Sequence[Data]] | None = None,
    changes: Data | None = None,
    threshold_ms: float | None = None,
) -> Data:
    labels = ("A", "B") if len(names) == 2 else ("",)
    return {
        "name": name,
        "sides": [
            {"label": label, "name": side, "engine": "onnxruntime 1.30.0"}
            for label, side in zip(labels, names, strict=True)
        ],
        "threshold_ms": threshold_ms,
        "points": [list(side) for side in points or [[] for _ in names]],
        "changes": changes or {},
        "cases": list(cases),
    }


def _point(chance: random.Random, batch: int, cores: int, streams: int, speed: float = 1.0) -> Data:
    """More of anything helps less and less; the interval is some 2 % to either side."""
    work_ms = 1.0 + 4.2 * batch
    busy = min(cores, 1 + 0.8 * (cores - 1)) * min(1.35, 1 + 0.12 * (streams - 1))
    per_second = batch * 1000 * busy * speed / work_ms * chance.uniform(0.97, 1.03)
    ms = streams * batch * 1000 / per_second
    spread = chance.uniform(0.008, 0.03)
    return {
        "id": f"b{batch}-c{cores}" + (f"-s{streams}" if streams > 1 else ""),
        "batch": batch,
        "cores": cores,
        "streams": streams,
        "dims": {},
        "ms": ms,
        "interval_ms": [ms * (1 - spread), ms * (1 + spread)],
        "p95_ms": ms * 1.15,
        "per_second": per_second,
        "per_second_interval": [per_second * (1 - spread), per_second * (1 + spread)],
        "reason": None,
        "rounds": _rounds(chance, ms, 6),
    }


def _failed(point: Data) -> Data:
    figures = ("ms", "interval_ms", "p95_ms", "per_second", "per_second_interval")
    reason = "the worker ended with exit status -9: it may have run out of memory"
    return point | dict.fromkeys(figures) | {"reason": reason, "rounds": []}


def _changes(points: Sequence[Sequence[Data]]) -> Data:
    """B over A if both were measured; paired, so a little off the ratio of the figures."""
    changes = {}
    for a, b in zip(*points, strict=True):
        if a["reason"] or b["reason"]:
            continue
        latency, throughput = 1.01 * b["ms"] / a["ms"], 0.99 * b["per_second"] / a["per_second"]
        changes[a["id"]] = {
            "latency": [latency, latency * 0.99, latency * 1.01],
            "p95": [1.1 * latency, 1.05 * latency, 1.15 * latency],
            "throughput": [throughput, throughput * 0.99, throughput * 1.01],
        }
    return changes


def _rounds(chance: random.Random, ms: float, rounds: int) -> list[list[float]]:
    found = []
    for _ in range(rounds):
        median = ms * chance.uniform(0.985, 1.015)
        shares = (0.95, 0.97, 0.99, 1.0, 1.012, 1.05, chance.uniform(1.1, 1.5))
        found.append([median * share for share in shares])
    return found


def _case(  # noqa: PLR0913  # what a case may have
    chance: random.Random,
    case_id: str,
    *,
    batch: int,
    cores: int,
    ms: Sequence[float],
    word: str,
    layers: int = 24,
) -> Data:
    rows = [_layer(chance, depth, layers, ms) for depth in range(layers)]
    return {
        "id": case_id,
        "name": case_id,
        "batch": batch,
        "cores": cores,
        "word": word,
        "latency": [_latency(side_ms, batch, 240 * (side + 1)) for side, side_ms in enumerate(ms)],
        "rounds": [_rounds(chance, side_ms, 12) for side_ms in ms],
        "types": [*_types(rows, ms), _overhead(ms)],
        "layers": rows,
        "graph": picture_entry(_picture(rows, len(ms))),
    }


def _picture(rows: Sequence[Data], sides: int) -> Picture:
    """The layers that ran in a row, every sixth read by the third after it as well.

    On two sides the twelfth changed, and with it a kernel in front is gone.
    """
    boxes: list[Box] = []
    for at, row in enumerate(rows):
        if row["states"][-1] != "ran":
            continue
        last = len(boxes) - 1
        inputs = [last] if boxes else []
        if last > 2 and at % 6 == 3:
            inputs.append(last - 2)
        state = BoxState.NEW if row["states"][0] == "not there" else BoxState.SAME
        is_part = sides == 2 and at == 12
        if is_part:
            gone = Box(
                op_type="ReorderInput", name="ReorderInput", inputs=(last,), values=(0.1, None),
                state=BoxState.GONE, is_layout=True, part=0,
            )  # fmt: skip
            boxes.append(gone)
            state = BoxState.CHANGED
        boxes.append(
            Box(
                op_type=row["type"], name=row["names"][0], inputs=tuple(inputs),
                values=tuple(row["ms"]), row=at, state=state, part=0 if is_part else None,
            )
        )  # fmt: skip
    parts = (ChangedPart("1 MatMul changed", 0.31, (0.28, 0.35)),) if sides == 2 else ()
    return Picture(tuple(boxes), sides=("A", "B")[:sides], parts=parts)


def _latency(ms: float, batch: int, samples: int) -> Data:
    """The percentiles that `samples` support: p99.9 needs more than any sample here has."""
    percentiles: list[Data] = []
    for name, slower in zip(PERCENTS, SLOWER, strict=True):
        known = name != "p99.9" and (name != "p99" or samples >= 480)
        value = ms * slower
        percentiles.append(
            {
                "name": name,
                "ms": value if known else None,
                "low": value * (1 - 0.01 * slower**3) if known else None,
                "high": value * (1 + 0.02 * slower**3) if known else None,
            }
        )
    return {
        "percentiles": percentiles,
        "items_per_second": batch * 1000 / ms,
        "items_per_second_interval": [
            batch * 1000 / percentiles[0][end] for end in ("high", "low")
        ],
        "samples": samples,
        "rounds": 12,
    }


def _layer(chance: random.Random, depth: int, layers: int, ms: Sequence[float]) -> Data:
    """One row; every fifth is fused into the one before, the last one is only there in B."""
    op_type = ("Conv", "Relu", "Conv", "Add", "Relu", "MatMul", "Softmax")[depth % 7]
    sides = len(ms)
    heavy = op_type in {"Conv", "MatMul"}
    share = chance.uniform(0.5, 1.5) * (2.0 if heavy else 0.3) / layers
    states = ["in another kernel" if depth % 5 == 4 else "ran"] * sides
    if sides == 2 and depth == layers - 1:
        states[0] = "not there"
    times: list[Any] = [
        side_ms * share if state == "ran" else None
        for side_ms, state in zip(ms, states, strict=True)
    ]
    here = [state != "not there" for state in states]
    change = times[1] - times[0] if sides == 2 and None not in times else None
    name = f"/block{depth // 7}/{op_type.lower()}_{depth}"
    side_precisions = ("float32", "int8" if heavy else "float32")
    precision = [side_precisions[side] for side in range(sides)] if sides == 2 else ["float32"]
    work = (depth + 1) * 1_000_000 if heavy else 0
    return {
        "type": op_type,
        "is_layer": True,
        "depth": depth,
        "numbers": [depth if known else None for known in here],
        "names": [name if known else None for known in here],
        "ids": [f"{name}_output_0" if known else None for known in here],
        "states": states,
        "ms": times,
        "half_widths": [None if time is None else 0.021 + depth / 1000 for time in times],
        "precisions": [
            text if time is not None else None for text, time in zip(precision, times, strict=True)
        ],
        "providers": ["CPU" if known else None for known in here],
        "kernels": [f"{name}_kernel" if time is not None else None for time in times],
        "macs": [work if known else None for known in here],
        "flops": [2 * work + 64 if known else None for known in here],
        "memory": [4096 * (depth + 1) if known else None for known in here],
        "gmacs": [work / time / 1e6 if work and time else None for time in times],
        "params": [work // 100 if known else None for known in here],
        "sparsity": [0.5 if known and heavy else None for known in here],
        "patterns": ["1x4, 2:4" if known and heavy else None for known in here],
        "effective_macs": [work // 2 if known and heavy else None for known in here],
        "inputs": ["1x64x56x56" if known else None for known in here],
        "outputs": ["1x64x56x56" if known else None for known in here],
        "weights": [f"{name}.weight" if known and heavy else None for known in here],
        "fused": [
            [fused_layer(f"/block{depth // 7}/bn_{depth}", "BatchNormalization")]
            if time is not None and heavy
            else []
            for time in times
        ],
        "runs_in": [name.replace(str(depth), str(depth - 1)) if s == "in another kernel" else None
                    for s in states],
        "attributes": [
            {"strides": "2, 2" if side else "1, 1", "group": "1"} if op_type == "Conv" else {}
            for side in range(sides)
        ],
        "change_ms": change,
        "change_interval_ms": None if change is None else [change - 0.01, change + 0.01],
        "explains": None if change is None else change / (ms[1] - ms[0]),
    }  # fmt: skip


def fused_layer(name: str, op_type: str) -> Data:
    """A layer that the kernel of another one runs."""
    return {"name": name, "id": f"{name}_output_0", "type": op_type, "weight": f"{name}.scale"}


def _types(rows: Sequence[Data], ms: Sequence[float]) -> list[Data]:
    return [
        _type(op_type, [row for row in rows if row["type"] == op_type], ms)
        for op_type in sorted({row["type"] for row in rows})
    ]


def _type(op_type: str, rows: Sequence[Data], ms: Sequence[float]) -> Data:
    sides = range(len(ms))
    times = [sum(row["ms"][side] or 0.0 for row in rows) for side in sides]
    precisions: list[dict[str, int]] = [{} for _ in sides]
    for side in sides:
        for row in rows:
            name = row["precisions"][side]
            if name is not None:
                precisions[side][name] = precisions[side].get(name, 0) + 1
    change = times[1] - times[0] if len(ms) == 2 else None
    return {
        "type": op_type,
        "is_layer": True,
        "counts": [sum(row["states"][side] != "not there" for row in rows) for side in sides],
        "precisions": precisions,
        "ms": times,
        "shares": [time / side_ms for time, side_ms in zip(times, ms, strict=True)],
        "macs": [sum(row["macs"][side] or 0 for row in rows) for side in sides],
        "flops": [sum(row["flops"][side] or 0 for row in rows) for side in sides],
        "params": [sum(row["params"][side] or 0 for row in rows) for side in sides],
        "change_ms": change,
        "change_interval_ms": None if change is None else [change - 0.1, change + 0.1],
        "explains": None if change is None else change / (ms[1] - ms[0]),
    }


def _overhead(ms: Sequence[float]) -> Data:
    """The row that is not a layer of the model."""
    nothing = [None] * len(ms)
    return {
        "type": "runtime overhead",
        "is_layer": False,
        "counts": nothing,
        "precisions": nothing,
        "ms": [side_ms * 0.03 for side_ms in ms],
        "shares": [0.03] * len(ms),
        "macs": nothing,
        "flops": nothing,
        "params": nothing,
        "change_ms": None,
        "change_interval_ms": None,
        "explains": None,
    }
