"""Recording a baseline: a model is measured, and its twin is compared with it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.document import generation_of, store_case, store_latency
from pytest_modelperf.baselines.records import (
    FIDELITY,
    FIDELITY_CONFIDENCE,
    BaselineRecording,
    Fidelity,
    MachineBaseline,
    Provenance,
    StoredCase,
    StoredPlan,
)
from pytest_modelperf.errors import MeasureError, ModelError, UsageError
from pytest_modelperf.files.documents import rounded
from pytest_modelperf.files.names import model_name
from pytest_modelperf.graph.data_dependence import DataDependence, find_data_dependence
from pytest_modelperf.graph.model_file import ModelFile, open_model
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.structure import PlanDigest
from pytest_modelperf.graph.structure_digest import digest_structure
from pytest_modelperf.graph.twin import left_out_bytes, make_twin, twin_bytes
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measured_cases import MeasuredCase, measure_case
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.run import TwinRun, run_duet, run_twin
from pytest_modelperf.profiler.prepare import Model, Pair, PreparedModel, prepare
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.request import model_facts
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY, coarsened
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.stats.decisions import plan_early_looks
from pytest_modelperf.stats.estimates import duet_ratio
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable

# Other programs can make a duet too noisy to show a result, so it is tried this many times.
TRIES = 3
# The numbers of rounds of the first try after which a twin may be shown to be near or far. Each
# look adds a chance of error, so a later try has only one, at its end, and a higher confidence.
_LOOKS = plan_early_looks(DUET_POLICY.max_rounds)
_LATER_CONFIDENCE = 0.995


class Evidence(Struct, frozen=True):
    """The rounds by which a twin is judged, and the confidence of their interval."""

    rounds: Sequence[DuetRound]
    confidence: float = FIDELITY_CONFIDENCE

    @property
    def ratio(self) -> Ratio:
        pairs = [(each.before.block, each.after.block) for each in self.rounds]
        return duet_ratio(pairs, self.confidence)

    @property
    def is_shown(self) -> bool:
        """Whether the twin is shown to be near or far."""
        ratio = self.ratio
        return is_near(ratio) or is_far(ratio)


class FidelityGate(Struct, frozen=True):
    """The condition to trust a doubtful twin: it must be shown to run like its model.

    It gets the number of rounds of any duet, whose samples are enough. It has no limits, because
    the twin is compared only with its model. `earlier` are the rounds of the earlier tries.
    """

    rounds: int = DUET_POLICY.max_rounds
    samples_needed: tuple[int, ...] = (DUET_POLICY.min_samples,)
    has_limits: bool = False
    earlier: tuple[DuetRound, ...] = ()

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        """Whether the twin is shown to be near or far. This is checked only after some rounds."""
        return not self.earlier and len(rounds) in _LOOKS and self.weigh(rounds).is_shown

    def weigh(self, rounds: Sequence[DuetRound]) -> Evidence:
        """Return these rounds with the earlier ones, or alone if the earlier ones were noisier."""
        if not self.earlier:
            return Evidence(rounds)
        whole, own = (
            Evidence(each, _LATER_CONFIDENCE) for each in ((*self.earlier, *rounds), rounds)
        )
        return min(whole, own, key=lambda evidence: _width(evidence.ratio))


def try_again(
    rounds: Sequence[DuetRound], take: Callable[[FidelityGate], Sequence[DuetRound]]
) -> Evidence:
    """Judge these rounds, and try up to `TRIES` times to show the twin to be near or far."""
    evidence = Evidence(rounds)
    earlier = tuple(rounds)
    for _ in range(1, TRIES):
        if evidence.is_shown:
            break
        gate = FidelityGate(earlier=earlier)
        taken = take(gate)
        evidence = gate.weigh(taken)
        earlier += tuple(taken)
    return evidence


def trust_by_plan() -> Fidelity:
    """Return the fidelity of a twin that has the plan of its model, and needs no run."""
    return Fidelity(
        ratio=None, interval=None, rounds=0, is_trusted=True, reason=None, has_same_plan=True
    )


def lack_twin(problem: str) -> Fidelity:
    """Return the fidelity of a twin that could not be made, for this `problem`."""
    return Fidelity(
        ratio=None,
        interval=None,
        rounds=0,
        is_trusted=False,
        reason=f"no twin could be made: {problem.removesuffix('.')}",
        has_same_plan=None,
    )


def judge_twin(evidence: Evidence, doubt: str, *, has_same_plan: bool | None) -> Fidelity:
    """Judge whether the twin, the second side, may stand in for the model, the first side.

    `doubt` is the reason why that has to be shown: the engine makes another plan for the twin or
    shows none, or the work of the model depends on data.
    """
    ratio = evidence.ratio
    reason = None
    if is_far(ratio):
        reason = (
            f"the twin was shown to run more than {100 * FIDELITY:g} % "
            f"{'slower' if ratio.value > 1.0 else 'faster'} than the model; {doubt}"
        )
    elif not is_near(ratio):
        reason = (
            f"the twin was not shown to run within {100 * FIDELITY:g} % of the model, and {doubt}"
        )
    interval = ratio.interval
    return Fidelity(
        ratio=rounded(ratio.value),
        interval=None if interval is None else (rounded(interval[0]), rounded(interval[1])),
        rounds=len(evidence.rounds),
        is_trusted=reason is None,
        reason=reason,
        has_same_plan=has_same_plan,
    )


def is_near(ratio: Ratio) -> bool:
    """Whether a twin was shown to run as fast as its model."""
    low, high = ratio.interval or (-math.inf, math.inf)
    return low >= 1.0 - FIDELITY and high <= 1.0 + FIDELITY


def is_far(ratio: Ratio) -> bool:
    """Whether a twin was shown to run faster or slower than its model."""
    low, high = ratio.interval or (-math.inf, math.inf)
    return low > 1.0 + FIDELITY or high < 1.0 - FIDELITY


def _width(ratio: Ratio) -> float:
    low, high = ratio.interval or (-math.inf, math.inf)
    return high - low


# The number of processes to record if the twin is not trusted, the minimum for a verdict. Each of
# them gets its share of the time, and the first, which may remain the only one, half of that.
PROCESSES = 5
# A few runs are enough for the stored times of layer types, which are only shown.
_LAYER_RUNS, _SLOW_LAYER_RUNS = 5, 1
# A baseline depends on these packages, and stores their versions.
_PACKAGES = ("pytest-modelperf", "onnx", "onnxruntime", "openvino")
_TWIN_FILE = "twin.onnx"
_OWN_NAME = "Give one of them a name of its own, as in baseline='models/encoder-long.onnx'."


class RecordedCase(Struct, frozen=True):
    """One measured case to be stored, its model as it ran, and a profile for each process."""

    recording: BaselineRecording
    profiles: tuple[CaseProfile, ...]
    model: PreparedModel


def record_case(  # noqa: PLR0913, PLR0917  # all that a recording depends on
    name: str,
    model: PreparedModel,
    twin: RebuiltTwin,
    setup: Setup,
    date: dt.date,
    place: CasePlace,
) -> RecordedCase:
    """Measure a case in one process, and in more if its twin cannot stand in for it."""
    facts = model_facts(model.file, reads_all=True, tell=place.tell)
    # Processes differ by more than the precision that more rounds of one process would add.
    policy = coarsened(setup.policy, setup.policy.precision)
    share = setup.policy.max_seconds / PROCESSES
    policy = replace(
        policy,
        max_seconds=share / 2.0,
        min_layer_runs=_LAYER_RUNS,
        min_slow_layer_runs=_SLOW_LAYER_RUNS,
    )
    first = _measure(model, replace(setup, policy=policy), place, takes_layers=True)
    model, profiles = first.model, [first.profile]
    measured = first.profile.measured
    here = _machine()
    machine = here if measured is None or measured.machine is None else measured.machine
    stand_in = twin.bind(model)
    fidelity, plan = lack_twin(twin.problem), None
    if stand_in is not None:
        fidelity, plan = _compare(model, stand_in, setup, place)
    shared = replace(setup, policy=replace(policy, max_seconds=share))
    while not fidelity.is_trusted and len(profiles) < PROCESSES:
        profiles.append(_measure(model, shared, place, takes_layers=False).profile)
    provenance = replace(_provenance(date, here, profiles[0]), machine=machine.key)
    structure = digest_structure(model.file)
    stored = store_case(profiles[0], facts, provenance, structure, fidelity)
    # All dimensions are stored, because an id names only those that vary.
    stored = replace(
        stored,
        dims=model.binding.own_dims,
        options=dict(sorted(setup.options.items())),
        inputs=model.given,
        generation=generation_of(model.binding),
        plan=None
        if plan is None
        else StoredPlan(digest=plan.value, kernels=plan.kernels, machine=machine.key),
    )
    latency = store_latency(profiles, facts, date)
    recording = BaselineRecording(
        name=name,
        model=replace(facts, path=None),
        cases=(stored,),
        twin=twin.data,
        left_out_bytes=twin.left_out_bytes,
        machine=MachineBaseline(key=machine.key, machine=machine, cases={stored.id: latency}),
    )
    return RecordedCase(recording, tuple(profiles), model)


def record_counts(name: str, model: Model, date: dt.date, place: CasePlace) -> BaselineRecording:
    """Record the counts of a case, without a run."""
    facts = model_facts(model.file, reads_all=True, tell=place.tell)
    profile = CaseProfile(place.case, model.static)
    provenance = replace(_provenance(date, _machine(), profile), machine=None)
    stored = replace(
        store_case(profile, facts, provenance, digest_structure(model.file)),
        dims=model.binding.own_dims,
        inputs=model.given_inputs,
        generation=generation_of(model.binding),
    )
    return BaselineRecording(name=name, model=replace(facts, path=None), cases=(stored,))


def merge_recordings(parts: Sequence[BaselineRecording]) -> BaselineRecording:
    """Merge the recordings of several cases of one model.

    Raises UsageError if they are of several models, or of one that changed meanwhile: the cases
    would not belong together. It also does so if the same case was run in different ways.
    """
    first = parts[0]
    for part in parts:
        if part.model.sha256 == first.model.sha256:
            continue
        one, other = (printable(each.model.path or each.model.name) for each in (first, part))
        if one == other:
            raise UsageError(
                f"{one} is not the same model in all cases of the baseline "
                f"{model_name(first.name)}: nothing was stored. If it changed meanwhile, record it "
                f"again. Tests with different models need baselines of their own. {_OWN_NAME}"
            )
        raise UsageError(
            f"{one} and {other} are both recorded as the baseline {model_name(first.name)}: "
            f"nothing was stored. {_OWN_NAME}"
        )
    with_twin = next((part for part in parts if part.twin is not None), first)
    machines = [part.machine for part in parts if part.machine is not None]
    latencies = {key: case for machine in machines for key, case in machine.cases.items()}
    return replace(
        first,
        cases=_join_cases(parts),
        twin=with_twin.twin,
        left_out_bytes=with_twin.left_out_bytes,
        machine=replace(machines[0], cases=latencies) if machines else None,
    )


def _join_cases(parts: Sequence[BaselineRecording]) -> tuple[StoredCase, ...]:
    """Return the last recording of each case, with a sketch if one of its tests requests it."""
    cases: dict[str, StoredCase] = {}
    for case in (case for part in parts for case in part.cases):
        known = cases.setdefault(case.id, case)
        has_same_engine = (known.engine, known.options) == (case.engine, case.options)
        if not (has_same_engine and known.runs_on_the_same(case)):
            raise UsageError(
                f"two checks record the case {printable(case.id)} of the baseline "
                f"{model_name(parts[0].name)}, but run it differently: nothing was stored. "
                f"{_OWN_NAME}"
            )
        cases[case.id] = case if case.sketch else replace(case, outputs=known.outputs)
    return tuple(cases.values())


class RebuiltTwin(Struct, frozen=True):
    """The twin of a model as a runnable file, or the problem without one."""

    data: bytes | None
    file: ModelFile | None
    problem: str = ""
    left_out_bytes: int = 0

    def bind(self, model: Model) -> Model | None:
        if self.file is None:
            return None
        return Model.bind_whole(self.file, model.binding, model.request, model.extensions)


class TwinKeeper:
    """The rebuilt twin of the model whose cases are being recorded one after the other."""

    def __init__(self) -> None:
        self._kept: tuple[str, RebuiltTwin] | None = None
        self._folder = ExitStack()

    def twin_of(self, file: ModelFile) -> RebuiltTwin:
        """Return the twin of a model, and remove that of the previous model."""
        key = file.sha256()
        if self._kept is None or self._kept[0] != key:
            self.close()
            self._kept = (key, self._folder.enter_context(rebuilt_twin(file)))
        return self._kept[1]

    def close(self) -> None:
        self._kept = None
        self._folder.close()


@contextmanager
def rebuilt_twin(file: ModelFile) -> Iterator[RebuiltTwin]:
    """Yield the twin of a model, made and rebuilt. Its file lasts as long as the context."""
    with working_folder("twin") as folder:
        try:
            twin = make_twin(file)
            data = twin_bytes(twin)
            path = rebuild(twin, folder / _TWIN_FILE, recorded_bytes=file.size_bytes)
        except ModelError as error:
            yield RebuiltTwin(None, None, str(error))
            return
        yield RebuiltTwin(data, open_model(path), left_out_bytes=left_out_bytes(twin))


def _measure(
    model: PreparedModel, setup: Setup, place: CasePlace, *, takes_layers: bool
) -> MeasuredCase:
    found = measure_case(model, setup, place, takes_layers=takes_layers)
    if found.profile.measured is None:
        raise MeasureError(f"{printable(place.case.id)} cannot be recorded: {found.profile.reason}")
    return found


def _compare(
    model: PreparedModel, twin: Model, setup: Setup, place: CasePlace
) -> tuple[Fidelity, PlanDigest | None]:
    """Return whether the twin may stand in for its model, and the plan of the model."""
    place.tell("comparing the twin with the model")
    by_data = find_data_dependence(model.bound.graph)
    pair = Pair(model, prepare(twin), setup, setup)
    found = run_twin(pair, FidelityGate(), place, trusts_plans=by_data is None)
    if not found.rounds:
        return trust_by_plan(), found.plan
    doubt = _find_doubt(found, by_data or found.by_data)
    has_same_plan = found.difference is None if found.knows_plans else None

    def take(gate: FidelityGate) -> Sequence[DuetRound]:
        place.tell("comparing the twin with the model again")
        return run_duet(pair, gate, place)

    evidence = try_again(found.rounds, take)
    return judge_twin(evidence, doubt, has_same_plan=has_same_plan), found.plan


def _find_doubt(found: TwinRun, by_data: DataDependence | None) -> str:
    if found.difference is not None:
        return f"the engine makes another plan of the twin: {found.difference}"
    if by_data is not None:
        return str(by_data)
    return "the engine does not report a plan"


def _machine() -> MachineFacts:
    machine = describe_machine()
    if machine is None:
        raise MeasureError("this machine cannot be described: record the baseline on another.")
    return machine


def _provenance(date: dt.date, machine: MachineFacts, profile: CaseProfile) -> Provenance:
    packages = {name: v for name, v in machine.packages.items() if name in _PACKAGES}
    engine = profile.measured.engine if profile.measured is not None else None
    if engine is not None and engine.version is not None:
        packages[engine.name] = engine.version
    return Provenance(date=date, packages=packages, machine=machine.key)
