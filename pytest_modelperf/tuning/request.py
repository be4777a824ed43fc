"""A request to tune a model: its cases, the options to try, and the limits of a winner."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from msgspec import Struct, field

from pytest_modelperf.errors import ChangedModelError, MeasureError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Watch,
    alone_at,
    check_cores,
    read_facts,
    unchanged,
)
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.tuning.candidates import check_given, named_sets, usual_sets
from pytest_modelperf.tuning.race import Duets
from pytest_modelperf.tuning.records import OptionSet, TunedCase, Tuning
from pytest_modelperf.tuning.tuned import Countdown, TuningTerms, tune_case

# The seconds of a whole tuning, unless the user gives others.
TUNING_SECONDS = 120.0


class TuningRequest(Struct, frozen=True):
    """A request to tune every case of a model in the time of its policy.

    `wanted` are values of options that the user named. Without any, the usual ones are tried.
    """

    model: ModelRun
    request: ProfileRequest
    wanted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    terms: TuningTerms = TuningTerms()

    def run(self, extensions: Extensions, watch: Watch = lambda _: None) -> Tuning:
        begun, setup, terms = time.monotonic(), self.model.setup, self.terms
        check_given(setup.engine.name, setup.options)
        sets = {cores: self._sets(cores) for cores in self.request.cores}
        for each in itertools.chain(*sets.values()):
            check_given(setup.engine.name, each.options)
        models = Model.of_request(open_model(self.model.source), self.request, extensions)
        total = len(models) * len(self.request.cores)
        facts = read_facts(models[0], total, watch)
        cases: list[TunedCase] = []
        engines, machines = [], []
        for model in models:
            try:
                prepared = prepare(model)
            except ChangedModelError as error:
                # The earlier cases were tuned before the model changed.
                cases += [
                    _not_tuned(model.case(cores), setup, error) for cores in self.request.cores
                ]
                continue
            for cores in self.request.cores:
                place = CasePlace(model.case(cores), len(cases) + 1, total, watch)
                duets = Duets(prepared, setup, place)
                seconds = setup.policy.max_seconds / total
                cases.append(_tune_alone(duets, sets[cores], terms, seconds))
                engines += [duets.facts[""]] if "" in duets.facts else []
                machines += [duets.machine] if duets.machine is not None else []
        return Tuning(
            model=facts,
            machine=machines[0] if machines else describe_machine(),
            engine=engines[0] if engines else None,
            cases=tuple(cases),
            limits=terms.limits,
            least_gain=terms.rule.least_gain,
            confidence=1.0 - terms.rule.level,
            outputs_tolerance=terms.outputs_tolerance,
            seconds=time.monotonic() - begun,
            is_named=bool(self.wanted),
        )

    def _sets(self, cores: int) -> tuple[OptionSet, ...]:
        setup = self.model.setup
        if self.wanted:
            return named_sets(self.wanted, setup.options)
        return usual_sets(setup.engine.name, setup.options, cores)


def _tune_alone(
    duets: Duets, sets: Sequence[OptionSet], terms: TuningTerms, seconds: float
) -> TunedCase:
    """Tune a case alone on this machine. A case that cannot be measured says why."""
    case, setup = duets.place.case, duets.setup
    try:
        check_cores(case.cores, setup)
        with unchanged(duets.model), alone_at(duets.place), closing(duets):
            return tune_case(duets, sets, terms, Countdown(seconds))
    except MeasureError as error:
        return _not_tuned(case, setup, error)


def _not_tuned(case: Case, setup: Setup, error: MeasureError) -> TunedCase:
    return TunedCase(case=case, given=setup.options, failure=error.worded(setup.wording))
