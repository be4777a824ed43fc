"""The fixture `modelperf`: profiles for plain assertions, checks, and comparisons."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pytest
from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError, UsageError
from pytest_modelperf.spec.case_spec import TestedModel
from pytest_modelperf.spec.declaring import read_spec
from pytest_modelperf.spec.readers import read_model, read_text
from pytest_modelperf.spec.sized_case import SizedCase, cases_of
from pytest_modelperf.testing.markers import FindModel, read_mark_budgets
from pytest_modelperf.testing.run import PerfFailure, Run, case_of
from pytest_modelperf.testing.wording import in_python

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pytest_modelperf.comparing.records import CaseComparison
    from pytest_modelperf.graph.model_file import ModelSource
    from pytest_modelperf.profiler.counting.records import LayerType, StaticProfile
    from pytest_modelperf.profiler.measurements import Measurement
    from pytest_modelperf.profiler.records import Case, CaseProfile
    from pytest_modelperf.profiler.rows import GenerationFigures, LayerRow
    from pytest_modelperf.spec.case_words import CaseWords
    from pytest_modelperf.stats.records import Latency
    from pytest_modelperf.testing.case_check import CaseCheck

_T = TypeVar("_T")
# pytest indents the lines of an error by this much.
_MARGIN = 8
_PHASE = ", and phase='prefill' or phase='step'"
_ENGINE_BEFORE = "engine_before"
# The arguments of a comparison that runs in this process.
_WORDS_HERE = ("cores", "tolerance", "max_seconds", "warmup_seconds")


class ModelPerf:
    """The value of the fixture. A call with a model returns the profile of one case."""

    def __init__(self, run: Run) -> None:
        self._run = run
        # The case of the current call, once its model is read.
        self._asked: SizedCase | None = None

    def __repr__(self) -> str:
        return "<modelperf>"

    def __call__(
        self, model: TestedModel, *, sparsity: bool = False, **words: Unpack[CaseWords]
    ) -> PerfProfile:
        """Return the profile of one case of a model, and judge the budgets of the test.

        `batch_size` and `cores` are numbers. `dims` sets the sizes of named dimensions, `inputs`
        whole inputs as `name:dtype:shape`, and `input_file` arrays. `prompt`, `generate`, `phase`
        and `state` name a phase of a generation. `engine`, `engine_options`, `gateway`,
        `max_seconds`, `warmup_seconds` and `min_seconds` set how it runs. With `sparsity`, the
        weights are read. Without budgets, the model runs only when you use a measured figure.
        """
        __tracebackhide__ = True
        return self._attempt(
            model, lambda: self._profile({"model": model, **words}, sparsity=sparsity)
        )

    @overload
    def check(
        self, model: ModelSource, *, sparsity: bool = False, **words: Unpack[CaseWords]
    ) -> PerfProfile: ...

    @overload
    def check(
        self,
        model: Callable[..., object],
        *arguments: Any,  # noqa: ANN401  # those of the user's function
        each: Sequence[tuple[Any, ...]] | None = None,
        **words: Any,  # noqa: ANN401
    ) -> ProgramResult: ...

    def check(
        self,
        model: TestedModel,
        *arguments: Any,  # those of the user's function
        sparsity: bool = False,
        **words: Any,
    ) -> PerfProfile | ProgramResult:
        """Judge a model or a program by its baseline and the budgets of the test.

        For a model, give the arguments of a call of the fixture, and `tolerance`, `measure` and
        `baseline`. The result is its profile. For a program, give a callable and its arguments.
        `each`, `against`, `environment`, `paths`, `tolerance`, `outputs` and `cores` are settings
        of the check. The result is its comparison. In a coroutine, write
        `await modelperf.check(...)`.
        """
        __tracebackhide__ = True
        if callable(model):
            return _or_fail(
                self._run,
                lambda: self._checked_program(model, words),
                partial(self._note_program, model),
            )
        if arguments:
            raise pytest.fail.Exception(
                "modelperf.check: a model takes no positional arguments. Give its inputs by "
                "inputs=, such as 'x:f32:1x3', or by input_file=."
            )
        return self._attempt(
            model, lambda: self._checked(self._case({"model": model, **words}, sparsity=sparsity))
        )

    def compare(
        self,
        before: TestedModel,
        after: TestedModel,
        *arguments: object,
        engine_before: str | None = None,
        **words: Unpack[CaseWords],
    ) -> CaseComparison:
        """Compare two models in a duet at one case, for your own assertions.

        If a side is a callable, such as a torch module, both run in this process. A callable gets
        the `arguments` unchanged. An ONNX model gets them as its inputs, in order, or by name from
        a single dict. `cores`, `tolerance`, `max_seconds` and `warmup_seconds` set how they run.
        For two ONNX models, `engine_before` runs the first one on another engine, without
        `engine_options`.
        """
        __tracebackhide__ = True
        is_here = callable(before) or callable(after)
        given: dict[str, object] = {**words}
        if engine_before is not None:
            given[_ENGINE_BEFORE] = engine_before
        compare = self._compared_here if is_here else self._compared
        return self._attempt(after, lambda: compare(before, after, arguments, given))

    @property
    def profile(self) -> PerfProfile:
        """The profile of the case in the markers of the test, as it was checked."""
        __tracebackhide__ = True
        return _or_fail(self._run, self._of_markers)

    def _attempt(self, model: TestedModel, work: Callable[[], _T]) -> _T:
        __tracebackhide__ = True
        self._asked = None
        return _or_fail(self._run, work, partial(self._note, model))

    def _note(self, model: TestedModel, item: pytest.Item, message: str) -> None:
        if self._asked is None:
            self._run.note_failed_model(item, model, message)
        else:
            self._run.note_failure(item, self._asked, message)

    def _note_program(self, model: TestedModel, item: pytest.Item, message: str) -> None:
        from pytest_modelperf.profiler.records import Case

        self._run.note_failed_model(item, model, message, Case(1, 1, program=item.name))

    def _profile(self, words: Mapping[str, object], *, sparsity: bool) -> PerfProfile:
        case = self._case(words, sparsity=sparsity)
        if case.budgets:
            return self._checked(case, has_baseline=False)
        check = self._run.case_check(self._item, case, has_baseline=False)
        return PerfProfile(self._run, check, self._run.checker.count(check))

    def _checked(self, case: SizedCase, *, has_baseline: bool = True) -> PerfProfile:
        run, item = self._run, self._item
        check = run.case_check(item, case, has_baseline=has_baseline)
        checked = run.check(item, check)
        run.require_passed(checked.outcomes, margin=_MARGIN)
        return PerfProfile(run, check, checked.profile or run.checker.count(check))

    def _checked_program(
        self, function: Callable[..., object], words: Mapping[str, object]
    ) -> ProgramResult:
        from pytest_modelperf.testing import program_check
        from pytest_modelperf.testing.wording import read_words

        run, item = self._run, self._item
        self._asked = None
        program_check.require_first(run.count_program(), item)
        if run.settings.static_only:
            pytest.skip("needs a run, and --modelperf-static-only is given")
        name = getattr(function, "__qualname__", type(function).__name__)
        outcome = program_check.check(run, item, name, read_words(words, run.settings))
        run.keep(item, outcome)
        run.require_passed((outcome,), margin=_MARGIN)
        return ProgramResult(outcome.comparison)

    def _compared(
        self,
        before: TestedModel,
        after: TestedModel,
        arguments: Sequence[object],
        words: Mapping[str, object],
    ) -> CaseComparison:
        if arguments:
            raise UsageError(
                "modelperf.compare: two ONNX models get their inputs by inputs=, such as "
                "'x:f32:1x3', or by input_file=; arrays are for callables."
            )
        models = read_model(before, "modelperf: before"), read_model(after, "modelperf: after")
        run, engine = self._run, None
        if _ENGINE_BEFORE in words:
            name = read_text(words[_ENGINE_BEFORE], f"modelperf: {_ENGINE_BEFORE}")
            engine = run.checker.context.extensions.engines.find(name)
        shared = {word: value for word, value in words.items() if word != _ENGINE_BEFORE}
        cases = [self._case({"model": model, **shared}) for model in models]
        old, new = (run.case_check(self._item, case, has_baseline=False) for case in cases)
        if engine is not None:
            # The options belong to the other engine.
            old = replace(old, setup=replace(old.setup, engine=engine, options={}))
        if not run.settings.static_only:
            new = run.spend_level(self._item, replace(new, budgets=()))
        return run.checker.compare(old, new)

    def _compared_here(
        self,
        before: TestedModel,
        after: TestedModel,
        arguments: tuple[object, ...],
        words: Mapping[str, object],
    ) -> CaseComparison:
        """Compare two sides in this process, at least one of them a callable."""
        from pytest_modelperf.programs.callables import ComparedPair, compare_callables

        unknown = [word for word in words if word not in _WORDS_HERE]
        if unknown:
            raise UsageError(
                f"modelperf.compare: {unknown[0]} is for two ONNX models, and a callable gets the "
                f"inputs that follow it. There are: {', '.join(_WORDS_HERE)}."
            )
        from pytest_modelperf.testing.program_check import require_run

        run = self._run
        require_run(run.config)
        if run.settings.static_only:
            pytest.skip("needs a run, and --modelperf-static-only is given")
        old, new = read_model(before, "modelperf: before"), read_model(after, "modelperf: after")
        function = old if callable(old) else new
        spec = read_spec({"model": function, **words}, "modelperf", self._find)
        # Set here, because a tolerance is an error for a single function, which has no baseline.
        case = replace(cases_of(replace(spec, tolerances=None))[0], spec=spec)
        check = run.spend_level(self._item, run.case_check(self._item, case, has_baseline=False))
        pair = ComparedPair(
            before=self._located(old),
            after=self._located(new),
            inputs=arguments,
            setup=check.setup,
            cores=check.request.cores[0] if check.request.has_cores else None,
        )
        return compare_callables(pair, check.gate, run.checker.context.watch)

    def _of_markers(self) -> PerfProfile:
        from pytest_modelperf.testing.program_check import require_run

        require_run(self._run.config)
        case = case_of(self._item)
        if case is None:
            raise UsageError(
                "this test has no case: mark it with @pytest.mark.perf_case(model=...), or "
                "call the fixture with a model."
            )
        check = self._run.case_check(self._item, case)
        checked = self._run.checked
        return PerfProfile(self._run, check, checked or self._run.checker.count(check))

    @property
    def _item(self) -> pytest.Item:
        item = self._run.current
        if item is None:
            raise UsageError(
                "the fixture modelperf measures only while a test runs: call it in one."
            )
        return item

    @property
    def _find(self) -> FindModel:
        return FindModel(self._item.path, self._run.settings.root, first=Path.cwd())

    def _located(self, model: TestedModel) -> TestedModel:
        return self._find(os.fspath(model)) if isinstance(model, str | os.PathLike) else model

    def _case(self, words: Mapping[str, object], *, sparsity: bool = False) -> SizedCase:
        """Return the one case that a call names, or raise UsageError if it names several."""
        from pytest_modelperf.testing.program_check import require_run

        require_run(self._run.config)
        spec = read_spec(words, "modelperf", self._find)
        cases = cases_of(replace(spec, budgets=read_mark_budgets(self._item)))
        if len(cases) > 1:
            raise UsageError(
                f"modelperf: this makes {len(cases)} cases, and a call takes one: give one "
                f"size of each{_PHASE if cases[0].phase else ''}, or mark the test with "
                "@pytest.mark.perf_case."
            )
        case = cases[0]
        if case.origin is not None:
            case = self._run.late_models.find_case(self._item, case, {}).case
        self._asked = replace(case, request=replace(case.request, sparsity=sparsity))
        return self._asked


class ProgramResult:
    """The comparison of a program, which a coroutine may await."""

    def __init__(self, comparison: CaseComparison) -> None:
        self.comparison = comparison

    def __repr__(self) -> str:
        return repr(self.comparison)

    def __await__(self) -> Generator[None, None, ProgramResult]:
        yield from ()
        return self


class PerfProfile:
    """The profile of one case. The model runs when a measured figure is first used."""

    def __init__(self, run: Run, check: CaseCheck, profile: CaseProfile) -> None:
        self._run = run
        self._check = check
        self._profile = profile
        # One run is enough: a second one would not measure a missing figure either.
        self._has_run_alone = False

    def __repr__(self) -> str:
        return repr(self._profile)

    @property
    def case(self) -> Case:
        return self._profile.case

    @property
    def static(self) -> StaticProfile:
        """The figures that follow from the graph alone, without a run."""
        __tracebackhide__ = True
        return _or_fail(self._run, lambda: self._profile.static)

    @property
    def latency(self) -> Latency:
        __tracebackhide__ = True
        return self._measured.latency

    @property
    def generation(self) -> GenerationFigures:
        """The measured figures of a phase of a generation. For other cases, the test fails."""
        __tracebackhide__ = True
        measured = replace(self._profile, measured=self._measured)
        return _or_fail(self._run, lambda: _generation_of(measured))

    @property
    def load_ms(self) -> float:
        __tracebackhide__ = True
        return self._measured.load_ms

    @property
    def first_inference_ms(self) -> float:
        __tracebackhide__ = True
        return self._measured.first_inference_ms

    @property
    def peak_rss_bytes(self) -> int | None:
        __tracebackhide__ = True
        if self._measured.peak_rss_bytes is None and not self._has_run_alone:
            self._run_alone()
        return self._measured.peak_rss_bytes

    @property
    def layers(self) -> tuple[LayerRow, ...]:
        """The layers in graph order with their times, then times that belong to no layer."""
        __tracebackhide__ = True
        return self._with_layers.layers

    @property
    def layer_types(self) -> Mapping[str, LayerType]:
        """The layers grouped by operator, with their times."""
        __tracebackhide__ = True
        return self._with_layers.layer_types

    @property
    def _measured(self) -> Measurement:
        __tracebackhide__ = True
        if self._profile.measured is None:
            self._run_alone()
        measured = self._profile.measured
        if measured is None:
            pytest.fail(self._profile.reason)
        return measured

    @property
    def _with_layers(self) -> CaseProfile:
        __tracebackhide__ = True
        if self._measured.layer_times is None and not self._has_run_alone:
            self._run_alone()
        return self._profile

    def _run_alone(self) -> None:
        __tracebackhide__ = True
        run = self._run
        if run.settings.static_only:
            pytest.skip("needs a run, and --modelperf-static-only is given")
        self._profile = _or_fail(run, lambda: run.checker.measure(self._check), self._note)
        self._has_run_alone = True

    def _note(self, item: pytest.Item, message: str) -> None:
        self._run.note_failed_model(item, self._check.model, message, self.case)


def _generation_of(profile: CaseProfile) -> GenerationFigures:
    figures = profile.generation
    if figures is None:
        raise UsageError(
            f"{profile.case.id} is not a phase of a generation: give prompt, generate and phase."
        )
    return figures


def _or_fail(
    run: Run, work: Callable[[], _T], note: Callable[[pytest.Item, str], None] | None = None
) -> _T:
    """Return the result of `work`. An error fails or skips the test at its own line.

    `note` keeps the failed model for the reports, with the message of the test.
    """
    __tracebackhide__ = True
    try:
        return work()
    except ModelPerfError as error:
        if run.skips(error):
            raise pytest.skip.Exception(error.message) from None
        message = in_python(run.with_way_out(error, run.current))
        if note is not None and run.current is not None:
            note(run.current, message)
        raise pytest.fail.Exception(message) from None
    except PerfFailure as error:
        raise pytest.fail.Exception(str(error)) from None
