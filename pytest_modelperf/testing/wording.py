"""The words of a run: names of settings in errors and advice, and lines about the run.

The lines name the machine, the outcome, and what to type next.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import UpdatePlan
from pytest_modelperf.comparing.figures import LATENCY, is_sampled
from pytest_modelperf.comparing.findings import advise_all
from pytest_modelperf.comparing.limits import Tolerances, read_tolerances
from pytest_modelperf.comparing.records import XFAILED, CaseComparison, Verdict
from pytest_modelperf.comparing.tables import CaseView
from pytest_modelperf.comparing.verdict_lines import (
    FAILED,
    SEVERITY,
    describe_verdict,
    failure_lines,
    hidden_tails,
    is_quiet,
    naming,
    rank_case,
)
from pytest_modelperf.errors import ModelPerfError, UsageError, Wording
from pytest_modelperf.files.names import model_name
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.programs.messages import RECORDED_ENVIRONMENT
from pytest_modelperf.report.model import Choice
from pytest_modelperf.spec.case_definitions import BATCH_SIZE, CORES, DIMS, INPUTS, STATE
from pytest_modelperf.spec.run_definitions import (
    BASELINE_PYTHON,
    ENGINE_OPTION,
    JSON,
    MAX_SECONDS,
    STATIC_ONLY,
    TIMEOUT,
    TOLERANCE,
)
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.text.escaping import printable, printable_lines
from pytest_modelperf.text.units import format_seconds
from pytest_modelperf.text.words import (
    count_of,
    list_names,
    quoted_text,
    shell_path,
    shell_word,
    toml_key,
)

if TYPE_CHECKING:
    from pytest_modelperf.sizing.records import FoundSizes


_MODEL_TABLE = 'the table of the model, [tool.modelperf.models."PATH"] in pyproject.toml'


class PythonWording(Wording):
    """The wording of markers and the fixture: `dims={"seq": SIZE}`.

    Arguments and keys have the same names. The other settings are options of pytest.
    """

    names: Mapping[str, str] = {
        "baseline_python": BASELINE_PYTHON.flag,
        "batch": BATCH_SIZE.word,
        "cores": CORES.word,
        "dims": DIMS.word,
        "engine_option": ENGINE_OPTION.flag,
        "inputs": INPUTS.word,
        "json": JSON.flag,
        "max_seconds": MAX_SECONDS.flag,
        "state": f'{STATE.word}={{"PAST": "PRESENT"}}',
        "static": STATIC_ONLY.flag,
        "timeout": TIMEOUT.flag,
        "tolerance": TOLERANCE.flag,
    }

    def sizes(self, dims: Sequence[str]) -> str:
        return f"dims={{{', '.join(f'{quoted_text(name)}: SIZE' for name in dims)}}}"


class _TableWording(PythonWording):
    """The wording of tables: `dims = {seq = SIZE}`, with the name of the table."""

    names: Mapping[str, str] = {
        **PythonWording.names,
        "state": f'state = {{"PAST" = "PRESENT"}} in {_MODEL_TABLE}',
    }

    def sizes(self, dims: Sequence[str]) -> str:
        sizes = ", ".join(f"{toml_key(name)} = SIZE" for name in dims)
        return f"dims = {{{sizes}}} in {_MODEL_TABLE}"


PYTHON_WORDING = PythonWording()
TABLE_WORDING = _TableWording()


def recording_with(command: str | None) -> Wording:
    """Return the wording of reports, with this command to record baselines unless it is None."""
    return PYTHON_WORDING if command is None else PythonWording(printable(command))


def in_python(error: ModelPerfError) -> str:
    """Format an error for the user who wrote a marker or a call of the fixture."""
    return printable_lines(_with_sizes(error, PYTHON_WORDING, _as_arguments))


def in_table(error: ModelPerfError, path: str = "", *, has_table: bool = False) -> str:
    """Format an error for the user who wrote the table of a model. `path` is its key."""
    paste = partial(_as_table, path, has_table=has_table)
    return printable_lines(_with_sizes(error, TABLE_WORDING, paste))


def _with_sizes(error: ModelPerfError, wording: Wording, paste: Callable[[FoundSizes], str]) -> str:
    if error.asked is None:
        return error.worded(wording)
    # Imported here, because few runs need it.
    from pytest_modelperf.sizing.finding import sizes_for

    found = sizes_for(error)
    if found is None:
        return error.worded(wording)
    if not found.is_found:
        return f"{error.worded(wording)}\n{found.error}"
    from pytest_modelperf.sizing.finding import render_advice

    return f"{error.message} {render_advice(found, paste(found))}"


def _as_arguments(found: FoundSizes) -> str:
    from pytest_modelperf.sizing.finding import render_arguments

    return render_arguments(found)


def _as_table(path: str, found: FoundSizes, *, has_table: bool) -> str:
    from pytest_modelperf.sizing.finding import render_table, table_lines

    return "\n".join(table_lines(found)) if has_table else render_table(found, path)


def record(typed: Sequence[str], *tests: str) -> str:
    return " ".join([PYTHON_WORDING.record, *typed, *tests])


def record_new(typed: Sequence[str]) -> str:
    return " ".join([f"{PYTHON_WORDING.record}=new", *typed])


def prune(typed: Sequence[str]) -> str:
    """Return the command that deletes the baselines that no test uses."""
    return " ".join(["pytest --modelperf --modelperf-prune", *typed])


def profile_alone(outcome: CaseOutcome) -> str | None:
    """Return the command that runs a case without pytest, or None if sizes are not enough."""
    phase = outcome.comparison.case.phase
    plain = Case(outcome.batch_size, outcome.cores, phase=phase)
    if outcome.model.path is None or outcome.comparison.id != plain.id:
        return None
    words = ["modelperf profile", shell_path(outcome.model.path)]
    words += [f"--batch {outcome.batch_size}", f"--cores {outcome.cores}"]
    chosen = (*outcome.generation_options, *outcome.engine_options)
    return " ".join([*words, *map(shell_word, chosen)])


# -- lines about a test run


# The chance that a run reports something as worse that is not. Its gates share it.
FALSE_ALARMS = 0.01
# The chance that a case exactly at its tolerance passes, for each case.
FALSE_PASSES = 0.05
# A baseline that is slower by this factor than when it was recorded is reported.
_SLOW_FACTOR = 1.25
_TELLS_TAILS = frozenset({Verdict.PASSED, Verdict.IMPROVED})


def rank_outcome(outcome: CaseOutcome) -> tuple[int, float]:
    return rank_case(outcome.word, outcome.comparison)


def describe_outcome(outcome: CaseOutcome, *, is_short: bool = False) -> str:
    """Return the verdict in a sentence, or the reason why there is none."""
    described = _describe(outcome, is_short=is_short)
    described = f"upgrade of the engine: {described}" if outcome.is_upgrade else described
    return f"{XFAILED}: {described}" if outcome.is_xfailed else described


def _describe(outcome: CaseOutcome, *, is_short: bool) -> str:
    case = outcome.comparison
    if case.has_failed:
        lines = failure_lines(case)
        what = "measured" if outcome.recording is None else "stored"
        why = _without_model(lines[0], outcome) if is_short and lines else f"it could not be {what}"
        return f"{FAILED}: {why}"
    if case.verdict is Verdict.NEW and case.reasons:
        return f"{Verdict.NEW.value}: {printable(case.reasons[0])}"
    return describe_verdict(case, outcome.confidence, is_short=is_short)


def _without_model(line: str, outcome: CaseOutcome) -> str:
    file, model = outcome.test.partition("::")[0], outcome.model
    for name in filter(None, (file, model.path, model.name)):
        line = line.removeprefix(f"{printable(name)}: ")
        if line.startswith(f"{printable(name)} "):
            return f"it{line.removeprefix(printable(name))}"
    return line


def view_of(outcome: CaseOutcome, name: str, choice: Choice | None = None) -> CaseView:
    return CaseView(
        name=name,
        word=outcome.word,
        compared=without_shown_reason(outcome),
        latency=outcome.latency,
        static=outcome.static,
        choice=choice,
    )


def without_shown_reason(outcome: CaseOutcome) -> CaseComparison:
    """Remove the first reason of a new case, which its verdict line already shows."""
    case = outcome.comparison
    is_shown = case.verdict is Verdict.NEW and not case.has_failed
    return replace(case, reasons=case.reasons[1:]) if is_shown else case


def describe_counts(outcomes: Sequence[CaseOutcome]) -> str:
    """Return `1 regressed, 1 new, 2 passed`, the worst first."""
    found = Counter(outcome.word for outcome in outcomes)
    return ", ".join(f"{found[word]:,} {word}" for word in SEVERITY if found[word])


def describe_place(report: RunReport) -> str:
    """Return `linux-x86_64-icelake-2c, onnxruntime 1.31.1, 2 cases in 4.3 s`."""
    machines = [o.machine.key for o in report.outcomes if o.machine is not None]
    if report.machine is not None:
        machines.insert(0, report.machine.key)
    engines = sorted(
        {
            engine
            for outcome in report.outcomes
            for engine in (outcome.engine, *outcome.comparison.engines)
            if engine
        }
    )
    upgrades = sum(outcome.is_upgrade for outcome in report.outcomes)
    cases = count_of(len(report.outcomes) - upgrades, "case")
    if upgrades:
        cases += f" and {count_of(upgrades, 'upgrade')}"
    took = f" in {format_seconds(report.seconds)}" if report.seconds else ""
    return printable(", ".join([*dict.fromkeys(machines), *engines, f"{cases}{took}"]))


def describe_ending(report: RunReport) -> str:
    """Return the counts of outcomes and, if times were judged, the bound on false alarms."""
    counts = f"{describe_counts(report.outcomes) or 'no case'}."
    return f"{counts} {describe_alarms(report)}".rstrip()


def describe_alarms(report: RunReport) -> str:
    """Return the error rates of the run, or an empty text if no time was judged."""
    is_judged = any(
        metric.gated and is_sampled(metric.name)
        for outcome in report.outcomes
        if not outcome.comparison.is_unjudged
        for metric in outcome.comparison.metrics
    )
    if not is_judged:
        return ""
    return (
        f"False-alarm bound for this run: {100 * FALSE_ALARMS:g} %. "
        f"A model exactly at its tolerance passes in at most {100 * FALSE_PASSES:g} %."
    )


def next_steps(report: RunReport) -> Iterator[tuple[str, str]]:
    strictly = "; --modelperf-strict fails such a case" if report.is_strict else ""
    if any(o.word == Verdict.REGRESSED.value and o.accept for o in report.outcomes):
        yield Verdict.REGRESSED.value, "each failure names the command that accepts it"
    wording = recording_with(record(report.typed))
    for advice in advise_all(outcome.comparison for outcome in report.outcomes):
        yield Verdict.INCONCLUSIVE.value, f"{advice.in_words(wording)}{strictly}"
    yield from _hidden_tails(report.outcomes)
    yield from _unjudged_upgrades(report.outcomes)
    yield from _slow_baselines(report.outcomes)
    new = [outcome for outcome in report.outcomes if _has_no_baseline(outcome)]
    other = [outcome for outcome in new if _has_other_baseline(outcome)]
    for outcome in other:
        yield Verdict.NEW.value, printable(f"{outcome.test}: {outcome.comparison.reasons[0]}")
    if len(new) > len(other):
        command = printable(record_new(report.typed))
        yield Verdict.NEW.value, f"record what is new with {command}{strictly}"
    if report.unused:
        # A program has the id of its test in place of a case.
        unused = list_names(
            [
                printable(case) if "::" in case else f"{model_name(folder)}::{case}"
                for folder, case in report.unused
            ]
        )
        yield "unused baselines", f"{unused}; {printable(prune(report.typed))} removes them"


def _has_no_baseline(outcome: CaseOutcome) -> bool:
    """Whether it is new and was not recorded, even if its test expects a failure."""
    is_new = outcome.verdict is Verdict.NEW and not outcome.has_failed
    return is_new and not outcome.is_recorded


def _has_other_baseline(outcome: CaseOutcome) -> bool:
    """Whether its baseline was recorded at other sizes or on other inputs."""
    return any(reason.startswith("the baseline of ") for reason in outcome.comparison.reasons[:1])


def _unjudged_upgrades(outcomes: Sequence[CaseOutcome]) -> Iterator[tuple[str, str]]:
    """Yield the engines that changed since baselines were recorded, and how to judge that."""
    if any(outcome.is_upgrade for outcome in outcomes):
        return
    found = Counter(o.engine_change for o in outcomes if o.engine_change is not None)
    for change, count in sorted(found.items()):
        cases = f"{count_of(count, 'case')} {'was' if count == 1 else 'were'} recorded"
        both = f"both sides ran on {printable(change.installed)}"
        judging = "--modelperf-judge-upgrades judges the upgrade"
        yield "engine", f"{printable(str(change))} since {cases}, and {both}; {judging}"


def _slow_baselines(outcomes: Sequence[CaseOutcome]) -> Iterator[tuple[str, str]]:
    factors = [
        factor
        for outcome in outcomes
        if (factor := outcome.comparison.baseline_factor) is not None and factor > _SLOW_FACTOR
    ]
    if factors:
        low, high = (f"{100 * (factor - 1):.0f}" for factor in (min(factors), max(factors)))
        span = low if low == high else f"{low} to {high}"
        takes, were = ("takes", "it was") if len(factors) == 1 else ("take", "they were")
        text = (
            f"{count_of(len(factors), 'baseline')} {takes} {span} % longer than when {were} "
            "recorded on such a machine. Ratios hold, because both sides ran in turn; budgets of "
            "time are held against the slower machine. `modelperf doctor` looks for a cause"
        )
        yield "machine", text


def _hidden_tails(outcomes: Sequence[CaseOutcome]) -> Iterator[tuple[str, str]]:
    found = Counter(
        (metric.name, naming(outcome.comparison, [metric], PYTHON_WORDING))
        for outcome in outcomes
        if outcome.comparison.verdict in _TELLS_TAILS
        for metric in hidden_tails(outcome.comparison)
    )
    for (name, waiting), count in sorted(found.items()):
        tail = name.removeprefix(LATENCY)
        cases = count_of(count, "case")
        yield tail, f"too few samples in {cases} to show a change; {waiting} waits for it"


def describe_writing(report: RunReport) -> str:
    changing = [plan for plan in report.plans if not plan.is_empty]
    if not changing:
        return "baselines already up to date"
    if not report.is_written:
        return "nothing was written"
    parts = [
        f"{verb} {list_names(names)}"
        for verb, names in (
            ("wrote the baselines of", _names(changing, is_removed=False)),
            ("removed those of", _names(changing, is_removed=True)),
        )
        if names
    ]
    return "; ".join(parts)


def _names(plans: Sequence[UpdatePlan], *, is_removed: bool) -> list[str]:
    # Each plan is about one kind of machine, so a name may occur several times.
    names = (plan.name for plan in plans if (plan.after is None) is is_removed)
    return list(map(model_name, dict.fromkeys(names)))


def is_worth_a_line(outcome: CaseOutcome) -> bool:
    """Whether it needs attention, unlike a case that passed or is unchanged."""
    return not is_quiet(outcome.comparison)


# -- the keywords of `modelperf.check` that are not passed to the function


WORDS = ("against", "environment", "paths", "tolerance", "outputs", "cores")
# Two processes of a program differ by more than two sessions of a model do.
_TOLERANCE = 0.05


class ProgramWords(Struct, frozen=True, kw_only=True):
    """The settings of a test for the check of its program.

    `cores` are the ids of the processors to which it is pinned. None leaves it unpinned.
    """

    against: str | None
    environment: str | None
    paths: tuple[str, ...]
    tolerances: Tolerances
    outputs: str | None
    cores: tuple[int, ...] | None


def read_words(given: Mapping[str, object], settings: RunSettings) -> ProgramWords:
    """Read the keywords of a call, or raise UsageError for an invalid one."""
    _require_tuples(given.get("each"))
    return ProgramWords(
        against=_against(given.get("against")) or settings.against,
        environment=_environment(given.get("environment")),
        paths=_paths(given.get("paths", ())),
        tolerances=_tolerances(settings.tolerances, given.get("tolerance")),
        outputs=_outputs(given.get("outputs")),
        cores=_cores(given.get("cores")),
    )


def _require_tuples(each: object) -> None:
    if each is None:
        return
    inputs = each if isinstance(each, list | tuple) else [each]
    # A list of arguments is as clear as a tuple; a text or an array is an argument.
    wrong = next((given for given in inputs if not isinstance(given, list | tuple)), None)
    if wrong is not None or not inputs:
        found = "none" if wrong is None else f"a value of type {type(wrong).__name__}"
        raise UsageError(
            "modelperf.check: each takes tuples of the arguments of a call, as in "
            f"each=[(a,), (b,)], not {found}."
        )


def _tolerances(settings: Tolerances, given: object) -> Tolerances:
    if given is not None:
        found = read_tolerances(given, "modelperf.check: tolerance")
        is_median_given = not isinstance(given, Mapping) or bool({"p50"} & set(given))
    else:
        found, is_median_given = settings, settings != Tolerances()
    median = found.of(50.0) if is_median_given else _TOLERANCE
    named = {percent: found.of(percent) for percent in found.named}
    return replace(found, shares=tuple(sorted({**named, 50.0: median}.items())))


def _against(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"modelperf.check: against takes a text such as 'main', not {value!r}.")
    return value


def _environment(value: object) -> str | None:
    if value not in {None, RECORDED_ENVIRONMENT}:
        raise UsageError(
            f"modelperf.check: environment can be {RECORDED_ENVIRONMENT!r}, not {value!r}."
        )
    return None if value is None else RECORDED_ENVIRONMENT


def _outputs(value: object) -> str | None:
    if callable(value):
        return "given"
    if value not in {None, "==", "allclose"}:
        raise UsageError(
            f"modelperf.check: outputs can be '==', 'allclose' or a function of both results, not "
            f"{value!r}."
        )
    return None if value is None else str(value)


def _paths(value: object) -> tuple[str, ...]:
    if isinstance(value, str | os.PathLike):
        value = (value,)
    if not isinstance(value, Sequence) or not all(isinstance(v, str | os.PathLike) for v in value):
        raise UsageError(
            f"modelperf.check: paths takes folders of the project such as ['src'], not {value!r}."
        )
    return tuple(str(each) for each in value)


def _cores(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"modelperf.check: cores takes a number such as 1, not {value!r}.")
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if value > len(allowed):
        raise UsageError(
            f"modelperf.check: {value} cores are wanted, and a program can be pinned to "
            f"{len(allowed)} here."
        )
    return tuple(allowed[:value])
