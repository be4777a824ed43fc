"""The questions that kept profiles leave open, and the commands that answer them."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.shown.case_options import (
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
    NamedProfile,
    SideBySide,
)
from pytest_modelperf.text.quoting import shell_path, shell_word

# The standard deviation of the difference between two processes: the least and the most of
# several real models, each run in 40 processes on a shared machine of 2 cores.
APART = (0.06, 0.28)
UNTESTED = (
    "The profiles did not take turns, so no change here is tested: runs of one model that are "
    f"apart in time differ by {100 * APART[0]:g} to {100 * APART[1]:g} % though nothing changed."
)


def describe_doubt(found: SideBySide) -> str:
    """The cases that differ by more than such runs usually do, which is no proof of a change."""
    large = [pair.id for pair in found.pairs if is_large(pair)]
    if not large:
        return "none of this is shown to be a change"
    if len(large) == len(found.pairs):
        return "the difference is larger than that, and not tested"
    return (
        f"the difference of {', '.join(large)} is larger than that, and not tested; nothing else "
        "is shown to be a change"
    )


def is_large(pair: CasePair) -> bool:
    """Whether the medians differ by more than two runs of one model usually do."""
    most = 1 + APART[1]
    return pair.ratio is not None and not 1 / most <= pair.ratio <= most


def judging_command(found: SideBySide) -> str:
    """The command that runs the two in turn, by what differs between them."""
    unlike = {each.what for each in found.unlike}
    pair = found.pairs[0]
    model = found.after.profile.model
    now = shell_path(model.path or model.name)
    case = pair.after.case
    if CALLABLE_ENGINE in {_engine(pair.before).name, _engine(pair.after).name}:
        # No command runs two functions in turn.
        return f"modelperf doctor --cores {case.cores}"
    engine = engine_options(_engine(pair.after).name)
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
    """The command that measures these cases again, and keeps their roofline under another name."""
    model = named.profile.model
    batches = dict.fromkeys(str(case.case.batch_size) for case in cases)
    cores = dict.fromkeys(str(case.case.cores) for case in cases)
    dims = dict.fromkeys(dim for case in cases for dim in case.case.sizes.items())
    engines = dict.fromkeys(_engine(case).name for case in cases)
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
    """The values of --dim that make both cases: `seq=64,128`, or `seq=64,past=0` for each."""
    cases = [before.sizes, now.sizes]
    names = list({**cases[0], **cases[1]})
    sizes = {name: list(dict.fromkeys(c[name] for c in cases if name in c)) for name in names}
    is_paired = sum(len(each) > 1 for each in sizes.values()) > 1
    if is_paired and cases[0].keys() == cases[1].keys():
        return [",".join(f"{name}={case[name]}" for name in names) for case in cases]
    return [f"{name}={','.join(map(str, sizes[name]))}" for name in names]


def _both_engines(pair: CasePair) -> str:
    """The options that choose the engine of each side, and what differs of one engine."""
    old, new = _engine(pair.before), _engine(pair.after)
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
    """Whether one engine ran both cases with the same options, in two versions."""
    old, new = _engine(pair.before), _engine(pair.after)
    return (old.name, old.options) == (new.name, new.options)


def _engine(case: CaseProfile) -> EngineFacts:
    """The engine of a case that ran, as both cases of a pair did."""
    if case.measured is None:
        raise ValueError("one case of the pair did not run")
    return case.measured.engine
