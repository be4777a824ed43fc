"""Two kept profiles side by side, times next to counts, and how to answer open questions."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_modelperf.comparing.changes import LayerChange, LayerTypeChange
from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts, Profile
from pytest_modelperf.profiler.shown.names import (
    case_options,
    engine_options,
    length_options,
    size_options,
)
from pytest_modelperf.profiles.records import (
    DIMENSIONS,
    ENGINE,
    MODEL_FILE,
    CasePair,
    DifferentCondition,
    NamedProfile,
    SideBySide,
    WorkAndTime,
)
from pytest_modelperf.roofline.peaks import find_peaks
from pytest_modelperf.roofline.records import Peaks, Roofline, Rooflines, theoretical_roofs
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, shell_path, shell_word

_DIGITS = 12
# Two runs that did not take turns prove no difference, whatever their intervals. This interval
# contains every ratio.
_NOT_SHOWN = (0.0, math.inf)


def put_side_by_side(before: NamedProfile, after: NamedProfile) -> SideBySide:
    """Pair the cases that both have. If they share none, pair their only cases."""
    old, new = _measured(before), _measured(after)
    shared = [case_id for case_id in old if case_id in new]
    chosen = [(old[case_id], new[case_id]) for case_id in shared]
    if not chosen and len(old) == len(new) == 1:
        chosen = list(zip(old.values(), new.values(), strict=True))
    if not chosen:
        raise UsageError(
            f"{before.name} and {after.name} have no case in common: {_ids(before)}; "
            f"{_ids(after)}. Measure one of them again with the --batch, --cores and --dim of the "
            "other."
        )
    paired = {id(case) for pair in chosen for case in pair}
    return SideBySide(
        before=before,
        after=after,
        pairs=tuple(_pair(*cases) for cases in chosen),
        single=tuple(
            (named.name, case.case)
            for named in (before, after)
            for case in _measured(named).values()
            if id(case) not in paired
        ),
        unlike=_unlike(
            _conditions(before, [old for old, _ in chosen]),
            _conditions(after, [new for _, new in chosen]),
        ),
    )


class BesideFirst(NamedTuple):
    """Each profile next to the first, and notes on those without a common case."""

    pairs: tuple[SideBySide, ...]
    notes: tuple[str, ...]


def put_beside_first(kept: Sequence[NamedProfile]) -> BesideFirst:
    """Put each profile next to the first. Raise UsageError if none shares a case with it."""
    first, *others = kept
    found = [_try_next_to(first, other) for other in others]
    pairs = tuple(each for each in found if isinstance(each, SideBySide))
    notes = tuple(each for each in found if isinstance(each, str))
    if not pairs:
        raise UsageError(notes[0])
    return BesideFirst(pairs, notes)


def _try_next_to(first: NamedProfile, other: NamedProfile) -> SideBySide | str:
    try:
        return put_side_by_side(first, other)
    except UsageError as error:
        return error.message


def put_beside_work(kept: NamedProfile) -> WorkAndTime:
    """Put the counts of each case next to its times."""
    cases = [
        case for case in kept.profile.cases if case.counted is not None and case.has_layer_times
    ]
    if not cases:
        raise UsageError(
            f"{kept.name} has no times of layers to compare with MACs: its engine reported none, "
            f"or it is of a Python function. To see it alone: --show {kept.name}"
        )
    missing = tuple(case.case for case in kept.profile.cases if case not in cases)
    return WorkAndTime(kept=kept, cases=tuple(cases), without_times=missing)


def _measured(named: NamedProfile) -> dict[str, CaseProfile]:
    return {case.case.id: case for case in named.profile.cases if case.measured is not None}


def _ids(named: NamedProfile) -> str:
    measured = ", ".join(map(printable, _measured(named)))
    return f"{named.name} has {measured or 'no measured case'}"


def _pair(before: CaseProfile, after: CaseProfile) -> CasePair:
    """Pair both cases, with the largest differences first. None of them counts as shown."""
    found = Differences.between(before, after, _NOT_SHOWN)
    layers = [change for change in found.of_layers() if change.time is not None]
    return CasePair(
        before=before,
        after=after,
        layer_types=tuple(sorted(found.of_layer_types(), key=_by_size)),
        layers=tuple(sorted(layers, key=_by_size)),
    )


def _by_size(change: LayerTypeChange | LayerChange) -> float:
    return 0.0 if change.time is None else -abs(change.time.ns)


# -- the conditions that differ


def _unlike(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[DifferentCondition, ...]:
    """Return the conditions that differ. Unknown ones are left out."""
    return tuple(
        DifferentCondition(what=what, before=text, after=after[what])
        for what, text in before.items()
        if what in after and after[what] != text
    )


def _conditions(named: NamedProfile, cases: Sequence[CaseProfile]) -> dict[str, str]:
    """Return the known conditions that can change a measurement's times, and its model file."""
    model, machine = named.profile.model, named.profile.machine
    engines = dict.fromkeys(_engine(case.measured.engine) for case in cases if case.measured)
    given = dict.fromkeys(_given_dims(case.case) for case in cases)
    found = {
        MODEL_FILE: None if model.sha256 is None else f"sha256 {model.sha256[:_DIGITS]}",
        "machine": None if machine is None else machine.key,
        "processor": None if machine is None else machine.cpu,
        "instruction sets": None
        if machine is None or machine.instruction_sets is None
        else " ".join(machine.instruction_sets),
        ENGINE: ", ".join(engines),
        DIMENSIONS: None if None in given else "; ".join(map(str, given)),
    }
    return {what: text for what, text in found.items() if text is not None}


