"""How often a reduction finds what made a model slower, how small it gets, and how long it takes.

    python benchmarks/reduce.py                              all of it, some half an hour
    python benchmarks/reduce.py --models lstm yolo           these models alone
    python benchmarks/reduce.py --changes "a wider kernel"   this change alone
    python benchmarks/reduce.py --folder f                   keep what is found, and go on from it

Models and changes are those of parts.py, so what was changed is known by construction: the
operators that were added, removed or widened. `modelperf reduce` gets a model and the changed one.
Where it calls the changed one slower, the kernels that it keeps have to be kernels that changed,
and one of them has to be of such an operator. Its `repro.py` then runs beside it, and has to call
the second model slower as well.

In the last change, "an upgrade", the model stays as it is, and two releases run it. It has a mean
of windows, for which ONNX Runtime 1.29.0 takes some ten times as long as 1.28.0. This program makes
the environments that are not kept yet, which needs a package index.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
import results
from changes import CHANGES, average_windows
from kept_rows import keep_row, read_rows
from parts import MODELS, Bench
from results import Expectation, Result, Start, conclude, list_names, markdown
from why import words_of_change

from pytest_modelperf.environments.store import make_environment

UPGRADE = "an upgrade"
# An output more costs too little to be shown as a slowdown.
PLANTED = (*(change for change in CHANGES if change != "an extra output"), UPGRADE)
# The last release before a mean of windows became slower, and the first since then.
RELEASES = ("onnxruntime==1.28.0", "onnxruntime==1.29.0")
SLOWER_KERNELS = frozenset({"AveragePool"})
TOLERANCE = 0.003
MAX_SECONDS = 60.0
# A model counts for the time that a reduction may take up to this latency.
MOST_MS, MOST_SECONDS = 40.0, 60.0
MOST_BYTES = 100_000
# The kernels into which ONNX Runtime fuses a product with its bias or its scales.
_FUSED = {"MatMul": ("Gemm",), "MatMulInteger": ("DynamicQuantizeMatMul",)}
_ROOT = Path(__file__).resolve().parent.parent
_RATIO = re.compile(r"ratio ([\d.]+)")


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of one reduction.

    `is_found` is None where the changed model was not called slower. `repro` is the ratio that the
    program of the folder prints; None where nothing was written.
    """

    model: str
    change: str
    verdict: str
    is_found: bool | None
    before_ms: float | None
    kernels: int | None
    bytes: int | None
    ratio: float | None
    repro: float | None
    steps: int
    seconds: float


def main() -> int:
    options = _options()
    start = Start.now("reduce")
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, 0.0, MAX_SECONDS)
        for model in options.models:
            for change in options.changes:
                reduce_once(bench, model, change)
        rows = [
            row
            for row in read_rows(folder, "reductions")
            if row["model"] in options.models and row["change"] in options.changes
        ]
    return conclude(start.finish({"reductions": rows}), tables, expectations, options.json)


def reduce_once(bench: Bench, model: str, change: str) -> None:
    """Reduces a model and the changed one, unless that is stored or there is no place for it."""
    known = {(row["model"], row["change"]) for row in read_rows(bench.folder, "reductions")}
    if (model, change) in known:
        return
    found = reduce_upgrade(bench, model) if change == UPGRADE else reduce_pair(bench, model, change)
    if found is not None:
        keep_row(bench.folder, "reductions", asdict(found))
        print(f"{model}, {change}: {found}", file=sys.stderr)


def reduce_pair(bench: Bench, model: str, change: str) -> Reduced | None:
    """Reduces a model and the changed one; None if it has no place for the change."""
    with bench.sides(model, change, None) as sides:
        if sides is None:
            return None
        words = words_of_change(*map(onnx.load, sides))
        return run_reduce(model, change, *sides, words)


def reduce_upgrade(bench: Bench, model: str) -> Reduced | None:
    """Reduces what two releases make of one model; None if it has no map to take a mean of."""
    changed = average_windows(bench.model(model))
    if changed is None:
        return None
    with tempfile.TemporaryDirectory(dir=bench.folder) as place:
        path = Path(place, "model.onnx")
        onnx.save(changed, path)
        return run_reduce(model, UPGRADE, path, path, SLOWER_KERNELS, RELEASES)


def run_reduce(  # noqa: PLR0913, PLR0917  # what was planted, and where it is looked for
    model: str,
    change: str,
    before: Path,
    after: Path,
    words: frozenset[str],
    releases: tuple[str, str] | None = None,
) -> Reduced:
    """The result of the command, and the ratio that its `repro.py` prints.

    With two releases, each side runs on its own.
    """
    told, target = before.with_name("told.json"), before.with_name("reduced")
    where, pythons = [], [sys.executable]
    if releases is not None:
        where = [f"--requirement-{side}={each}" for side, each in zip("ab", releases, strict=True)]
        pythons = [str(make_environment([each]).python) for each in releases]
    started = time.monotonic()
    done = _run(
        sys.executable, "-m", "pytest_modelperf", "reduce", str(before), str(after), "--batch=1",
        f"--tolerance={TOLERANCE:g}", f"--max-seconds={MAX_SECONDS:g}", f"--output={target}",
        f"--json={told}", *where,
    )  # fmt: skip
    seconds = round(time.monotonic() - started, 2)
    if not told.exists():
        raise RuntimeError(done.stderr.strip()[-500:])
    repro = None
    if target.exists():
        *older, newer = pythons
        printed = _run(newer, str(target / "repro.py"), *older).stdout
        repro = float(_RATIO.findall(printed)[-1])
        shutil.rmtree(target)
    document = json.loads(told.read_text(encoding="utf-8"))
    return read_reduction(model, change, document, words, repro, seconds)


