"""One case checked by a machine of a cluster: the order, the work of its job, and the answer.

The baseline goes along, because the machine has no folder of them; it writes none either.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.cluster.records import Job, JobContext, ModelContent
from pytest_modelperf.cluster.requests import split_request
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.testing.case_check import CaseCheck, CheckContext, CheckOf
from pytest_modelperf.testing.checking import Checked, Checker
from pytest_modelperf.testing.wording import PYTHON_WORDING


class CheckOrder(Struct, frozen=True, kw_only=True):
    """A check for a machine, with the settings of its run that concern it.

    The model and its `older` version are named by their digests, and plugins by their modules.
    `stored` is the baseline of the case, packed. With `takes_layers`, the profile has times of
    layers.
    """

    check: CheckOf[str]
    stored: bytes | None
    against: str | None
    older: str | None
    today: dt.date
    update: UpdateMode | None
    keeps_samples: bool
    keeps_history: bool
    takes_layers: bool
    plugins: tuple[str, ...]


class SentBaseline(Struct, frozen=True):
    """The baseline that came with an order, in place of a folder of baselines."""

    baseline: Baseline | None

    def read(self, name: str, machines: Sequence[str] | None = None) -> Baseline | None:  # noqa: ARG002  # as a store
        """The baseline with the measurements on these machines; None means on all."""
        if self.baseline is None or machines is None:
            return self.baseline
        kept = tuple(each for each in self.baseline.machines if each.key in machines)
        return replace(self.baseline, machines=kept)


def check_job(  # noqa: PLR0913  # a case, what it needs, where, and how the run is set
    check: CaseCheck,
    content: ModelContent,
    context: CheckContext,
    stored: Baseline | None,
    *,
    older: ModelContent | None,
    machines: Sequence[str],
    plugins: Sequence[str],
    takes_layers: bool,
) -> Job:
    """The job that checks a case on one of these machines."""
    (case,) = split_request(check.request)
    order = CheckOrder(
        check=check.of(content.digest, case, check.setup),
        stored=None if stored is None else _pack(stored, check.case_id),
        against=context.against,
        older=None if older is None else older.digest,
        today=context.today,
        update=context.update,
        keeps_samples=context.keeps_samples,
        keeps_history=context.history is not None,
        takes_layers=takes_layers,
        plugins=tuple(plugins),
    )
    return Job(
        name=check.test.rpartition("/")[2],
        work=check_sent_case,
        request=to_text(order),
        models=(content,) if older is None or older.digest == content.digest else (content, older),
        machines=tuple(machines),
        cores=max(case.cores),
    )


def check_sent_case(request: str, context: JobContext) -> str:
    """The case of an order, checked here: the work of a job."""
    order = from_text(request, CheckOrder)
    extensions = load_extensions(order.plugins)
    checker = Checker(
        CheckContext(
            store=SentBaseline(None if order.stored is None else _unpack(order.stored)),
            root=Path(),
            extensions=extensions,
            today=order.today,
            update=order.update,
            against=order.against,
            older=None if order.older is None else context.paths[order.older],
            keeps_samples=order.keeps_samples,
            # Nothing is read there: a recorded case is compared with the baseline before.
            history=Path() if order.keeps_history else None,
            watch=context.watch,
        )
    )
    sent = order.check
    check: CaseCheck = sent.of(
        context.paths[sent.model], sent.request, replace(sent.setup, wording=PYTHON_WORDING)
    )
    checked = checker.check(check)
    outcome = checked.outcome
    if outcome.machine is None:
        # Nothing ran, and whoever reads the answer knows no other machine.
        checked = replace(checked, outcome=replace(outcome, machine=checker.context.machine))
    answer = checked if sent.keeps_profile else Checked(checked.outcome, None)
    if order.takes_layers and not _has_layers(checked):
        # On the same machine, so that the trace is of one.
        answer = replace(answer, profile=checker.measure(check), before=None)
    return to_text(answer)


def _has_layers(checked: Checked) -> bool:
    """Whether its layers were timed; a case that failed needs none."""
    profile = checked.profile
    return checked.outcome.has_failed or (profile is not None and profile.has_layer_times)


def _pack(stored: Baseline, case_id: str) -> bytes:
    """The part of a baseline for one case; the samples take a third of their room."""
    cases = tuple(case for case in stored.model.cases if case.id == case_id)
    machines = tuple(
        replace(machine, cases={key: c for key, c in machine.cases.items() if key == case_id})
        for machine in stored.machines
    )
    own = replace(stored, model=replace(stored.model, cases=cases), machines=machines)
    return zlib.compress(msgspec.msgpack.encode(own))


def _unpack(data: bytes) -> Baseline:
    return msgspec.msgpack.decode(zlib.decompress(data), type=Baseline)
