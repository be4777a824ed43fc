"""Make and measure variants of a model: pruned, narrowed, quantized, or in another precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.figures import describe_outputs, format_figure
from pytest_modelperf.comparing.gates import RUN_LEVEL, Gate, latency_metrics, median_gate
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.output_changes import compare_outputs, judge_outputs
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import (
    BindingError,
    ChangedModelError,
    MeasureError,
    ModelError,
    UsageError,
)
from pytest_modelperf.graph.binding import Binding, InputSpec
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.inputs.made import Feed, input_types, make_inputs
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.profiler.model_in_worker import CasePlace, Watch, start_on, variant_options
from pytest_modelperf.profiler.pairs.run import PairRun, Wanted, run_pair
from pytest_modelperf.profiler.prepare import Model, Pair, PreparedModel, prepare
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.endings import writing_for_worker
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.stats.decisions import share_level
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of
from pytest_modelperf.whatif.narrowing import write_narrowed
from pytest_modelperf.whatif.pruned import write_pruned, write_stored
from pytest_modelperf.whatif.quantizing import QuantizationForm, Quantizer
from pytest_modelperf.whatif.records import (
    FAITHFUL,
    Level,
    Variant,
    VariantKind,
    WhatIf,
    WhatIfCase,
)
from pytest_modelperf.whatif.speedups import (
    VariantResult,
    describe_precisions,
    describe_waiting,
    describe_zeros,
    make_levels,
)

# A variant whose time differs by less counts as equal, and gets no more rounds.
_NO_DIFFERENCE = 0.03
_MEDIAN = 50.0
# The number of inputs, each from its own seed, that calibrate a static quantization.
_CALIBRATIONS = 8
# Variants with other weights, and therefore with their own file.
_REWRITTEN = frozenset({VariantKind.PRUNED, VariantKind.NARROWED, VariantKind.QUANTIZED})
# The errors that end one variant, such as a precision that this machine lacks. A missing engine
# ends the whole command.
_FAILURES = (BindingError, MeasureError, ModelError, UsageError)


def variants_gate(variants: int, max_seconds: float) -> Gate:
    """Return the gate for each of this many pairs of a variant and a case."""
    # The interval alone decides whether a variant is called faster, however its duet ended. So both
    # answers of a duet together have its share of the level.
    return median_gate(_NO_DIFFERENCE, share_level(2 * variants, RUN_LEVEL), max_seconds)


class _Original(Struct, frozen=True):
    """The unchanged model, with a file of all its weights if a quantizer may need it."""

    model: PreparedModel
    size_bytes: int
    zeros: float | None = None
    stored: Path | None = None
    notes: tuple[str, ...] = ()


class _RunnableVariant(Struct, frozen=True):
    model: PreparedModel
    options: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int | None = None
    zeros: float | None = None
    notes: tuple[str, ...] = ()


class VariantTrial(Struct):
    """All variants at all cases, run one after the other."""

    setup: Setup
    gate: Gate
    variants: tuple[Variant, ...]
    estimates: tuple[float, ...]
    total: int
    watch: Watch
    quantizer: Quantizer
    done: int = 0

    def cases_of(self, model: Model) -> Iterator[WhatIfCase]:
        """Yield the cases of a model at one set of dimensions, for every number of cores."""
        cases = [model.case(cores) for cores in model.request.cores]
        results: dict[str, list[VariantResult]] = {case.id: [] for case in cases}
        with working_folder("whatif") as folder:
            try:
                base = self._base(model, folder, cases[0])
            except ChangedModelError as error:
                if not self.done:
                    raise
                # The earlier cases were measured before the model changed.
                yield from self._unmade(model, cases, error.worded(self.setup.wording))
                return
            for variant in self.variants:
                with working_folder("variant", folder) as own:
                    for case, each in self._try(variant, base, own, cases):
                        results[case.id].append(each)
        for case in cases:
            yield self._sum_up(case, base, results[case.id])

    def _unmade(self, model: Model, cases: Sequence[Case], failure: str) -> Iterator[WhatIfCase]:
        self.done += len(cases) * len(self.variants)
        results = [VariantResult(variant=each, failure=failure) for each in self.variants]
        for case in cases:
            unmeasured = CaseProfile(case, model.static, None, Outcome.FAILED, failure)
            found = make_levels(unmeasured, None, None, results, self.estimates)
            yield WhatIfCase(case=case, baseline=found.baseline, levels=found.levels)

    def _base(self, model: Model, folder: Path, case: Case) -> _Original:
        """Return the unchanged model, with stored weights if its graph generates them."""
        size = model.file.total_bytes
        if not any(variant.kind in _REWRITTEN for variant in self.variants):
            return _Original(prepare(model), size)
        self._place(case, None).tell("storing its weights")
        path = folder / "stored.onnx"
        with writing_for_worker("as its weights were stored"):
            zeros, generated = _store(model, path)
        # An engine computes generated weights when it loads the model, and may simplify equal ones.
        # A variant stores its weights, so a comparison with generated ones would measure more than
        # the variant.
        if not generated:
            return _Original(prepare(model), size, zeros, path)
        are = "weight is made by a node" if generated == 1 else "weights are made by nodes"
        note = (
            f"{generated} {are}: random numbers are stored instead, also in the model itself, so "
            "that an engine treats both alike"
        )
        return _Original(_reopened(model, path), _size_of(folder), zeros, path, (note,))

    def _try(
        self, variant: Variant, base: _Original, folder: Path, cases: Sequence[Case]
    ) -> Iterator[tuple[Case, VariantResult]]:
        try:
            made: _RunnableVariant | None = self._make(variant, base, folder, cases[0])
            failure = None
        except _FAILURES as error:
            made, failure = None, error.worded(self.setup.wording)
        for case in cases:
            self.done += 1
            if made is None:
                yield case, VariantResult(variant=variant, failure=failure)
            else:
                yield case, self._measure(variant, base, made, case)

    def _make(
        self, variant: Variant, base: _Original, folder: Path, case: Case
    ) -> _RunnableVariant:
        self._place(case, variant, is_next=True).tell("making it")
        path = folder / f"{variant.id}.onnx"
        with writing_for_worker("as the variant was written"):
            made = _MAKERS[variant.kind](self, variant, base, path)
        if made.model is base.model:
            return replace(made, size_bytes=base.size_bytes, zeros=base.zeros)
        return replace(made, size_bytes=_size_of(folder))

    def engine_options(self, kind: str, value: str | float) -> Mapping[str, str] | None:
        """Return the engine options for a kind of variant, or None if the engine has none."""
        with start_on(self.setup, 1) as worker:
            return variant_options(worker, self.setup, kind, value)

    def _measure(
        self, variant: Variant, base: _Original, made: _RunnableVariant, case: Case
    ) -> VariantResult:
        setup = replace(self.setup, options={**self.setup.options, **made.options})
        pair = Pair(base.model, made.model, self.setup, setup)
        place = self._place(case, variant)
        try:
            ran = run_pair(pair, self.gate, place, Wanted(lambda _: True, undisturbed=True))
        except MeasureError as error:
            return VariantResult(variant=variant, failure=error.worded(self.setup.wording))
        return self._result(variant, made, ran)

    def _result(self, variant: Variant, made: _RunnableVariant, ran: PairRun) -> VariantResult:
        metric = next(
            metric
            for metric in latency_metrics(ran.rounds, self.gate)
            if metric.name == f"latency_p{_MEDIAN:g}"
        )
        before, after = ran.before, ran.after
        outputs: tuple[OutputChange, ...] = ()
        if variant.kind in FAITHFUL and before.outputs is not None and after.outputs is not None:
            outputs = compare_outputs(before.outputs, after.outputs)
        known = () if before.profile.measured is None else before.profile.measured.notes
        own = () if after.profile.measured is None else after.profile.measured.notes
        low, high = metric.interval or (None, None)
        return VariantResult(
            variant=variant,
            before=before.profile,
            after=after.profile,
            ratio=None if metric.ratio is None else Ratio(metric.ratio, low, high),
            size_bytes=made.size_bytes,
            zeros=made.zeros,
            outputs=outputs,
            rounds=len(ran.rounds),
            notes=(*made.notes, *(note for note in own if note not in known)),
            failure=None if metric.ratio is not None else "too few inferences to tell its median",
        )

    def _place(self, case: Case, variant: Variant | None, *, is_next: bool = False) -> CasePlace:
        def watch(progress: Progress) -> None:
            before = "" if variant is None else f"{variant.title}, "
            self.watch(replace(progress, case_id=f"{before}{progress.case_id}"))

        number = min(self.done + (is_next or variant is None), self.total)
        return CasePlace(case, number, self.total, watch)

    def _sum_up(self, case: Case, base: _Original, results: Sequence[VariantResult]) -> WhatIfCase:
        reason = next((each.failure for each in results if each.failure), "")
        unmeasured = CaseProfile(case, base.model.static, None, Outcome.FAILED, reason)
        found = make_levels(unmeasured, base.size_bytes, base.zeros, results, self.estimates)
        measured = found.baseline.measured
        notes = [*base.notes, *found.baseline.static.notes]
        if measured is not None:
            waited = describe_waiting(found.baseline)
            notes += [waited] if waited is not None else []
            notes += measured.notes
            zeros = describe_zeros(found.levels, measured.engine)
            notes += [zeros] if zeros is not None else []
            notes += describe_precisions(results)
        said = tuple(dict.fromkeys(notes))
        return WhatIfCase(case=case, baseline=found.baseline, levels=found.levels, notes=said)


def _store(model: Model, path: Path) -> tuple[float | None, int]:
    try:
        stored = write_pruned(model.bound, path, 0.0)
    except ModelError:
        # A model without prunable weights can still be quantized.
        return None, write_stored(model.bound, path)
    return _share(stored.zeros, stored.elements), stored.generated


def _prune(trial: VariantTrial, variant: Variant, base: _Original, path: Path) -> _RunnableVariant:
    pruned = write_pruned(base.model.bound, path, variant.level or 0.0)
    notes = []
    if pruned.skipped:
        first = pruned.skipped[0]
        count = f"{len(pruned.skipped)} weight{'s were' if len(pruned.skipped) > 1 else ' was'}"
        notes.append(f"{count} not pruned, such as {printable(first.weight)}: {first.reason}")
    zeros = _share(pruned.zeros, pruned.elements)
    options = trial.engine_options("sparsity", zeros or 0.0) or {}
    if options:
        notes.append(f"run with {_listed(options)}")
    return _RunnableVariant(_reopened(base.model, path), options, None, zeros, tuple(notes))


def _narrow(_: VariantTrial, variant: Variant, base: _Original, path: Path) -> _RunnableVariant:
    narrowed = write_narrowed(base.model.bound, path, variant.level or 0.0)
    channels = f"{narrowed.channels_after} of {narrowed.channels_before} channels are left"
    notes = [f"{channels}, {count_of(narrowed.layers, 'layer')} smaller"]
    if narrowed.kept:
        first = narrowed.kept[0]
        more = f"{len(narrowed.kept)} layer{'s keep' if len(narrowed.kept) > 1 else ' keeps'}"
        notes.append(f"{more} all channels, such as {printable(first.name)}: {first.reason}")
    return _RunnableVariant(_reopened(base.model, path), notes=tuple(notes))


def _quantize(
    trial: VariantTrial, variant: Variant, base: _Original, path: Path
) -> _RunnableVariant:
    assert base.stored is not None, "it is stored for every rewritten variant"  # noqa: S101  # for mypy
    form: QuantizationForm = "static" if variant.form == "static" else "dynamic"
    feeds = _calibrations(base.model)
    notes = trial.quantizer(base.stored, path, form, feeds, trial.setup.limit_s)
    return _RunnableVariant(_reopened(base.model, path), notes=notes)


def _change_precision(
    trial: VariantTrial, variant: Variant, base: _Original, _: Path
) -> _RunnableVariant:
    options = trial.engine_options("precision", variant.form)
    if options is None:
        raise MeasureError(
            f"{trial.setup.engine.name} has no option for a precision other than that of the "
            "stored model. Give another --engine, such as openvino."
        )
    return _RunnableVariant(base.model, options, notes=(f"run with {_listed(options)}",))


_Maker: TypeAlias = Callable[[VariantTrial, Variant, _Original, Path], _RunnableVariant]
_MAKERS: Mapping[VariantKind, _Maker] = {
    VariantKind.PRUNED: _prune,
    VariantKind.NARROWED: _narrow,
    VariantKind.QUANTIZED: _quantize,
    VariantKind.PRECISION: _change_precision,
}


def _reopened(model: Model, path: Path) -> PreparedModel:
    bound = model.bound
    types = input_types(bound.graph, bound.inputs, model.file.name)
    specs = {name: InputSpec(name, dtype, shape) for name, (dtype, shape) in types.items()}
    binding = Binding(inputs=tuple({**specs, **bound.inputs.values}.values()))
    return prepare(Model.bind_whole(open_model(path), binding, model.request, model.extensions))


def _calibrations(model: Model) -> Iterator[Mapping[str, Feed]]:
    """Yield inputs for a calibration. Given ones stay the same, others differ each time."""
    bound, request = model.bound, model.request
    given = request.given
    made = {} if given is None else given.feeds(bound.graph, bound.inputs, model.file.name)
    for index in range(_CALIBRATIONS):
        seed = request.seed + index
        yield make_inputs(bound.graph, bound.inputs, seed, made, model.file.name)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _size_of(folder: Path) -> int:
    """Return the size of all files in a folder, because a model may have external data."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _listed(options: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in options.items())


# -- the outputs of variants judged by a tolerance


def with_outputs_judged(whatif: WhatIf, allowed: float) -> WhatIf:
    """Return the what-if with a verdict on the outputs of each variant that should keep them."""

    def judged(level: Level) -> Level:
        is_faithful = level.variant is not None and level.variant.kind in FAITHFUL
        if not is_faithful or level.ms is None:
            return level
        return replace(level, judged_outputs=judge_outputs(level.outputs, allowed))

    cases = tuple(replace(case, levels=tuple(map(judged, case.levels))) for case in whatif.cases)
    return replace(whatif, cases=cases, outputs_tolerance=allowed)


def judged_lines(case: WhatIfCase) -> Iterator[str]:
    """Yield a line for each level whose outputs differ too much or could not be compared."""
    for level in case.levels:
        metric = level.judged_outputs
        if metric is None or metric.verdict is Verdict.PASSED:
            continue
        text = describe_outputs(metric)
        if metric.verdict is Verdict.INCONCLUSIVE:
            allowed = format_figure(OUTPUTS, metric.allowed)
            text = f"outputs could not be compared, allowed {allowed}"
        yield f"{level.title}: {text}"
