"""The Python interface for notebooks and scripts: the commands as functions that return records.

    from pytest_modelperf.api import compare, profile

    profile("model.onnx", batch_size=[1, 8], cores=2)
    compare("old.onnx", "new.onnx", dims={"seq": 64}).verdict

The keyword arguments have the names of the settings of the fixture and of a model's table in
`pyproject.toml`, and each may have several values. A notebook shows a returned record as its
report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import check_static, read_share
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.report import comparison_report
from pytest_modelperf.comparing.request import CompareRequest
from pytest_modelperf.errors import ModelPerfError, UsageError, Wording
from pytest_modelperf.obtaining.origins import is_address
from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE, DEFAULT_ENGINE
from pytest_modelperf.profiler.hookspecs import Extensions, load_extensions
from pytest_modelperf.profiler.measured_cases import measure_function
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.model_request import MeasureRequest, ModelRun
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.request import profile_model
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.shown.report import profile_report
from pytest_modelperf.profiler.shown.tables.layer_columns import DEFAULT_COLUMNS, MEASURED_COLUMNS
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.report.notebook import Views, views_of
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings
from pytest_modelperf.spec.declaring import CASE_WORDS, MODEL_WORDS, as_written, read_spec
from pytest_modelperf.spec.kinds import read_default
from pytest_modelperf.spec.readers import (
    is_gateway,
    read_gateway,
    read_model,
    read_sizes,
    read_text,
)
from pytest_modelperf.spec.run_definitions import MAX_SECONDS, TIMEOUT, TOLERANCE
from pytest_modelperf.stats.records import rounds_within
from pytest_modelperf.sweep.records import Sweep
from pytest_modelperf.sweep.report import sweep_report
from pytest_modelperf.sweep.request import SWEEP_SECONDS, SweepRequest
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import as_float, shown
from pytest_modelperf.tracing import trace
from pytest_modelperf.tuning.records import Tuning, TuningLimits
from pytest_modelperf.tuning.report import tuning_report
from pytest_modelperf.tuning.request import TUNING_SECONDS, TuningRequest
from pytest_modelperf.tuning.tuned import OUTPUTS_TOLERANCE, TuningTerms
from pytest_modelperf.whatif.records import FORMS, Variant, VariantKind, WhatIf
from pytest_modelperf.whatif.report import WhatIfView, whatif_report
from pytest_modelperf.whatif.request import WhatIfRequest

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pytest_modelperf.graph.model_file import ModelSource
    from pytest_modelperf.spec.case_spec import TestedModel
    from pytest_modelperf.spec.case_words import CaseWords

from pytest_modelperf.comparing.views import comparison_views
from pytest_modelperf.profiler.shown.views import profile_views
from pytest_modelperf.sweep.report import sweep_views
from pytest_modelperf.tuning.report import tuning_views
from pytest_modelperf.whatif.report import whatif_views

__all__ = ["compare", "profile", "sweep", "trace", "tune", "whatif"]

# Settings about baselines and clusters, which belong to a test run.
_OF_TESTS = ("baseline", "machine", "measure", "output_sketch")
_SHOWN_LAYERS = 20
# Where the reader of a notebook finds the layers that its report leaves out.
_OF_CASE = "`layers` of the case has all"
_OF_LEVELS = "`layers` of each level has all"
_BYTES_PER_MB = 1_000_000
# More milliseconds and megabytes than any model needs.
_MOST = 1e12


class _ApiWording(Wording):
    """The settings in errors and advice, named as arguments of these functions."""

    names: Mapping[str, str] = {
        "baseline_python": "gateway",
        "batch": "batch_size",
        "cores": "cores",
        "dims": "dims",
        "engine_option": "engine_options",
        "inputs": "inputs",
        "json": "the returned record",
        "max_seconds": "max_seconds",
        "state": 'state={"PAST": "PRESENT"}',
        "static": "static=True",
        # These functions do not have a timeout.
        "timeout": "modelperf profile --timeout",
        "tolerance": "tolerance",
    }

    def sizes(self, dims: Sequence[str]) -> str:
        return f"dims={{{', '.join(f'{name!r}: SIZE' for name in dims)}}}"

    def value(self, setting: str, value: str) -> str:
        if setting == "engine_option":
            key, _, text = value.partition("=")
            return f"{self.names[setting]}={{{key!r}: {text!r}}}"
        return f"{self.names[setting]}={value!r}"


_WORDING = _ApiWording()


def __dir__() -> list[str]:
    return __all__


def profile(
    model: ModelSource | Callable[..., object],
    *,
    static: bool = False,
    sparsity: bool = False,
    extensions: Sequence[str] = (),
    watch: Watch = lambda _: None,
    **case: Unpack[CaseWords],
) -> Profile:
    """Profile a model: how long it takes and what it costs, in total and by layer.

    With `static`, the model is only counted and does not run. `sparsity` also reads the weights, to
    count zeros. `extensions` are modules to import; installed ones are found automatically. `watch`
    is called with the progress of the measurement.

        profile("model.onnx", batch_size=[1, 8], cores=[1, 2]).cases[0].latency.p50_ms
    """
    with _worded(watch):
        spec = _spec(model, case, profile, unused=("tolerance",))
        known = _extensions(extensions)
        request = replace(spec.request(), sparsity=sparsity)
        if static:
            return profile_model(_onnx(model, spec, "static=True"), request, known.operators)
        function = _function(spec)
        if function is not None:
            if sparsity:
                raise UsageError("profile(): a function has no weights: leave sparsity out.")
            setup = _setup(replace(spec, engine=CALLABLE_ENGINE), known)
            return measure_function(function, request, setup, watch)
        run = ModelRun(_onnx(model, spec, "profile"), _setup(spec, known))
        return MeasureRequest(run, request).run(known, watch)


def compare(  # noqa: PLR0913  # the arguments of a call
    before: ModelSource,
    after: ModelSource,
    *,
    static: bool = False,
    engine_before: str | None = None,
    gateway_before: str | None = None,
    extensions: Sequence[str] = (),
    watch: Watch = lambda _: None,
    **case: Unpack[CaseWords],
) -> Comparison:
    """Compare two models in turn, to show whether the second one is worse, and why.

    With `static`, the models do not run and only their counts are compared. `engine_before` and
    `gateway_before` run the first model on another engine, or in another interpreter:
    `"popen//python=old/bin/python"`.

        compare("old.onnx", "new.onnx", tolerance=0.02).verdict
    """
    with _worded(watch):
        models = read_model(before, "compare(): before"), read_model(after, "compare(): after")
        spec = _spec(models[1], case, compare)
        known = _extensions(extensions)
        request, tolerances = spec.request(), spec.tolerances or read_default(TOLERANCE)
        old, new = (_onnx(model, spec, "compare") for model in models)
        if static:
            for word, given in (("engine", engine_before), ("gateway", gateway_before)):
                if given is not None:
                    raise UsageError(f"compare(): {word}_before has no effect with static=True.")
            check_static(tolerances)
        setup = Setup() if static else _setup(spec, known, is_stretched=True)
        setup_before = setup
        if engine_before is not None:
            # The given options belong to the engine of the second model.
            engine = known.engines.find(read_text(engine_before, "engine_before"))
            setup_before = replace(setup_before, engine=engine, options={})
        if gateway_before is not None:
            gateway = _gateway(gateway_before, "gateway_before")
            setup_before = replace(setup_before, spec=gateway)
        asked = CompareRequest(
            before=ModelRun(old, setup_before),
            after=ModelRun(new, setup),
            request=request,
            gate=Gate(tolerances=tolerances, rounds=rounds_within(setup.policy.max_seconds)),
        )
        return asked.count(known) if static else asked.run(known, watch)


def sweep(  # noqa: PLR0913  # the arguments of a call
    model: ModelSource,
    *,
    against: ModelSource | None = None,
    streams: int | Sequence[int] = 1,
    threshold_ms: float | None = None,
    all_layers: bool = False,
    extensions: Sequence[str] = (),
    watch: Watch = lambda _: None,
    **case: Unpack[CaseWords],
) -> Sweep:
    """Measure a model at every batch size, number of cores and of streams, and find the best.

    The best configuration has the most items per second with a median latency within
    `threshold_ms`. `against` is an earlier version, which runs in turn with the model. Each
    configuration takes up to `max_seconds`, by default 5. The layers of the best are timed, or with
    `all_layers` those of every case.

        sweep("model.onnx", batch_size=[1, 2, 4, 8], cores=[1, 2]).sides[0].spot.best
    """
    with _worded(watch):
        spec = _spec(model, case, sweep, unused=("tolerance", "workload"))
        known = _extensions(extensions)
        setup = _setup(replace(spec, max_seconds=spec.max_seconds or SWEEP_SECONDS), known)
        models: list[TestedModel] = [model]
        if against is not None:
            models.insert(0, read_model(against, "sweep(): against"))
        sides = tuple(ModelRun(_onnx(each, spec, "sweep"), setup) for each in models)
        counts = read_sizes(as_written(streams), "sweep(): streams")
        threshold = _limit(threshold_ms, "sweep(): threshold_ms", "milliseconds")
        asked = SweepRequest(sides, spec.request(), counts, threshold, all_layers)
        return asked.run(known, watch)


def tune(  # noqa: PLR0913  # the arguments of a call
    model: ModelSource,
    *,
    values: Mapping[str, Sequence[str]] | None = None,
    latency_ms: float | None = None,
    memory_mb: float | None = None,
    outputs: float = OUTPUTS_TOLERANCE,
    extensions: Sequence[str] = (),
    watch: Watch = lambda _: None,
    **case: Unpack[CaseWords],
) -> Tuning:
    """Find the session options of the engine that make a model faster on this machine.

    `values` are the values to try for each option of the engine; by default the usual ones are
    tried. `latency_ms` and `memory_mb` are limits that the recommended options must keep, and
    `outputs` is how far their outputs may differ. The whole search takes up to `max_seconds`, by
    default 120.

        tune("model.onnx", cores=2).cases[0].winner
    """
    with _worded(watch):
        spec = _spec(model, case, tune, unused=("tolerance", "workload"))
        known = _extensions(extensions)
        setup = _setup(replace(spec, max_seconds=spec.max_seconds or TUNING_SECONDS), known)
        latency = _limit(latency_ms, "tune(): latency_ms", "milliseconds")
        megabytes = _limit(memory_mb, "tune(): memory_mb", "megabytes")
        memory = None if megabytes is None else round(megabytes * _BYTES_PER_MB)
        allowed = read_share(as_written(outputs), "tune(): outputs")
        asked = TuningRequest(
            ModelRun(_onnx(model, spec, "tune"), setup),
            spec.request(),
            _wanted(values),
            TuningTerms(TuningLimits(latency, memory), allowed),
        )
        return asked.run(known, watch)


def whatif(  # noqa: PLR0913  # the arguments of a call
    model: ModelSource,
    *,
    prune: float | Sequence[float] = (),
    prune_channels: float | Sequence[float] = (),
    quantize: str | Sequence[str] = (),
    precision: str | Sequence[str] = (),
    estimate: float | Sequence[float] = (),
    extensions: Sequence[str] = (),
    watch: Watch = lambda _: None,
    **case: Unpack[CaseWords],
) -> WhatIf:
    """Measure what a model would gain by pruning, by INT8, or in another precision.

    `prune` are the shares of weights to set to zero, `prune_channels` those of channels to remove,
    `quantize` is `"int8-dynamic"`, `"int8-static"`, or `"int8"` for both, `precision` is `"bf16"`,
    `"f16"` or `"f32"`, and `estimate` are shares of pruning that are estimated from the measured
    ones.

        whatif("model.onnx", prune=[0.5, 0.9], quantize="int8-dynamic")
    """
    with _worded(watch):
        unused = ("tolerance", "prompt", "generate", "phase", "state", "workload")
        spec = _spec(model, case, whatif, unused=unused)
        known = _extensions(extensions)
        variants = (
            *(Variant(VariantKind.PRUNED, share) for share in _shares(prune, "prune")),
            *(
                Variant(VariantKind.NARROWED, share)
                for share in _shares(prune_channels, "prune_channels")
            ),
            *_with_forms(VariantKind.QUANTIZED, quantize, "quantize"),
            *_with_forms(VariantKind.PRECISION, precision, "precision"),
        )
        run = ModelRun(_onnx(model, spec, "whatif"), _setup(spec, known))
        shares = _shares(estimate, "estimate")
        return WhatIfRequest(run, spec.request(), variants, shares).run(known, watch)


@views_of.register
def _profile_views(shown: Profile) -> Views:
    has_run = any(case.measured is not None for case in shown.cases)
    columns, order = (MEASURED_COLUMNS, "ms") if has_run else (DEFAULT_COLUMNS, "macs")
    view = LayerView(columns, order, _SHOWN_LAYERS, _OF_CASE)
    return profile_views(shown, lambda: profile_report(shown, view))


@views_of.register
def _comparison_views(shown: Comparison) -> Views:
    return comparison_views(shown, lambda: comparison_report(shown, _WORDING))


@views_of.register
def _sweep_views(shown: Sweep) -> Views:
    return sweep_views(shown, lambda: sweep_report(shown, _WORDING))


@views_of.register
def _tuning_views(shown: Tuning) -> Views:
    return tuning_views(shown, lambda: tuning_report(shown))


@views_of.register
def _whatif_views(shown: WhatIf) -> Views:
    view = WhatIfView(_SHOWN_LAYERS, for_all=_OF_LEVELS)
    return whatif_views(shown, lambda: whatif_report(shown, view))


@contextmanager
def _worded(watch: object) -> Iterator[None]:
    """Make errors name the settings as arguments of these functions, and check `watch`."""
    try:
        if not callable(watch):
            raise UsageError(
                "watch takes a function that is called with the progress, not "
                f"{type(watch).__name__}."
            )
        yield
    except ModelPerfError as error:
        error.message, error.remedy, error.details = error.worded(_WORDING), None, ()
        raise


def _several(given: object) -> tuple[object, ...]:
    """Return one value or several as a tuple. A text counts as one value."""
    written = as_written(given)
    if isinstance(written, str) or not isinstance(written, Iterable):
        return (written,)
    return tuple(written)


def _shares(given: object, word: str) -> tuple[float, ...]:
    """Read shares of weights or channels, each once. Their range is checked with the variants."""
    shares = []
    for each in _several(given):
        share = as_float(each)
        if share is None:
            raise UsageError(
                f"whatif(): {word} takes shares from 0 to below 1, such as [0.5, 0.9], not "
                f"{shown(each)}."
            )
        shares.append(share)
    return tuple(dict.fromkeys(shares))


def _with_forms(kind: VariantKind, given: object, word: str) -> list[Variant]:
    """Return the variants for some names, each once. Raises UsageError for an unknown name."""
    known = FORMS[kind]
    forms: dict[str, None] = {}
    for each in _several(given):
        if not isinstance(each, str) or each not in known:
            raise UsageError(f"whatif(): {word} takes {' or '.join(known)}, not {shown(each)}.")
        forms |= dict.fromkeys(known[each])
    return [Variant(kind, form=form) for form in forms]


def _wanted(values: object) -> Mapping[str, tuple[str, ...]]:
    """Read the values to try for each option of the engine.

    One text or number counts as one value.
    """
    place = "tune(): values"
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise UsageError(
            f'{place} takes options of the engine, such as {{"enable_mem_pattern": ["0", "1"]}}, '
            f"not {shown(values)}."
        )
    wanted = {}
    for key, several in values.items():
        option = read_text(key, place)
        texts = [str(each) if as_float(each) is not None else each for each in _several(several)]
        if not texts:
            raise UsageError(f"{place}: {printable(option)} has no value to try: give one or more.")
        wanted[option] = tuple(read_text(each, f"{place}: {printable(option)}") for each in texts)
    return wanted


def _limit(given: object, place: str, unit: str) -> float | None:
    """Read a limit above 0, or None."""
    if given is None:
        return None
    limit = as_float(as_written(given))
    if limit is None or not 0 < limit < _MOST:
        raise UsageError(f"{place} takes {unit} above 0, such as 20 or 0.5, not {shown(given)}.")
    return limit


def _extensions(given: object) -> Extensions:
    names = _several(given)
    return load_extensions([read_text(name, "extensions") for name in names])


def _spec(
    model: object,
    words: Mapping[str, object],
    function: Callable[..., object],
    unused: Sequence[str] = (),
) -> CaseSpec:
    """Read the spec of a model from the arguments of a call.

    Raises UsageError for an argument that has no effect.
    """
    place, without = f"{function.__name__}()", (*_OF_TESTS, *unused)
    for word in without:
        if word in words:
            raise UsageError(f"{place}: {word} has no effect here: leave it out.")
    *own, _ = signature(function).parameters
    if isinstance(model, str) and is_address(model):
        raise UsageError(
            f"{place}: an address is for tests. Download the model, and give its path."
        )
    known = [*own, *(word for word in CASE_WORDS if word not in {*MODEL_WORDS, *without})]
    spec = read_spec({**words, "model": model}, place, Path, known)
    if spec.origin is not None:
        # Only a test accepts formats other than ONNX, as the error about the file explains.
        spec = replace(spec, model=model, origin=None)
    if spec.state and not (spec.prompts or spec.generates):
        raise UsageError(f"{place}: state is about a generation: give prompt and generate too.")
    return spec


def _function(spec: CaseSpec) -> Callable[..., object] | str | None:
    """Return the Python function to profile, or its name, or None for an ONNX model."""
    if callable(spec.model):
        return spec.model
    if spec.engine == CALLABLE_ENGINE and isinstance(spec.model, str):
        return spec.model
    return None


def _onnx(model: TestedModel, spec: CaseSpec, place: str) -> ModelSource:
    """Return the model, or raise UsageError if it is a Python function."""
    if callable(model) or spec.engine == CALLABLE_ENGINE:
        raise UsageError(
            f"{place} takes only ONNX models: measure a Python function with profile()."
        )
    return model


def _setup(spec: CaseSpec, extensions: Extensions, *, is_stretched: bool = False) -> Setup:
    """Return the setup of a call.

    With `is_stretched`, a slow model gets more time unless the call sets `max_seconds`.
    """
    settings = MeasuringSettings(
        max_seconds=spec.max_seconds or read_default(MAX_SECONDS),
        warmup_seconds=spec.warmup_seconds,
        min_seconds=spec.min_seconds,
        timeout=read_default(TIMEOUT),
        engine=spec.engine or DEFAULT_ENGINE,
        engine_options=spec.engine_options,
        gateway=_gateway(spec.gateway),
    )
    settings.check_seconds(lambda setting: setting.word)
    is_stretched = is_stretched and spec.max_seconds is None
    return settings.setup(extensions, _WORDING, spec=settings.gateway, is_stretched=is_stretched)


def _gateway(written: str | None, word: str = "gateway") -> str | None:
    """Read a gateway. Raises UsageError for a machine's name: only a test run knows these."""
    if written is None:
        return None
    gateway = read_gateway(written, word)
    if not is_gateway(gateway):
        raise UsageError(
            f"{word} takes a gateway, such as ssh=pi@board//python=python3, not "
            f"{shown(written)}: only a test run knows machines by their names."
        )
    return gateway
