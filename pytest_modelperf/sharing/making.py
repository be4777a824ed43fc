"""Make a model without its weights, compare it with the original, write its README, report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.recording import FidelityGate
from pytest_modelperf.baselines.records import FIDELITY, FIDELITY_CONFIDENCE
from pytest_modelperf.comparing.since_recorded import requirement_of
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import write_folder
from pytest_modelperf.graph.copies import as_it_runs
from pytest_modelperf.graph.data_dependence import find_data_dependence
from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.graph.stored_tensors import walk_nodes
from pytest_modelperf.graph.weightless import (
    Weightless,
    leave_weights_out,
    make_anonymous,
    write_weightless,
)
from pytest_modelperf.graph.weights.run_plan import (
    MODEL_FILE,
    PLAN_FILE,
    PROGRAM_FILE,
    WEIGHTS_FILE,
    DrawnInput,
    RunModel,
    RunPlan,
    describe_input,
    draw_inputs,
    draw_weights,
    write_run,
)
from pytest_modelperf.profiler.doctor.checkup import check_machine
from pytest_modelperf.profiler.doctor.records import Checkup
from pytest_modelperf.profiler.doctor.report import describe_checkup
from pytest_modelperf.profiler.engines.session_facts import session_attributes
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.given import read_given
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.model_in_worker import CasePlace, Watch
from pytest_modelperf.profiler.pairs.run import TwinRun, run_twin
from pytest_modelperf.profiler.prepare import Model, Pair, PreparedModel, prepare
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.shown.facts import describe_engine, describe_machine_line
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.report.markdown import code, escape_markdown, markdown_table
from pytest_modelperf.report.model import Line, Paragraph, Report, Rows, Tone, lines_of
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.sharing.records import (
    DOCUMENT_FILE,
    SHARE,
    Likeness,
    Likening,
    Share,
    SharedInput,
)
from pytest_modelperf.stats.estimates import duet_ratio, summarize
from pytest_modelperf.stats.records import Latency, Ratio
from pytest_modelperf.text.units import format_bytes, format_ms, format_shape
from pytest_modelperf.text.version import __version__, page_url
from pytest_modelperf.text.words import count_of

_WITHIN = f"{100 * FIDELITY:g} %"


def describe_likeness(likening: Likening) -> str:
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
        f"Whether the shared model takes as long as the original one within {_WITHIN} is not "
        f"decided: it takes {ratio}."
    )


def describe_plan(likening: Likening) -> str:
    if likening.has_same_plan is None:
        return "The engine reports no plan, so only the times are compared."
    if likening.has_same_plan:
        return "The engine makes the same plan of both: the same kernels, connected alike."
    return f"The engine makes another plan of the shared model: {likening.difference}."


def describe_ratio(ratio: Ratio) -> str:
    """Describe a ratio: `1.003 times as long (0.995 … 1.011)`."""
    shown = f"{ratio.value:.3f} times as long"
    if ratio.low is None or ratio.high is None:
        return shown
    return f"{shown} ({ratio.low:.3f} … {ratio.high:.3f})"


def times_table(likening: Likening, title: str, heading: str) -> Table:
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
    return f"{shown} ({format_ms(median.low_ns)} … {format_ms(median.high_ns)} ms)"


# -- the README of the folder of a shared model


def render_readme(share: Share) -> str:
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


# This is enough to see how noisy a machine is.
_CHECKUP_SECONDS = 10.0
_PROVIDER, _CUSTOM_OPS = "provider", "custom_ops"


def share_model(  # noqa: PLR0913  # the request, whether names stay, and a watcher
    source: ModelSource,
    request: ProfileRequest,
    setup: Setup,
    *,
    is_anonymous: bool = False,
    extensions: Extensions | None = None,
    watch: Watch = lambda _: None,
) -> Share:
    """Make a model without its weights, and test whether it runs like the original one."""
    require_shareable(setup)
    extensions = extensions or Extensions()
    model = prepare(Model.load(source, request, extensions))
    (cores,) = request.cores
    place = CasePlace(model.case(cores), 1, 1, watch)
    place.tell("leaving the weights out")
    made = _make(model, is_anonymous=is_anonymous)
    checkup = _check_machine(setup, cores, watch)
    plan = _plan(made, checkup, cores)
    with working_folder("share") as folder:
        place.tell("drawing other weights")
        write_weightless(made.shared, folder / MODEL_FILE)
        write_run(plan, folder)
        draw_weights(plan.models[0], folder)
        drawn_inputs = read_given(draw_inputs(plan.models[0]))
        own = replace(request, inputs=(), dims={}, given=drawn_inputs, batch_sizes=(None,))
        drawn = prepare(Model.load(folder / MODEL_FILE, own, extensions))
        place.tell("comparing the shared model with the original one")
        ran = run_twin(Pair(model, drawn, setup, setup), FidelityGate(), place, trusts_plans=False)
        files = {
            name: (folder / name).read_bytes() for name in (MODEL_FILE, PROGRAM_FILE, PLAN_FILE)
        }
    file = model.file
    return Share(
        model=None if is_anonymous else file.name,
        producer=None if is_anonymous else file.producer,
        opsets={each.domain or "ai.onnx": each.version for each in made.shared.proto.opset_import},
        nodes=sum(1 for _ in walk_nodes(made.shared.proto)),
        original_bytes=model.size_bytes,
        weight_bytes=made.shared.weight_bytes,
        case=_renamed_case(place, made.dims),
        inputs=made.listed,
        machine=describe_machine(),
        checkup=checkup,
        likening=_liken(ran, model.bound.inputs.batch_size, is_anonymous=is_anonymous),
        doubts=tuple(_find_doubts(model, made.shared, is_anonymous=is_anonymous)),
        files=files,
    )


def require_shareable(setup: Setup) -> None:
    """Raise UsageError for an engine or option that the program of a folder does not support."""
    if setup.engine.name != DEFAULT_ENGINE:
        raise UsageError(
            f"the program of a shared folder runs {DEFAULT_ENGINE}, not {setup.engine.name}: leave "
            "out --engine."
        )
    for name in setup.options:
        if name == _CUSTOM_OPS or name.startswith(f"{_PROVIDER}."):
            raise UsageError(
                f"the option {name} names something of this machine, which a folder for others "
                "cannot hold: leave it out."
            )


class _Made(Struct, frozen=True, eq=False):
    """The model without its weights, and its inputs under their names in it."""

    shared: Weightless
    inputs: tuple[DrawnInput, ...]
    listed: tuple[SharedInput, ...]
    dims: Mapping[str, str] | None


def _make(model: PreparedModel, *, is_anonymous: bool) -> _Made:
    file = model.file
    if model.runs_as_copy:
        file = replace(file, proto=as_it_runs(model.bound))
    shared = leave_weights_out(file)
    values: Mapping[str, str] = {}
    dims: Mapping[str, str] | None = None
    if is_anonymous:
        renamed = make_anonymous(shared.proto)
        shared = replace(shared, proto=renamed.proto, name=MODEL_FILE)
        values, dims = renamed.values, renamed.dims
    inputs, listed = [], []
    for stream, (name, feed) in enumerate(model.feeds.items(), len(shared.weights) + 1):
        own = values.get(name, name)
        inputs.append(
            describe_input(own, feed.dtype, feed.array, stream, shared.texts, shared.name)
        )
        listed.append(SharedInput(name=own, dtype=feed.dtype, shape=inputs[-1].shape))
    return _Made(shared, tuple(inputs), tuple(listed), dims)


def _check_machine(setup: Setup, cores: int, watch: Watch) -> Checkup:
    policy = replace(
        DUET_POLICY,
        max_seconds=min(_CHECKUP_SECONDS, setup.policy.max_seconds),
        min_warmup_seconds=setup.policy.min_warmup_seconds,
    )
    request = ProfileRequest(cores=(cores,))
    (checkup,) = check_machine(replace(setup, policy=policy), None, request, watch=watch)
    return checkup


def _plan(made: _Made, checkup: Checkup, cores: int) -> RunPlan:
    session = session_attributes(checkup.engine.options)
    run = RunModel(
        file=MODEL_FILE,
        weights_file=made.shared.weights_file,
        weights=made.shared.weights,
        inputs=made.inputs,
    )
    return RunPlan(
        cores=cores,
        providers=checkup.engine.providers,
        options=session.options,
        config=session.config,
        models=(run,),
    )


def _renamed_case(place: CasePlace, dims: Mapping[str, str] | None) -> Case:
    case = place.case
    if dims is None:
        return case
    # A given dimension without a name in the model has no new name either.
    given = tuple((dims[name], size) for name, size in case.given_dims or () if name in dims)
    return replace(case, dims=(), given_dims=given)


def _liken(ran: TwinRun, batch_size: int, *, is_anonymous: bool) -> Likening:
    pairs = [(each.before.block, each.after.block) for each in ran.rounds]
    original, shared = (
        summarize([block.times_ns for block in blocks], batch_size)
        for blocks in zip(*pairs, strict=True)
    )
    difference = ran.difference
    if difference is not None and is_anonymous and "'" in difference:
        # The difference contains the name of a kernel, which is not for publication.
        difference = "one of its kernels works on other tensors or in another way"
    return Likening(
        original=original,
        shared=shared,
        ratio=duet_ratio(pairs, FIDELITY_CONFIDENCE),
        rounds=len(pairs),
        has_same_plan=difference is None if ran.knows_plans else None,
        difference=difference,
    )


def _find_doubts(model: PreparedModel, shared: Weightless, *, is_anonymous: bool) -> Iterator[str]:
    by_data = find_data_dependence(model.bound.graph, inputs_are_data=True)
    if by_data is not None and by_data.is_unknown:
        yield str(by_data)
    elif by_data is not None:
        yield (
            f"the work of {by_data.op_type} depends on the numbers that reach it, and other "
            "weights and inputs give other numbers"
        )
    yield from shared.doubts
    for feed in model.feeds.values():
        if feed.note is not None:
            yield "an input decides how much is computed" if is_anonymous else feed.note


# -- the files of the folder of a shared model


README_FILE = "README.md"
# The files that are written into a folder, or removed from it.
REPLACED_FILES = (
    README_FILE, MODEL_FILE, PROGRAM_FILE, PLAN_FILE, DOCUMENT_FILE, WEIGHTS_FILE,
)  # fmt: skip


def files_of(share: Share) -> Mapping[str, bytes]:
    return {
        README_FILE: render_readme(share).encode(),
        **share.files,
        DOCUMENT_FILE: SHARE.dump(share).encode(),
    }


def write_share(share: Share, target: str) -> None:
    """Write the folder or the archive, and remove weights drawn for an earlier model."""
    write_folder(files_of(share), target, stale=(WEIGHTS_FILE,))


# -- a share as a report


def share_report(share: Share, target: str) -> Report:
    likening = share.likening
    files = files_of(share)
    sizes = ", ".join(f"{name} {format_bytes(len(data))}" for name, data in files.items())
    weights = (
        f"The weights that its program draws take {format_bytes(share.weight_bytes)}. Read the "
        "files before you publish them."
    )
    return Report(
        title="A model without its weights",
        subject=describe_likeness(likening),
        tone=Tone.GOOD if likening.likeness is Likeness.SAME else Tone.UNSURE,
        opening=(Line(text=describe_plan(likening)),),
        blocks=(
            Rows(times_table(likening, describe_size(share), "median")),
            Paragraph(
                (
                    Line(text=describe_method(likening)),
                    Line(text=describe_machine_line(share.machine)),
                    Line(text=describe_engine(share.checkup.engine)),
                    Line(word="doctor", text=describe_checkup(share.checkup)),
                    *lines_of(share.doubts, "note"),
                )
            ),
            Paragraph((Line(text=f"{target}: {sizes}", is_bold=True), Line(text=weights))),
        ),
    )
