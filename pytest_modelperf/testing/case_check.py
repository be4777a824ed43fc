"""One case to check, the state that all checks share, and both with the bound model."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.baselines.document import store_static
from pytest_modelperf.baselines.recording import TwinKeeper
from pytest_modelperf.baselines.records import Baseline, BaselineRecording, StoredCase, StoredStatic
from pytest_modelperf.comparing.budgets import Budget
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import CaseComparison, Measure
from pytest_modelperf.comparing.since_recorded import Slowdowns, installed_builds, requirement_of
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.history.records import Tag
from pytest_modelperf.history.repository import Revision, find_last_tag, find_revision
from pytest_modelperf.history.store import HistoryStore
from pytest_modelperf.history.summary import PastRuns, read_past_runs
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.model_in_worker import CasePlace, Watch, machine_of
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts
from pytest_modelperf.profiler.request import ProfileRequest, model_facts, request_of_each
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.gateway import LOCAL, interpreter_spec, is_local
from pytest_modelperf.spec.case_spec import TestedModel
from pytest_modelperf.spec.run_definitions import (
    BASELINE_PYTHON,
    BASELINE_REQUIREMENT,
    HISTORY,
    RECORDED,
    UpdateMode,
)
from pytest_modelperf.testing.budgets import time_limits
from pytest_modelperf.testing.outcomes import BaselineLink, Source
from pytest_modelperf.text.escaping import printable


class ReadsBaselines(Protocol):
    """A folder of baselines, or the part of it that was sent to another machine."""

    def read(self, name: str, machines: Sequence[str] | None = None) -> Baseline | None:
        """Read the baseline of a model, with its measurements on these machines or on all."""


_Model = TypeVar("_Model")
_OtherModel = TypeVar("_OtherModel")


class CheckOf(Struct, Generic[_Model], frozen=True, kw_only=True):
    """One case to check, on this machine or on another one, to which it is sent.

    On this machine, `model` is the model itself, as in the type `CaseCheck`. A check for another
    machine has no model, because that is sent by its digest. `request` makes exactly one case,
    which has the id `case_id` in the baseline. `gate` has the error level of one judged figure.
    `baseline` names the folder of the model's baseline, or is None for a case with only budgets.

    `measure` says whether the case runs in turn with its baseline even if the engine runs the same
    kernels. With `sketches_outputs`, the baseline has a sketch of the outputs, and the current
    outputs are compared with it. `accept` is the command that records the case. `machine` is the
    key or tag of the machine that has to run it. `keeps_profile` means that the profile is used.
    """

    test: str
    case_id: str
    source: Source
    model: _Model
    baseline: str | None
    request: ProfileRequest
    setup: Setup
    gate: Gate
    budgets: tuple[Budget, ...] = ()
    measure: Measure = Measure.CHANGED
    sketches_outputs: bool = False
    accept: str | None = None
    machine: str | None = None
    keeps_profile: bool = False

    def of(self, model: _OtherModel, request: ProfileRequest, setup: Setup) -> CheckOf[_OtherModel]:
        """Return the same check of another form of the model, with the request and setup for it."""
        other = replace(self, model=model, request=request, setup=setup)
        return cast("CheckOf[_OtherModel]", other)

    @property
    def key(self) -> tuple[str, str]:
        """The test and the case. A test may check several cases."""
        return self.test, self.case_id

    def is_same(self, other: CheckOf[_Model]) -> bool:
        """Whether both are the same check of a test, which may check several models."""
        return self.request is other.request and self.gate == other.gate

    @property
    def is_function(self: CaseCheck) -> bool:
        """Whether the model is Python code, which cannot be counted or stored."""
        return callable(self.model) or self.setup.engine.name == "callable"

    @property
    def is_bound_here(self: CaseCheck) -> bool:
        """Whether only this process can measure it: a function, or a model behind a gateway."""
        return self.is_function or self.setup.spec != LOCAL

    @property
    def graph(self: CaseCheck) -> ModelSource:
        """The model. Raises UsageError for Python code."""
        if self.is_function or callable(self.model):
            raise UsageError("a Python function has no graph: give the path of an ONNX model.")
        return self.model


CaseCheck: TypeAlias = CheckOf[TestedModel]


class CheckContext(Struct, frozen=True, dict=True):
    """The settings and the state that all checks of a run share.

    `against` is a path or a git ref whose model replaces the baseline. `older` is that model, if it
    was sent to this machine. `baseline_python` is the interpreter for the side before, and
    `baseline_requirements` are its packages. `history` is the folder of the history. `slowdowns`
    are those of earlier cases that their plans settled. `unsettled` has the keys of cases that no
    plan settles. `twins` keeps the twin of the model that is being recorded.
    """

    store: ReadsBaselines
    root: Path
    extensions: Extensions
    today: dt.date
    update: UpdateMode | None = None
    is_static: bool = False
    against: str | None = None
    older: Path | None = None
    baseline_python: str | None = None
    baseline_requirements: tuple[str, ...] = ()
    judges_upgrades: bool = False
    keeps_samples: bool = False
    history: Path | None = None
    watch: Watch = lambda _: None
    slowdowns: Slowdowns = field(default_factory=Slowdowns)
    unsettled: set[tuple[str, str]] = field(default_factory=set)
    twins: TwinKeeper = field(default_factory=TwinKeeper)

    @cached_property
    def machine(self) -> MachineFacts:
        return describe_machine()

    @property
    def option_before(self) -> str:
        """The option that selects the Python or the packages of the side before."""
        return (BASELINE_REQUIREMENT if self.baseline_requirements else BASELINE_PYTHON).flag

    @cached_property
    def revision(self) -> Revision:
        return find_revision(self.root)

    @cached_property
    def last_tag(self) -> Tag | None:
        return find_last_tag(self.root)

    def past_runs(self, name: str, machine: str) -> PastRuns:
        """Return a model's history on this kind of machine. Raise UsageError without a folder."""
        return self._read_past_runs(name, machine)

    @cached_property
    def _read_past_runs(self) -> Callable[[str, str], PastRuns]:
        if self.history is None:
            raise UsageError(f"there is no history: give its folder with {HISTORY.flag}.")
        store = HistoryStore(self.history)
        return lru_cache(maxsize=1)(lambda name, machine: read_past_runs(store.file(name, machine)))

    def machine_of(self, setup: Setup) -> MachineFacts:
        """Return the machine of a setup, or raise MeasureError if it cannot be reached."""
        if self.is_static or is_local(setup.spec):
            return self.machine
        if setup.spec not in self._machines:
            self._machines[setup.spec] = machine_of(setup)
        return self._machines[setup.spec]

    @cached_property
    def _machines(self) -> dict[str, MachineFacts]:
        return {}

    def baseline(self, name: str, machine: str) -> Baseline | None:
        """Return the baseline of a model, with the recordings on this kind of machine."""
        return self._read_baseline(name, (machine,))

    def whole_baseline(self, name: str) -> Baseline | None:
        """Return the baseline of a model, with the recordings on all kinds of machines."""
        return self._read_baseline(name, None)

    @cached_property
    def _read_baseline(self) -> Callable[[str, Sequence[str] | None], Baseline | None]:
        # One is enough, because the cases of a model run in succession and share one file.
        return lru_cache(maxsize=1)(self.store.read)

    @cached_property
    def open_twin(self) -> Callable[[bytes], ModelFile]:
        """The function that opens a twin. It keeps the last one for all cases of the same model."""
        return lru_cache(maxsize=1)(open_model)


