"""The README of the folder of a shared model; the terminal shows its sentences, too."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_modelperf.baselines.records import FIDELITY, FIDELITY_CONFIDENCE
from pytest_modelperf.comparing.engine_change import requirement_of
from pytest_modelperf.graph.weights.run_plan import (
    MODEL_FILE,
    PLAN_FILE,
    PROGRAM_FILE,
    WEIGHTS_FILE,
)
from pytest_modelperf.profiler.doctor.report import describe_checkup
from pytest_modelperf.profiler.shown.conditions import describe_engine, describe_machine_line
from pytest_modelperf.report.markdown import code, escape_markdown, markdown_table
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.sharing.records import DOCUMENT_FILE, Likeness, Likening, Share
from pytest_modelperf.stats.records import Latency, Ratio
from pytest_modelperf.text.units import format_bytes, format_ms, format_shape
from pytest_modelperf.text.version import __version__, page_url
from pytest_modelperf.text.words import count_of

_WITHIN = f"{100 * FIDELITY:g} %"


def describe_likeness(likening: Likening) -> str:
    """Return a sentence on whether the shared model runs like the original one."""
    ratio = describe_ratio(likening.ratio)
    found = likening.likeness
    if found is Likeness.SAME:
        return f"The shared model runs like the original one: it takes {ratio}."
    if found is Likeness.OTHER_PLAN:
        return (
            "The shared model does not run like the original one: the engine makes another plan of "
            f"it, for {likening.difference}. It takes {ratio}."
        )
    if found is Likeness.OTHER_TIME:
        return (
            "The shared model does not run like the original one: it takes "
            f"{ratio}, which is more than {_WITHIN} away."
        )
    return (
        f"It is not shown that the shared model takes as long as the original one within {_WITHIN}:"
        f" it takes {ratio}."
    )


def describe_plan(likening: Likening) -> str:
    """Return a sentence about the plans of the engine."""
    if likening.has_same_plan is None:
        return "The engine reports no plan, so only the times are compared."
    if likening.has_same_plan:
        return "The engine makes the same plan of both: the same kernels, connected alike."
    return f"The engine makes another plan of the shared model: {likening.difference}."


def describe_ratio(ratio: Ratio) -> str:
    """Describe a ratio: `1.003 times as long (0.995 to 1.011)`."""
    shown = f"{ratio.value:.3f} times as long"
    if ratio.low is None or ratio.high is None:
        return shown
    return f"{shown} ({ratio.low:.3f} to {ratio.high:.3f})"


def times_table(likening: Likening, title: str, heading: str) -> Table:
    """Return a table of both models' medians with their intervals."""
    rows = (("original", _median(likening.original)), ("shared", _median(likening.shared)))
    return Table(title, (Column("model", is_text=True), Column(heading)), rows)


def describe_size(share: Share) -> str:
    """Describe the sizes of the case: `batch size 1, 2 cores, seq 64`."""
    case = share.case
    sizes = [f"{name} {size}" for name, size in case.sizes.items()]
    return ", ".join([f"batch size {case.batch_size}", count_of(case.cores, "core"), *sizes])


def describe_method(likening: Likening) -> str:
    return (
        f"Both ran in turn in {count_of(likening.rounds, 'round')}; intervals hold with "
        f"{100 * FIDELITY_CONFIDENCE:g} % confidence."
    )


def _median(latency: Latency) -> str:
    median = latency.percentile(50.0)
    shown = f"{format_ms(latency.median_ns)} ms"
    if median.low_ns is None or median.high_ns is None:
        return shown
    return f"{shown} ({format_ms(median.low_ns)} to {format_ms(median.high_ns)} ms)"


# -- the README of the folder of a shared model


def render_readme(share: Share) -> str:
    """Return the README as Markdown."""
    return "\n\n".join(_blocks(share)) + "\n"


def _blocks(share: Share) -> Iterator[str]:
    engine = share.checkup.engine
    name = "" if share.model is None else f": {code(share.model)}"
    yield f"# A model without its weights{name}"
    yield _introduction(share)
    yield "## Run it"
    installed = requirement_of(engine.name, f"{engine.version}")
    yield f"```\npip install numpy {installed}\npython {PROGRAM_FILE}\n```"
    yield (
        f"The first run draws the weights, {format_bytes(share.weight_bytes)}, into "
        f"`{WEIGHTS_FILE}`: the same ones for every user. Then it prints the median time of an "
        f"inference. `python {PROGRAM_FILE} 60` takes a minute in place of 10 seconds."
    )
    yield "## Does it run like the original model?"
    yield escape_markdown(describe_likeness(share.likening))
    yield escape_markdown(describe_plan(share.likening))
    yield markdown_table(times_table(share.likening, "", "median of an inference"))
    yield escape_markdown(describe_method(share.likening))
    if share.doubts:
        yield "On another machine or engine these may change its time:"
        yield "\n".join(f"- {escape_markdown(doubt)}" for doubt in share.doubts)
    yield "## Where it was measured"
    yield "\n".join(f"- {escape_markdown(line)}" for line in _conditions(share))
    yield "## Inputs"
    yield _inputs(share)
    yield "## Files"
    yield _files()


def _introduction(share: Share) -> str:
    names = " Tensors, nodes and dimensions have numbers in place of their names." * (
        share.is_anonymous
    )
    by = "" if not share.producer else f", exported by {escape_markdown(share.producer)}"
    opsets = ", ".join(f"{name} {version}" for name, version in share.opsets.items())
    return (
        f"`{MODEL_FILE}` is an ONNX model of {share.nodes:,} nodes{by} with the opsets "
        f"{escape_markdown(opsets)}. Its weights were left out: `{PROGRAM_FILE}` draws others that "
        "have the same shapes and types, and about the same mean, deviation and share of zeros. "
        f"Its outputs are of no use, but it takes as long.{names} "
        f"[pytest-modelperf]({page_url('sharing')}) {__version__} made it."
    )


def _conditions(share: Share) -> Iterator[str]:
    yield describe_size(share)
    yield describe_engine(share.checkup.engine)
    python = share.checkup.engine.python
    if python is not None:
        yield f"Python {python}"
    yield describe_machine_line(share.machine)
    yield (
        f"modelperf doctor, on {describe_checkup(share.checkup)}. A model that ran against itself "
        f"took {share.checkup.ratio.value:.3f} times as long"
    )


def _inputs(share: Share) -> str:
    table = Table(
        "",
        (Column("input", is_text=True), Column("type", is_text=True), Column("shape")),
        tuple(
            (each.name, each.dtype, format_shape(each.shape) if each.shape else "one number")
            for each in share.inputs
        ),
    )
    return markdown_table(table)


def _files() -> str:
    files = {
        MODEL_FILE: "the model, whose weights are expected next to it",
        PROGRAM_FILE: "the program that draws them and runs the model",
        PLAN_FILE: "what that program reads: the settings of the session, and a note on each "
        "weight and input",
        DOCUMENT_FILE: "the figures of this page as JSON",
    }
    return "\n".join(f"- `{name}` is {what}." for name, what in files.items())
