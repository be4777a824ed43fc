"""The roofline of the counts: the least time on this machine, without a run."""

from __future__ import annotations

import shlex
from pathlib import Path

from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts, Profile
from pytest_modelperf.roofline.records import Peaks, Roofline, Rooflines, theoretical_roofs
from pytest_modelperf.roofline.store import find_peaks
from pytest_modelperf.text.words import count_of


def find_theoretical_rooflines(
    counted: Profile, machine: MachineFacts, folder: Path, engine: str
) -> Rooflines:
    """Every counted case beneath the kept peaks of this machine; nothing is measured.

    Peaks belong to an engine and a number of cores. If there are several versions or options of
    an engine, the peaks that were measured last are used.
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
    """The note that no peaks are known, with the command that measures them, if one can."""
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
        f"known. Measured by: {command}"
    )


def _latest(kept: tuple[Peaks, ...], engine: str, cores: int) -> Peaks | None:
    fitting = [peaks for peaks in kept if (peaks.engine, peaks.cores) == (engine, cores)]
    # Peaks that were measured later stand later in the file.
    return max(reversed(fitting), key=lambda peaks: peaks.measured, default=None)