def baseline_of_case(stored: Baseline, case_id: str) -> Baseline:
    cases = tuple(case for case in stored.model.cases if case.id == case_id)
    machines = tuple(
        replace(machine, cases={key: c for key, c in machine.cases.items() if key == case_id})
        for machine in stored.machines
    )
    return replace(stored, model=replace(stored.model, cases=cases), machines=machines)


class BoundCheck(Struct, frozen=True):
    """A check whose model is bound to the sizes of the case, before anything runs."""

    context: CheckContext
    check: CaseCheck
    file: ModelFile
    facts: ModelFacts
    model: Model
    place: CasePlace

    @classmethod
    def bind(
        cls, context: CheckContext, check: CaseCheck, watch: Watch, file: ModelFile | None = None
    ) -> BoundCheck:
        """Bind the model of a check. Read it unless its `file` was opened before."""
        file = file or open_model(check.graph)
        facts = model_facts(file)
        (binding,), (cores,) = check.request.bindings(), check.request.cores
        model = Model.bind(file, binding, check.request, context.extensions)
        place = CasePlace(model.case(cores), 1, 1, watch)
        return cls(context, check, file, facts, model, place)

    def bind_older(self, source: ModelSource) -> Model:
        """Bind an older model to the sizes of the case, for the dimensions that it also has."""
        older = open_model(source)
        request, _ = request_of_each(self.check.request, (older, self.file))
        return Model.bind(older, request.bindings_of(older)[0], request, self.context.extensions)

    @property
    def case(self) -> Case:
        return self.place.case

    @property
    def counted(self) -> CaseProfile:
        """The static profile of the case, without a run."""
        return CaseProfile(self.case, self.model.static)

    @property
    def timed_budgets(self) -> list[Budget]:
        """The budgets of measured figures. There are none if nothing runs."""
        if self.context.is_static:
            return []
        return [budget for budget in self.check.budgets if budget.figure.is_timed]

    @property
    def gate(self) -> Gate:
        """The gate with the limits of this case's budgets, and its `measure`."""
        limits = time_limits(self.timed_budgets, self.case.batch_size)
        return replace(self.check.gate, limits=limits, measure=self.check.measure)

    @property
    def machine(self) -> MachineFacts:
        return self.context.machine_of(self.check.setup)

    def setup_before(self, stored: StoredCase | None = None) -> Setup:
        """Return the setup of the side before, which may run in another Python of this machine.

        For a baseline, the recorded version of the engine comes from the `stored` case.
        """
        python = self.context.baseline_python
        if python is not None:
            return self._setup_in(python, BASELINE_PYTHON.flag)
        given = self.context.baseline_requirements
        exact = [self._recorded(stored) if each == RECORDED else each for each in given]
        if not exact or (given == (RECORDED,) and exact == self._installed_requirements):
            return self.check.setup
        return self.setup_with(exact)

    @property
    def _installed_requirements(self) -> list[str]:
        builds = installed_builds(self.check.setup.engine.name)
        return [f"{package}=={version}" for package, version in builds.items()]

    def setup_with(self, requirements: Sequence[str]) -> Setup:
        """Return the setup in an environment with these packages, and make it if needed."""
        # Imported here, because few checks need it.
        from pytest_modelperf.environments.store import make_environment

        made = make_environment(requirements, on_progress=self.place.tell)
        return self._setup_in(str(made.python), BASELINE_REQUIREMENT.flag)

    def _setup_in(self, python: str, option: str) -> Setup:
        """Return the setup in another local Python. Raise UsageError if the case runs elsewhere."""
        if not is_local(self.check.setup.spec):
            raise UsageError(
                f"{option} is a Python of this machine, and the case runs through "
                f"{printable(self.check.setup.spec)}: two machines cannot be compared. Leave out "
                "one of them."
            )
        return replace(self.check.setup, spec=interpreter_spec(python, option))

    def _recorded(self, stored: StoredCase | None) -> str:
        """Return the requirement of the recorded engine, or raise UsageError if it is unknown."""
        engine = self.check.setup.engine.name
        version = None if stored is None else stored.engine_version
        if stored is None or version is None or stored.engine != engine:
            raise UsageError(
                f"the baseline of {self.case.id} does not say which version of {engine} recorded "
                f"it, so {BASELINE_REQUIREMENT.flag} {RECORDED} cannot be used: give the version, "
                f"as in {engine}==1.22.0, or record the baseline again."
            )
        return requirement_of(engine, version)


class CaseResult(Struct, frozen=True):
    """The result of a check: the comparison, the profile and the recording of the case.

    `before` is the measurement of the other side. `observed` are counts that an earlier run of the
    same model completed. `link` compares a recorded case with the previous baseline.
    """

    comparison: CaseComparison
    profile: CaseProfile
    recording: BaselineRecording | None = None
    before: Measurement | None = None
    observed: StoredStatic | None = None
    link: BaselineLink | None = None

    @property
    def counted(self) -> StoredStatic | None:
        """The counts to show: completed by a run now or earlier, or from the graph alone."""
        counted = self.profile.counted
        if counted is None:
            return None
        if counted.graph_alone is None and self.observed is not None:
            return self.observed
        return store_static(counted)