def read_reduction(  # noqa: PLR0913, PLR0917  # what was planted, and what was found
    model: str,
    change: str,
    document: Mapping[str, object],
    words: frozenset[str],
    repro: float | None,
    seconds: float,
) -> Reduced:
    """The part of a reduction's document that is about the planted change."""
    told = json.loads(json.dumps(document))
    whole, written = told["whole"], told["written"]
    kept = [unit for unit in told["units"] if unit["kept"]]
    operators = {op for unit in kept for op in (*unit["before"], *unit["after"])}
    # The engine may have fused a planted operator into another, whose name begins or ends with it,
    # or has the product in it.
    words |= {name for word in words for name in _FUSED.get(word, ())}
    names_it = any(word in op for word in words for op in operators)
    is_slower = told["verdict"] == "regressed"
    return Reduced(
        model=model,
        change=change,
        verdict=told["verdict"],
        is_found=bool(kept) and names_it and all(u["changed"] for u in kept) if is_slower else None,
        before_ms=None if whole is None else whole["before_ms"],
        kernels=None if written is None else sum(written["kernels"].values()),
        bytes=None if written is None else sum(written["sizes"]),
        ratio=None if written is None else written["figure"]["ratio"],
        repro=repro,
        steps=len(told["steps"]),
        seconds=seconds,
    )


def tables(result: Result) -> Mapping[str, str]:
    rows = result.rows["reductions"]
    slower = [row for row in rows if row["is_found"] is not None]
    written = [row for row in slower if row["kernels"] is not None]
    header = (
        "model", "change", "verdict", "found", "kernels", "bytes", "ratio", "repro.py", "steps",
        "seconds",
    )  # fmt: skip
    lines = [
        (
            row["model"],
            row["change"],
            row["verdict"],
            {True: "yes", False: "no", None: ""}[row["is_found"]],
            *(_shown(row[name]) for name in ("kernels", "bytes", "ratio", "repro")),
            str(row["steps"]),
            f"{row['seconds']:.0f}",
        )
        for row in rows
    ]
    sums = (
        ("reductions", str(len(rows))),
        ("called slower", str(len(slower))),
        ("found what was planted", f"{sum(row['is_found'] for row in slower)} of {len(slower)}"),
        ("median kernels of both models", _median(written, "kernels")),
        ("median bytes of both models", _median(written, "bytes")),
        ("median seconds where slower", _median(slower, "seconds")),
    )
    return {
        "reduce": markdown(("what", ""), sums),
        "reduce all": markdown(header, lines, "llllrrrrrr"),
    }


def expectations(result: Result) -> Sequence[Expectation]:
    slower = [row for row in result.rows["reductions"] if row["is_found"] is not None]
    written = [row for row in slower if row["bytes"] is not None]
    timed = [row for row in slower if (row["before_ms"] or 0.0) <= MOST_MS]
    longest = max((row["seconds"] for row in timed), default=0.0)
    largest = max((row["bytes"] for row in written), default=0)
    found = sum(row["is_found"] for row in slower)
    shown = sum(row["repro"] is not None and row["repro"] > 1.0 for row in slower)
    return (
        Expectation(
            "reductions that keep what was planted", "all", f"{found} of {len(slower)}",
            found == len(slower) if slower else None,
        ),
        Expectation(
            "programs that call the second model slower", "all", f"{shown} of {len(slower)}",
            shown == len(slower) if slower else None,
        ),
        Expectation(
            f"longest reduction of models up to {MOST_MS:g} ms", f"at most {MOST_SECONDS:g} s",
            f"{longest:.0f} s", longest <= MOST_SECONDS if timed else None,
        ),
        Expectation(
            "both models together", f"at most {MOST_BYTES:,} bytes", f"{largest:,}",
            largest <= MOST_BYTES if written else None,
        ),
    )  # fmt: skip


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _median(rows: Sequence[results.Row], name: str) -> str:
    return f"{statistics.median(row[name] for row in rows):,.4g}" if rows else ""


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def _options() -> argparse.Namespace:
    parser = results.parser(__doc__)
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME",
        help=list_names(MODELS),
    )  # fmt: skip
    parser.add_argument(
        "--changes", nargs="+", choices=PLANTED, default=PLANTED, metavar="CHANGE",
        help=list_names(PLANTED),
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, help="keep what is found here, and go on from it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