def _given_dims(case: Case) -> str | None:
    """Return the sizes given to dimensions, or None if the kept profile does not have them."""
    if case.given_dims is None:
        return None
    return ", ".join(f"{name}={size}" for name, size in case.given_dims) or "none given"


def _engine(engine: EngineFacts) -> str:
    options = (f"{key}={value}" for key, value in sorted(engine.options.items()))
    return " ".join([engine.name, *([engine.version] if engine.version else []), *options])


# -- the roofline of the counts


def find_theoretical_rooflines(
    counted: Profile, machine: MachineFacts, folder: Path, engine: str
) -> Rooflines:
    """Put every counted case under the kept peaks of this machine, without a measurement.

    Peaks belong to an engine and a number of cores. If there are several versions or options of an
    engine, the peaks that were measured last are used.
    """
    kept = find_peaks(folder, machine.key)
    found: dict[str, Roofline] = {}
    notes = {} if kept.note is None else {kept.note: None}
    for case in counted.cases:
        peaks = _latest(kept.peaks, engine, case.case.cores)
        if peaks is None:
            notes[_why_none(case, counted.model, machine, engine)] = None
        else:
            found[case.case.id] = theoretical_roofs(case.static, peaks)
    return Rooflines(found, tuple(notes))


def _why_none(case: CaseProfile, model: ModelFacts, machine: MachineFacts, engine: str) -> str:
    """Return a note that no peaks are known, with a command that measures them, if possible."""
    none, cores = f"no roofline of {case.case.id}", case.case.cores
    if machine.usable_cores is not None and cores > machine.usable_cores:
        return f"{none}: {cores} cores are wanted, but the machine has {machine.usable_cores}"
    command = shlex.join(
        [
            *("modelperf", "profile", model.path or model.name, "--roofline"),
            *("--engine", engine, "--cores", str(cores)),
        ]
    )
    return (
        f"{none}: the peaks of {engine} on {count_of(cores, 'core')} of this machine are not "
        f"known. To measure them: {command}"
    )


def _latest(kept: tuple[Peaks, ...], engine: str, cores: int) -> Peaks | None:
    fitting = [peaks for peaks in kept if (peaks.engine, peaks.cores) == (engine, cores)]
    # The file has the peaks in the order of their measurement.
    return max(reversed(fitting), key=lambda peaks: peaks.measured, default=None)


# -- doubts about kept profiles, and how to resolve them


# The standard deviation of the difference between two processes: the least and the most of
# several real models, each run in 40 processes on a shared machine of 2 cores.
APART = (0.06, 0.28)
UNTESTED = (
    "The profiles did not take turns, so no change here is tested: runs of one model that are "
    f"apart in time differ by {100 * APART[0]:g} to {100 * APART[1]:g} % though nothing changed."
)


def describe_doubt(found: SideBySide) -> str:
    """Name the cases that differ by more than such runs usually do. That proves no change."""
    large = [pair.id for pair in found.pairs if is_large(pair)]
    if not large:
        return "none of this is shown to be a change"
    if len(large) == len(found.pairs):
        return "the difference is larger than that, but not tested"
    return (
        f"the difference of {', '.join(large)} is larger than that, but not tested; the rest "
        "may be noise"
    )


