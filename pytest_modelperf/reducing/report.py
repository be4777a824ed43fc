"""A reduction as text: the README of the pair, `repro.py`, and the report."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from pytest_modelperf.comparing.figures import (
    describe_change,
    format_change,
    format_figure,
    interval_clause,
)
from pytest_modelperf.comparing.findings import describe_doubt
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.shown.facts import describe_machine_line, run_table
from pytest_modelperf.reducing.records import ReduceStep, Reduction, StepAnswer, UnitKernels
from pytest_modelperf.report.markdown import escape_markdown, markdown_table
from pytest_modelperf.report.model import Line, Paragraph, Report, Rows, Section, Tone, lines_of
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.units import (
    format_bytes,
    format_confidence,
    format_ms,
    format_seconds,
    percent,
)
from pytest_modelperf.text.words import count_of

# At most this many kernels and parts are listed.
_MOST_LISTED = 20
_PACKAGE = "onnxruntime"


def write_readme(found: Reduction, machine: MachineFacts) -> str:
    blocks = [
        *_head(found),
        "## The measurements",
        markdown_table(_measured(found)),
        _how(found),
        "## Which kernels",
        *_kernels(found),
        "## The files",
        *_files(found),
        "## Versions and machine",
        *_versions(found, machine),
    ]
    return "\n\n".join(blocks) + "\n"


def _head(found: Reduction) -> Iterator[str]:
    names = describe_kernels(found.kept)
    yield f"# A slowdown: {escape_markdown(names)}"
    written = found.written
    if written is not None and written.metric.ratio is not None:
        yield (
            f"`after.onnx` takes {written.metric.ratio:.3g} times as long as `before.onnx` where "
            "this was written. To see it, type"
        )
    yield "\n".join(["```", *_commands(found), "```"])
    yield "The last line that is printed has both times, in milliseconds, and their ratio."


def _commands(found: Reduction) -> Iterator[str]:
    old, new = map(requirement_of, found.engines or (None, None))
    if not found.is_upgrade:
        yield f"pip install numpy {new}"
        yield "python repro.py"
        return
    for folder, package in (("old", old), ("new", new)):
        yield f"python -m venv {folder} && {folder}/bin/pip install numpy {package}"
    yield "new/bin/python repro.py old/bin/python"


def requirement_of(engine: EngineFacts | None) -> str:
    """Return what pip installs: `onnxruntime==1.31.1`."""
    version = None if engine is None else engine.version
    return _PACKAGE if version is None else f"{_PACKAGE}=={version}"


def describe_kernels(units: tuple[UnitKernels, ...]) -> str:
    """Describe units: `1 Conv changed; 1 Relu became 3 kernels (Abs, Add, Mul)`."""
    counts = Counter(unit.text for unit in units)
    return "; ".join(text if n == 1 else f"{n} times {text}" for text, n in counts.items())


def _measured(found: Reduction) -> Table:
    kept = None if found.search is None else found.search.shown_by
    rows = [
        (
            "these files, with drawn weights",
            None if found.written is None else found.written.metric,
        ),
        ("the same kernels, with their weights", None if kept is None else kept.metric),
        ("the whole models", found.whole),
    ]
    columns = ("what ran", "before", "after", "change", "interval", "confidence")
    return Table(
        "",
        tuple(Column(title, is_text=not place) for place, title in enumerate(columns)),
        tuple((name, *metric_cells(metric)) for name, metric in rows if metric is not None),
    )


def metric_cells(metric: Metric) -> tuple[str, str, str, str, str]:
    """Return both times, the change, its interval, and the confidence of the interval."""
    interval = ""
    if metric.interval is not None:
        interval = " … ".join(f"{100 * (bound - 1):+.1f}" for bound in metric.interval) + " %"
    confidence = "" if metric.confidence is None else format_confidence(metric.confidence)
    before, after = (format_figure(metric.name, each) for each in (metric.before, metric.after))
    return before, after, format_change(metric), interval, confidence


def _how(found: Reduction) -> str:
    steps = 0 if found.search is None else len(found.search.steps)
    how = (
        "in fresh processes for each round, some inferences of one after some of the other"
        if found.is_upgrade
        else "in one process, one inference of each in turn, in fresh sessions for each round"
    )
    return (
        f"Both sides ran {how}. The figures are medians of the rounds. The kernels were "
        f"found in {count_of(steps, 'such duet')}; the chance of any wrong answer "
        f"is at most {100 * found.level:g} %."
    )


def _kernels(found: Reduction) -> Iterator[str]:
    counts = found.kernels
    yield (
        f"{count_of(counts.before, 'kernel')} before and {counts.after:,} after. The times are of "
        "short profiles of the whole models, which only chose what was tried first."
    )
    yield "\n".join(_listed(found.kept))
    if found.search is not None and not found.search.is_smallest:
        yield "The time was over before it was known whether fewer kernels show it."
    parts = found.comparison.parts
    if parts:
        yield "All places in which the two models differ, as they were timed in place:"
        yield "\n".join(
            f"- {escape_markdown('; '.join(part.reasons))}: {describe_change(part.time)}"
            for part in parts[:_MOST_LISTED]
        )
    elif found.left_out:
        yield "Other kernels that took longer in the profiles:"
        yield "\n".join(_listed(found.left_out))


def _listed(units: tuple[UnitKernels, ...]) -> Iterator[str]:
    """Yield a line for each text, with the times of its units added up."""
    longer_ns: dict[str, list[float]] = {}
    for unit in units:
        longer_ns.setdefault(unit.text, []).append(unit.longer_ns)
    for text, times in islice(longer_ns.items(), _MOST_LISTED):
        places = f" at {len(times):,} places" if len(times) > 1 else ""
        sign = "+" if sum(times) > 0 else ""
        yield f"- {escape_markdown(text)}{places}: {sign}{format_ms(sum(times), 3)} ms"
    if len(longer_ns) > _MOST_LISTED:
        yield f"- and {len(longer_ns) - _MOST_LISTED:,} more"


def _files(found: Reduction) -> Iterator[str]:
    written = found.written
    sizes = () if written is None else tuple(map(format_bytes, written.sizes))
    yield (
        f"`before.onnx` and `after.onnx` ({' and '.join(sizes)}) are cut out of the optimized "
        "graphs that the engine made, so they hold its own kernels, which need not be operators of "
        "ONNX. They run with optimizations off, and some only on processors of this kind: the "
        "engine lays out tensors by the width of the vector instructions."
    )
    yield (
        "There are no trained weights in them. `run.py` draws others by the notes in `run.json`, "
        "the same ones for every user, and draws the inputs by what the kernels got in the whole "
        "model."
    )
    warnings = [] if written is None else list(written.warnings)
    if written is not None and not written.shows_slowdown:
        warnings.insert(0, "with drawn weights the slowdown was not shown again")
    if warnings:
        yield "The time may differ from the one with the trained weights:"
        yield "\n".join(f"- {escape_markdown(warning)}" for warning in warnings)


def _versions(found: Reduction, machine: MachineFacts) -> Iterator[str]:
    sides = ("before", "after") if found.is_upgrade else ("both",)
    lines = [
        f"- {side}: {escape_markdown(engine.label)}, Python {escape_markdown(engine.python or '?')}"
        for side, engine in zip(sides, found.engines or (), strict=False)
    ]
    yield "\n".join([*lines, f"- {escape_markdown(describe_machine_line(machine))}"])


# -- the text of `repro.py`


_LOAD = '''
FOLDER = Path(__file__).resolve().parent
PLAN = json.loads((FOLDER / "run.json").read_text(encoding="utf-8"))


def load(model):
    draw_weights(FOLDER, model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = PLAN["cores"]
    # Without optimizations: the models hold kernels that were optimized already.
    for name, value in PLAN["options"].items():
        setattr(options, name, type(getattr(options, name))(value))
    for name, value in PLAN["config"].items():
        options.add_session_config_entry(name, value)
    session = ort.InferenceSession(str(FOLDER / model["file"]), options, PLAN["providers"])
    feeds = {each["name"]: draw_input(each) for each in model["inputs"]}
    feeds = {name: ort.OrtValue.ortvalue_from_numpy(each) for name, each in feeds.items()}
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, value)
    outputs = [each.name for each in session.get_outputs()]

    def run(kept=feeds):  # The binding does not keep them.
        for name in outputs:
            binding.bind_output(name)
        session.run_with_iobinding(binding)

    return run


def medians(runs, seconds=0.5):
    """The median time of each, in milliseconds; they run in turn."""
    times = [[] for _ in runs]
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times[0]) < 5:
        for run, own in zip(runs, times):
            start = time.perf_counter()
            run()
            own.append(1000 * (time.perf_counter() - start))
    return [statistics.median(own) for own in times]

'''

_SHOWN = """before, after = (statistics.median(side) for side in zip(*rounds))
ratio = statistics.median(new / old for old, new in rounds)
print(f"before {before:.4g} ms, after {after:.4g} ms, ratio {ratio:.3f}")
"""

_IN_TURN = (
    '''"""Times before.onnx and after.onnx in turn, and prints both medians and their ratio.

