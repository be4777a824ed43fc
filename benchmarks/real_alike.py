"""How often a real model is called slower than its like when both are timed.

    python benchmarks/real_alike.py                          240 comparisons, an hour or less
    python benchmarks/real_alike.py --models lstm squeezenet these alone
    python benchmarks/real_alike.py --repetitions 1          fewer comparisons
    python benchmarks/real_alike.py --cores 1                on one core alone
    python benchmarks/real_alike.py --loads quiet            without neighbours
    python benchmarks/real_alike.py --folder f               keep what is found, and go on from it

The models are those of real.py, each against itself with other weights. The engine makes the same
plan of both, which settles a comparison without timing. Here none is settled so: all are timed, as
`measure = "always"` does it. Whatever is called slower is a false alarm. Each comparison has
the error level of one case in a suite with as many cases as there are models.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import results
from parts import loaded
from parts_results import BUSY, LOADS, QUIET
from real import Bench, model_names, row_of
from real_results import UNCHANGED, Compared, Setting, alarm_rate, compared_of
from results import Expectation, Result, Start, conclude, list_names, markdown

from pytest_modelperf.comparing.gates import Gate


def main() -> int:
    options = _options()
    start = Start.now("real_alike")
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        gate = Gate(judges_starts=False).divided(options.suite)
        bench = Bench(folder, gate, trusts_plans=False)
        made = bench.run(plan_comparisons(options), beside=loaded)
    rows = {"comparisons": list(map(row_of, made))}
    return conclude(start.finish(rows), tables, expectations, options.json)


def plan_comparisons(options: argparse.Namespace) -> list[Setting]:
    """Every comparison. Models alternate, so that drift affects all of them alike."""
    return [
        Setting(load, cores, model, UNCHANGED)
        for load in options.loads
        for _ in range(options.repetitions)
        for model in options.models
        for cores in options.cores
    ]


def comparisons_of(result: Result) -> list[Compared]:
    return [compared_of(dict(row)) for row in result.rows["comparisons"]]


def tables(result: Result) -> Mapping[str, str]:
    made = comparisons_of(result)
    lines = []
    places = dict.fromkeys((each.setting.machine, each.setting.cores) for each in made)
    for load, cores in places:
        here = [e for e in made if (e.setting.machine, e.setting.cores) == (load, cores)]
        models = {each.setting.model for each in here}
        verdicts = [
            str(sum(each.verdict == verdict for each in here))
            for verdict in ("passed", "regressed", "improved", "inconclusive")
        ]
        lines.append((load, str(cores), str(len(models)), str(len(here)), *verdicts))
    header = (
        "load", "cores", "models", "comparisons", "passed", "false alarms", "improved",
        "inconclusive",
    )  # fmt: skip
    return {
        "real alike": markdown(header, lines, "lrrrrrrr"),
        "real alike glance": glance(result, made),
    }


def glance(result: Result, made: Sequence[Compared]) -> str:
    """What a reader would add up."""
    models = len({each.setting.model for each in made})
    loads = " and ".join(dict.fromkeys(each.setting.machine for each in made))
    still_open = [each for each in made if each.verdict == "inconclusive"]
    where = " and ".join(dict.fromkeys(each.setting.machine for each in still_open))
    return (
        f"{models} real models were timed although the plan was unchanged (`measure = "
        f'"always"`; {loads}; {results.short_conditions(result)}). {alarm_rate(made)} '
        f"{len(still_open)} gave no answer{f' ({where})' if where else ''}."
    )


def expectations(result: Result) -> tuple[Expectation, ...]:
    made = comparisons_of(result)
    worse = sum(each.verdict == "regressed" for each in made)
    models = len({each.setting.model for each in made})
    return (
        Expectation("models against their like, called slower", "none", str(worse), not worse),
        Expectation("comparisons", "at least 200", str(len(made)), len(made) >= 200),
        Expectation("models", "at least 20", str(models), models >= 20),
    )


def _options() -> argparse.Namespace:
    parser = results.parser(__doc__)
    names = model_names()
    parser.add_argument("--models", nargs="+", choices=names, metavar="NAME", default=names)
    parser.add_argument("--cores", nargs="+", type=int, default=(1, 2))
    parser.add_argument("--repetitions", type=int, default=3, help="comparisons of each model")
    parser.add_argument(
        "--loads", nargs="+", choices=LOADS, metavar="LOAD", default=(QUIET, BUSY),
        help=list_names(LOADS),
    )  # fmt: skip
    parser.add_argument("--suite", type=int, default=len(names), help="cases that share the level")
    parser.add_argument("--folder", type=Path, help="keep what is found here, and go on from it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