def is_large(pair: CasePair) -> bool:
    """Whether the medians differ by more than two runs of one model usually do."""
    most = 1 + APART[1]
    return pair.ratio is not None and not 1 / most <= pair.ratio <= most


def judging_command(found: SideBySide) -> str:
    """Return the command that runs the two in turn, with options for what differs."""
    unlike = {each.what for each in found.unlike}
    pair = found.pairs[0]
    model = found.after.profile.model
    now = shell_path(model.path or model.name)
    case = pair.after.case
    if CALLABLE_ENGINE in {_engine_words(pair.before).name, _engine_words(pair.after).name}:
        # No command runs two functions in turn.
        return f"modelperf doctor --cores {case.cores}"
    engine = engine_options(_engine_words(pair.after).name)
    options = " ".join([*engine, *case_options(case)])
    if MODEL_FILE in unlike:
        before = found.before.profile.model.path
        old = "OLD.onnx" if before in {None, model.path} else shell_path(before or "")
        return f"modelperf compare {old} {now} {options}"
    if ENGINE in unlike and _is_other_version(pair):
        return f"modelperf compare {now} {now} --python-a OTHER_PYTHON {options}"
    if ENGINE in unlike:
        both = " ".join([_both_engines(pair), *case_options(case)])
        return f"modelperf compare {now} {now} {both}"
    if pair.before.case.id != case.id or DIMENSIONS in unlike:
        batches, cores = (
            ",".join(dict.fromkeys(map(str, sizes)))
            for sizes in (
                (pair.before.case.batch_size, case.batch_size),
                (pair.before.case.cores, case.cores),
            )
        )
        dims = [f"--dim {shell_word(dim)}" for dim in _both_sizes(pair.before.case, case)]
        lengths = length_options([pair.before.case, case])
        sizes = [f"--batch {batches} --cores {cores}", *dims, *lengths]
        return " ".join([f"modelperf sweep {now}", *engine, *sizes])
    return " ".join([f"modelperf doctor {now}", *engine, *size_options(case)])


def roofline_command(named: NamedProfile, cases: Sequence[CaseProfile]) -> str:
    """Return the command that measures these cases again with a roofline.

    It keeps them under another name.
    """
    model = named.profile.model
    batches = dict.fromkeys(str(case.case.batch_size) for case in cases)
    cores = dict.fromkeys(str(case.case.cores) for case in cases)
    dims = dict.fromkeys(dim for case in cases for dim in case.case.sizes.items())
    engines = dict.fromkeys(_engine_words(case).name for case in cases)
    return " ".join(
        [
            f"modelperf profile {shell_path(model.path or model.name)}",
            f"--batch {','.join(batches)} --cores {','.join(cores)}",
            *(f"--dim {shell_word(f'{name}={size}')}" for name, size in dims),
            *length_options([case.case for case in cases]),
            *engine_options(*engines),
            "--roofline --name NAME",
        ]
    )


def _both_sizes(before: Case, now: Case) -> list[str]:
    """Return the --dim values that make both cases: `seq=64,128`, or `seq=64,past=0` for each."""
    cases = [before.sizes, now.sizes]
    names = list({**cases[0], **cases[1]})
    sizes = {name: list(dict.fromkeys(c[name] for c in cases if name in c)) for name in names}
    is_paired = sum(len(each) > 1 for each in sizes.values()) > 1
    if is_paired and cases[0].keys() == cases[1].keys():
        return [",".join(f"{name}={case[name]}" for name in names) for case in cases]
    return [f"{name}={','.join(map(str, sizes[name]))}" for name in names]


def _both_engines(pair: CasePair) -> str:
    old, new = _engine_words(pair.before), _engine_words(pair.after)
    return " ".join(
        [
            f"--engine {shell_word(old.name)} --engine-b {shell_word(new.name)}",
            *(
                f"{flag} {shell_word(f'{key}={value}')}"
                for flag, own, other in (
                    ("--engine-option", old, new),
                    ("--engine-option-b", new, old),
                )
                for key, value in own.options.items()
                if own.name == other.name and other.options.get(key) != value
            ),
        ]
    )


def _is_other_version(pair: CasePair) -> bool:
    old, new = _engine_words(pair.before), _engine_words(pair.after)
    return (old.name, old.options) == (new.name, new.options)


def _engine_words(case: CaseProfile) -> EngineFacts:
    if case.measured is None:
        raise ValueError("one case of the pair did not run")
    return case.measured.engine