Type `python repro.py`. It needs numpy and onnxruntime, and takes some five seconds.
"""

import json
import statistics
import time
from pathlib import Path

import onnxruntime as ort
from run import draw_input, draw_weights
'''
    + _LOAD
    + """
rounds = [medians([load(model) for model in PLAN["models"]]) for _ in range(9)]
"""
    + _SHOWN
)

_UPGRADE = (
    '''"""Times before.onnx in one Python and after.onnx in another, and prints the ratio.

Type `new/bin/python repro.py old/bin/python`. Both need numpy and onnxruntime. It takes some
twenty seconds.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import onnxruntime as ort
from run import draw_input, draw_weights
'''
    + _LOAD
    + '''
def ask(python, number):
    """The median of one model in a process of its own."""
    command = [python, __file__, "--time", str(number)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


if sys.argv[1:2] == ["--time"]:
    print(medians([load(PLAN["models"][int(sys.argv[2])])])[0])
    sys.exit()
rounds = [[ask(sys.argv[1], 0), ask(sys.executable, 1)] for _ in range(9)]
'''
    + _SHOWN
)


def write_repro(*, is_upgrade: bool) -> str:
    """Return the program for two models on one engine, or on two versions of it."""
    return _UPGRADE if is_upgrade else _IN_TURN


_LEGEND = f"{StepAnswer.OPEN.value}: not decided whether they are slower by more than the limit"
_TONES = {StepAnswer.SLOWER: Tone.BAD, StepAnswer.OPEN: Tone.UNSURE, StepAnswer.FAILED: Tone.BAD}


def reduction_report(
    found: Reduction, wording: Wording, target: str, made: dt.datetime | None = None
) -> Report:
    headline = _headline(found)
    title = f"{found.before} → {found.after} {found.comparison.id}"
    is_worse = found.verdict is Verdict.REGRESSED
    opening = list(lines_of(_answer(found, target, wording)))
    doubt = describe_doubt(found.comparison, wording)
    if found.verdict is Verdict.INCONCLUSIVE and doubt is not None:
        opening.append(Line(text=doubt, tone=Tone.UNSURE))
    return Report(
        title=title,
        subject=f"{found.before} -> {found.after} {found.comparison.id}: {headline}",
        headline=headline,
        tone=Tone.BAD if is_worse else Tone.PLAIN,
        opening=tuple(opening),
        blocks=tuple(_steps(found)),
        closing=lines_of(_notes(found), "note"),
        facts=(run_table([], [("took", format_seconds(found.seconds))], made),),
    )


def _headline(found: Reduction) -> str:
    whole = found.whole
    if whole is None:
        return "both sides are the same model on the same engine, so neither is slower"
    change = (
        f"{format_change(whole)}{interval_clause(whole)}, allowed {100 * found.tolerance:+.4g} %"
    )
    if found.verdict is Verdict.INCONCLUSIVE:
        return f"inconclusive: whether it is slower is not decided: {change}"
    if found.verdict is not Verdict.REGRESSED:
        return f"not slower: {change}"
    if found.written is None:
        return f"slower, but no part of it by itself: {change}"
    counts = found.kernels
    return (
        f"slower: {change}; reduced to {count_of(counts.before, 'kernel')} before and "
        f"{counts.after:,} after: {describe_kernels(found.kept)}"
    )


def _answer(found: Reduction, target: str, wording: Wording) -> Iterator[str]:
    whole, written = found.whole, found.written
    if found.verdict is not Verdict.REGRESSED:
        if whole and whole.detectable is not None and math.isfinite(whole.detectable):
            yield f"a slowdown of {percent(whole.detectable)} or more would have been seen"
        yield "no file was written"
        return
    if written is None:
        yield (
            "no file was written: give it more time with "
            f"{wording.names['max_seconds']}, or see modelperf compare --html"
        )
        return
    ratio = written.metric.ratio or 1.0
    before, after = metric_cells(written.metric)[:2]
    yield f"with drawn weights: {before} before, {after} after, {ratio:.3g} times as long"
    sizes = " and ".join(map(format_bytes, written.sizes))
    yield f"written: {target}, with models of {sizes}; its README.md says what to type"
    if not written.shows_slowdown:
        yield "the slowdown was not shown with drawn weights, so it may depend on the trained ones"


def _steps(found: Reduction) -> Iterator[Section]:
    if found.search is None:
        return
    columns = (
        Column("step"),
        Column("shown", is_text=True, least=10, is_verdict=True),
        Column("kernels"),
        Column("before"),
        Column("after"),
        Column("change"),
        Column("interval"),
        Column("limit"),
        Column("time"),
        Column("what", is_text=True, rank=1),
    )
    steps = found.search.steps
    rows = tuple(_row(number, step, found) for number, step in enumerate(steps, 1))
    tones = tuple(_TONES.get(step.shown, Tone.PLAIN) for step in steps)
    reasons = dict.fromkeys(step.reason for step in steps if step.reason is not None)
    is_open = any(step.shown is StepAnswer.OPEN for step in steps)
    table = Table("", columns, rows, caption=_LEGEND if is_open else "")
    unrun = lines_of(f"kernels that did not run by themselves: {text}" for text in reasons)
    yield Section(
        title="steps",
        is_titled=False,
        blocks=(Rows(table, tones), Paragraph(unrun)),
    )


def _row(number: int, step: ReduceStep, found: Reduction) -> tuple[str, ...]:
    units = tuple(found.units[index] for index in step.units)
    figures = ("", "", "", "")
    if step.metric is not None:
        figures = metric_cells(step.metric)[:4]
    return (
        str(number),
        step.shown.value,
        " -> ".join(
            str(sum(map(len, side)))
            for side in ([unit.before for unit in units], [unit.after for unit in units])
        ),
        *figures,
        f"{100 * step.allowed:+.1f} %",
        f"{step.seconds:.0f} s",
        describe_kernels(units),
    )


def _notes(found: Reduction) -> Iterator[str]:
    search, written = found.search, found.written
    if search is not None and search.kept and not search.is_smallest:
        yield "the time was over before it was known whether fewer kernels show it"
    if written is not None:
        yield from written.warnings
    if search is None:
        return
    yield (
        f"{count_of(len(search.steps) + 1, 'duet')} in {format_seconds(found.seconds)}; the chance "
        f"of any wrong answer is at most {100 * found.level:g} %"
    )
