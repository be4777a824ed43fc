"""How many models pass by their plan although a value makes them slower, and how many should.

    python benchmarks/traps.py                         all of it, an hour
    python benchmarks/traps.py --parts traps           one of traps, search and retrained
    python benchmarks/traps.py --only Resize Gather    these operators, or these real models
    python benchmarks/traps.py --quick                 a twentieth of the traps and small models
    python benchmarks/traps.py --folder f              keep what is found, and go on from it

A trap is a pair of models that differ in the value of one operand (`trap_models.py`). The pair
counts if a bare loop of onnxruntime, without any code of ours, shows the second model to be 5 %
slower. It goes the way of a user: baselines of the first models are recorded, the second ones take
their places, and `pytest --modelperf --modelperf-strict` checks them. A hole is a case that passes
or that is settled without being timed.

The search (`trap_search.py`) looks for holes in real models: it alters some constants of each kind,
one at a time, and times the alterations that a plan settles. The third part trains real models
again and counts those that are still settled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import onnx
import results
from kept_rows import keep_row, read_rows
from results import Expectation, Result, Start, conclude, markdown
from trap_models import Trap, traps
from trap_search import LARGE, NAMES, SLOWER, check_retrained, make_feeds, race, search, start

from pytest_modelperf.profiler.worker.lock import LOCK_VARIABLE

LEAST_TRAPS = 60
LEAST_SETTLED = 0.98
PARTS = ("traps", "search", "retrained")
QUICK_MODELS = ("squeezenet", "lstm", "unet", "silero-vad")
# How an unchanged plan or model settles a case.
SETTLED = frozenset({"plan", "unchanged"})
# So many traps share a run of pytest.
_BATCH = 20
_RACE_SECONDS = 0.3
_LIMIT_S = 3600.0
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Sprung:
    """The result of a trap: by a bare loop, how many times as long its second model takes.

    `verdict` and `how` are those of the check; None if the case has no result.
    """

    name: str
    operator: str
    slower: float
    verdict: str | None
    how: str | None

    @property
    def is_confirmed(self) -> bool:
        return self.slower >= SLOWER

    @property
    def is_hole(self) -> bool:
        passes = self.how in SETTLED or self.verdict in {"passed", "improved", "unchanged"}
        return self.is_confirmed and passes


def main() -> int:
    options = _options()
    begun = Start.now("traps")
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        models = [each for each in NAMES if _is_wanted(each, options)]
        chosen = [each for each in traps() if _is_wanted(each.operator, options)]
        if options.quick:
            models, chosen = list(QUICK_MODELS), chosen[::20]
        if "traps" in options.parts:
            spring_all(chosen, folder)
        if "search" in options.parts:
            _keep_each("search", [each for each in models if each not in LARGE], search, folder)
        if "retrained" in options.parts:
            _keep_each("retrained", models, check_retrained, folder)
        rows = {part: read_rows(folder, part) for part in PARTS}
    is_complete = not options.quick and not options.only and tuple(options.parts) == PARTS
    return conclude(begun.finish(rows, is_complete=is_complete), tables, expectations, options.json)


def _is_wanted(name: str, options: argparse.Namespace) -> bool:
    return not options.only or name in options.only


def _keep_each(
    part: str, names: Sequence[str], find: Callable[[str, Path], Any], folder: Path
) -> None:
    known = {row["model"] for row in read_rows(folder, part)}
    for name in names:
        if name not in known:
            found = find(name, folder)
            keep_row(folder, part, asdict(found))
            print(found, file=sys.stderr)


# -- traps


def spring_all(chosen: Sequence[Trap], folder: Path) -> None:
    """Record and check the traps that the folder lacks, some in each run of pytest."""
    known = {row["name"] for row in read_rows(folder, "traps")}
    left = iter([each for each in chosen if each.name not in known])
    while batch := list(islice(left, _BATCH)):
        with tempfile.TemporaryDirectory() as place:
            for found in spring(batch, Path(place).resolve()):
                keep_row(folder, "traps", asdict(found))
                print(found, file=sys.stderr)


def spring(batch: Sequence[Trap], project: Path) -> Iterator[Sprung]:
    """The results of traps that share a project."""
    names = [f"m{index:02}.onnx" for index in range(len(batch))]
    (project / "pyproject.toml").write_text(settings_of(dict(zip(names, batch, strict=True))))
    for slower in (False, True):
        for name, trap in zip(names, batch, strict=True):
            onnx.save(trap.model(slower=slower), project / name)
        cases = run_pytest(
            project, "--modelperf-strict" if slower else "--modelperf-update-baseline"
        )
    for name, trap in zip(names, batch, strict=True):
        case = cases.get(name, {})
        yield Sprung(
            trap.name, trap.operator, round(confirm(trap), 3), case.get("verdict"), case.get("how")
        )


def settings_of(placed: Mapping[str, Trap]) -> str:
    """The shortest measurement: what settles a case is decided before it."""
    text = "[tool.modelperf]\nmax_seconds = 0.1\n"
    for name, trap in placed.items():
        text += f'\n[tool.modelperf.models."{name}"]\n'
        options = ", ".join(f'{key} = "{value}"' for key, value in trap.options.items())
        text += f"engine_options = {{{options}}}\n" if options else ""
    return text


def run_pytest(project: Path, option: str) -> dict[str, Mapping[str, Any]]:
    """The cases of a run by the names of their models.

    What a plan settles depends on no time, so the run waits for no other measurement.
    """
    report = project / "report.json"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_modelperf.plugin", "-q", "--modelperf",
         f"--modelperf-json={report}", option],
        cwd=project,
        env=os.environ
        | {"PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        | {LOCK_VARIABLE: str(project / ".measuring")},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )  # fmt: skip
    if done.returncode not in {0, 1} or not report.exists():
        raise RuntimeError(f"pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    cases = json.loads(report.read_text("utf-8"))["cases"]
    return {case["model"]["name"]: case for case in cases}


def confirm(trap: Trap) -> float:
    """How many times as long the second model takes, by a loop of onnxruntime alone."""
    before, after = (start(trap.model(slower=slower), trap.options) for slower in (False, True))
    return race(before, after, make_feeds(before.session), _RACE_SECONDS)


# -- what was found


def sprung_of(result: Result) -> list[Sprung]:
    return [Sprung(**row) for row in result.rows["traps"]]


def tables(result: Result) -> dict[str, str]:
    sprung = sprung_of(result)
    operators: dict[str, list[Sprung]] = {}
    for each in sprung:
        operators.setdefault(each.operator, []).append(each)
    by_operator = [
        (
            operator,
            str(len(found)),
            str(sum(each.is_confirmed for each in found)),
            f"{max(each.slower for each in found):.1f} times",
            str(sum(each.is_hole for each in found)),
        )
        for operator, found in operators.items()
    ]
    holes = [
        (each.name, f"{each.slower:.2f} times", str(each.verdict), str(each.how))
        for each in sprung
        if each.is_hole
    ]
    searched = [
        (
            row["model"],
            *(str(row[name]) for name in ("constants", "altered", "settled")),
            "; ".join(row["slower"]) or "-",
        )
        for row in result.rows["search"]
    ]
    opened = [(row["model"], row["reason"]) for row in result.rows["retrained"] if row["reason"]]
    return {
        "traps": markdown(
            ("operator", "pairs", "confirmed", "slower by up to", "holes"), by_operator
        ),
        "traps holes": _table_or_none(("pair", "slower", "verdict", "by"), holes, "lrll"),
        "traps search": markdown(
            ("model", "constants", "alterations", "settled", "of these 5 % slower"),
            searched,
            "lrrrl",
        ),
        "traps retrained": _table_or_none(("not settled", "why"), opened, "ll"),
    }


def _table_or_none(header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    return markdown(header, rows, align) if rows else "None."


def expectations(result: Result) -> tuple[Expectation, ...]:
    confirmed = [each for each in sprung_of(result) if each.is_confirmed]
    holes = sum(each.is_hole for each in confirmed)
    searched, retrained = result.rows["search"], result.rows["retrained"]
    settled = sum(row["settled"] for row in searched)
    slower = sum(len(row["slower"]) for row in searched)
    kept = sum(row["reason"] is None for row in retrained)
    return (
        Expectation(
            "pairs that a bare loop confirms to be 5 % slower", f"at least {LEAST_TRAPS}",
            f"{len(confirmed)} of {len(result.rows['traps'])}", len(confirmed) >= LEAST_TRAPS,
        ),
        Expectation(
            "of these, settled or passed", "none", f"{holes} of {len(confirmed)}",
            not holes if confirmed else None,
        ),
        Expectation(
            f"altered constants of {len(searched)} real models: settled, and 5 % slower", "none",
            f"{slower} of {settled}", not slower if settled else None,
        ),
        Expectation(
            "real models trained again: settled by their plan",
            f"at least {100 * LEAST_SETTLED:g} %", f"{kept} of {len(retrained)}",
            kept >= LEAST_SETTLED * len(retrained) if retrained else None,
        ),
    )  # fmt: skip


def _options() -> argparse.Namespace:
    parser = results.parser(__doc__)
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="traps of these operators, and these real models"
    )
    parser.add_argument("--quick", action="store_true", help="few traps, and small real models")
    parser.add_argument("--folder", type=Path, help="keep what is found here, and go on from it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
