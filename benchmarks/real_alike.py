"""How often a real model is called slower than its like when both are timed.

Each model of real.py is compared with itself with other weights. The engine makes the same plan of
both, which settles a comparison without timing. Here none is settled so: all are timed, as
`measure = "always"` does it. Whatever is called slower is a false alarm. Each comparison has
the error level of one case in a suite with as many cases as there are models.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from expected import Expectation
from loads import BUSY, LOADS, QUIET
from measuring import Program
from real import Bench, model_names
from real_results import UNCHANGED, Compared, Setting, alarm_rate, places
from results import Result, Rows, short_conditions
from shown import markdown

from pytest_modelperf.comparing.gates import Gate

VERDICTS = ("passed", "regressed", "improved", "inconclusive")


def measure(options: argparse.Namespace) -> Rows:
    gate = Gate(judges_starts=False).divided(len(model_names()))
    bench = Bench(options.folder, gate, trusts_plans=False)
    return {"comparisons": bench.run(plan_comparisons(options))}


def plan_comparisons(options: argparse.Namespace) -> list[Setting]:
    """Every comparison. Models alternate, so that drift affects all of them alike."""
    return [
        Setting(load, cores, model, UNCHANGED)
        for load in options.loads
        for _ in range(options.repetitions)
        for model in options.models
        for cores in options.cores
    ]


def tables(result: Result) -> Mapping[str, str]:
    made = result.read("comparisons", Compared)
    lines = []
    for load, cores in places(made):
        here = [each for each in made if (each.machine, each.cores) == (load, cores)]
        counts = [sum(each.verdict == verdict for each in here) for verdict in VERDICTS]
        lines.append((load, cores, len({each.model for each in here}), len(here), *counts))
    header = (
        "load", "cores", "models", "comparisons", "passed", "false alarms", "improved",
        "inconclusive",
    )  # fmt: skip
    return {"real alike": markdown(header, lines), "real alike glance": glance(result, made)}


def glance(result: Result, made: Sequence[Compared]) -> str:
    """What a reader would add up."""
    loads = " and ".join(dict.fromkeys(each.machine for each in made))
    still_open = [each for each in made if each.verdict == "inconclusive"]
    where = " and ".join(dict.fromkeys(each.machine for each in still_open))
    return (
        f"{len({each.model for each in made})} real models were timed although the plan was "
        f'unchanged (`measure = "always"`; {loads}; {short_conditions(result)}). '
        f"{alarm_rate(made)} {len(still_open)} gave no answer{f' ({where})' if where else ''}."
    )


def expectations(result: Result) -> tuple[Expectation, ...]:
    made = result.read("comparisons", Compared)
    worse = sum(each.verdict == "regressed" for each in made)
    models = len({each.model for each in made})
    return (
        Expectation("models against their like, called slower", "none", str(worse), not worse),
        Expectation("comparisons", "at least 200", str(len(made)), len(made) >= 200),
        Expectation("models", "at least 20", str(models), models >= 20),
    )


if __name__ == "__main__":
    program = Program("real_alike", __doc__, tables, expectations)
    program.choose("--models", model_names())
    program.numbers("--cores", (1, 2), "core counts")
    program.number("--repetitions", 3, "comparisons of each model")
    program.choose("--loads", LOADS, (QUIET, BUSY))
    sys.exit(program.run(measure))
