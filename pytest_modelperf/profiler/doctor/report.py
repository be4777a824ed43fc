"""Report the checkups of a machine: what can be detected, the evidence, and what to do."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence

from pytest_modelperf.profiler.doctor.records import Checkup, Outlook
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import Noise
from pytest_modelperf.profiler.shown.facts import (
    MAX_ADVISED_S,
    describe_engine,
    describe_machine_line,
    find_noise,
    format_share,
    rounded_up,
    run_table,
)
from pytest_modelperf.report.model import (
    Code,
    Line,
    On,
    Paragraph,
    Report,
    Rows,
    Section,
    Sheet,
    Tone,
    lines_of,
)
from pytest_modelperf.report.tables import Cell, Column, Table, table_of
from pytest_modelperf.stats.records import Growth, Ratio
from pytest_modelperf.text.units import format_ms, percent
from pytest_modelperf.text.words import count_of, shell_path

CHECKUP_COLUMNS = (
    *("cores", "p50_ms", "rounds", "seconds", "ratio", "ratio_low", "ratio_high"),
    *("spread_inferences", "spread_sessions", "detectable", "growth_bytes_per_inference"),
)
_NS_PER_MS = 1e6
_FIT = "fit to measure"
_NOISY = "noisy"
_FEW = "too few rounds to tell"
_SET_GOVERNOR = "sudo cpupower frequency-set -g performance"
# A checkup of too few rounds gets this many times its seconds.
_LONGER = 4
# What can take processor time away from a round.
_TAKEN = ("other processes", "the hypervisor", "a quota")
# The default tolerance of a comparison.
_TOLERANCE = 0.03
_BYTES_PER_KB = 1000
# If a run cannot exclude this growth per inference, it was too short.
_TELLING_BYTES = 1000
# If two sessions of one model differ by more than this, noise alone does not explain it.
_MAX_BIAS = 0.005


def checkup_report(
    machine: MachineFacts, checkups: Sequence[Checkup], made: dt.datetime | None = None
) -> Report:
    headline = _headline(checkups)
    engine = describe_engine(checkups[0].engine)
    growth = (_describe_growth(c.cores, c.growth) for c in checkups if c.growth)
    advice = Paragraph(lines_of(dict.fromkeys(_advice(machine, checkups))))
    notes = dict.fromkeys(note for checkup in checkups for note in checkup.notes)
    method = (
        f"{checkups[0].model} ran against itself: two sessions in turn, so that any difference is "
        "noise"
    )
    conditions = (describe_machine_line(machine), engine, method)
    rule = [("engine", engine.removeprefix("engine ")), ("tolerance", format_share(_TOLERANCE))]
    return Report(
        title=f"This machine, measured by {checkups[0].model}",
        headline=headline,
        tone=Tone.GOOD if headline == _FIT else Tone.UNSURE,
        opening=(
            *(Line(text=describe_checkup(each), is_bold=True, on=On.TEXT) for each in checkups),
            Line(text=describe_machine_line(machine), on=On.PAGE),
            Line(text=engine, on=On.PAGE),
        ),
        findings=tuple(_findings(machine, checkups)),
        blocks=(
            Paragraph(lines_of(conditions), on=On.TEXT),
            Rows(_noise_table(checkups)),
            Rows(_outlook_table(checkups)),
            Paragraph(lines_of(growth)),
            Section(
                title="What to do",
                sentence="to measure with less noise",
                blocks=(advice,),
                on=On.TEXT,
            ),
            *map(_rounds_section, checkups),
        ),
        closing=lines_of(notes, "note"),
        facts=(run_table([machine], rule, made),),
        sheet=Sheet(CHECKUP_COLUMNS, tuple(map(_cells, checkups))),
    )


def _cells(checkup: Checkup) -> tuple[Cell, ...]:
    ratio, spread, growth = checkup.ratio, checkup.spread, checkup.growth
    return (
        *(checkup.cores, checkup.median_ns / _NS_PER_MS, checkup.rounds, checkup.seconds),
        *(ratio.value, ratio.low, ratio.high, spread.inferences, spread.sessions),
        min(filter(math.isfinite, (look.change for look in checkup.outlook)), default=None),
        None if growth is None else growth.bytes_per_inference,
    )


def _headline(checkups: Sequence[Checkup]) -> str:
    verdicts = {_verdict(checkup) for checkup in checkups}
    if verdicts == {_FIT}:
        return _FIT
    return _FEW if verdicts == {_FEW} else _NOISY


def describe_checkup(checkup: Checkup) -> str:
    """Return a sentence on which change can be detected here, and how soon."""
    word = _verdict(checkup)
    return f"{_name(checkup)}: {word}{'; ' if word == _FEW else '. '}{_describe_outlook(checkup)}"


def _name(checkup: Checkup) -> str:
    return count_of(checkup.cores, "core")


def _verdict(checkup: Checkup) -> str:
    if _first_detecting(checkup) is not None:
        return _FIT
    return _NOISY if math.isfinite(_best(checkup).change) else _FEW


def _best(checkup: Checkup) -> Outlook:
    return min(checkup.outlook, key=lambda look: look.change)


def _describe_outlook(checkup: Checkup) -> str:
    enough, best = _first_detecting(checkup), _best(checkup)
    if enough is not None:
        took = _format_took(enough.seconds)
        return f"A slowdown of {percent(enough.change)} or more is seen in {took}"
    if not math.isfinite(best.change):
        return "--max-seconds makes time for more"
    return (
        f"A slowdown must be {percent(best.change)} to be seen in {_format_took(best.seconds)}; "
        f"one of {percent(_TOLERANCE)} would mostly be missed"
    )


# -- what a page shows first


def _findings(machine: MachineFacts, checkups: Sequence[Checkup]) -> Iterator[Section]:
    """Yield each core count, the noisiest first, with its causes and what to type."""
    for checkup in sorted(checkups, key=lambda each: -_best(each).change):
        word = _verdict(checkup)
        lines = (*_noise_lines(checkup), *_advice_on_checkup(machine, checkup))
        yield Section(
            title=_name(checkup),
            word=word,
            sentence=_describe_outlook(checkup),
            tone=Tone.GOOD if word == _FIT else Tone.UNSURE,
            blocks=(Paragraph(lines_of(lines)), *_next_steps(checkup)),
        )
    of_machine = Paragraph(lines_of(_advice_on_machine(machine)))
    if not of_machine.is_empty:
        code = Code("keep the clock steady", _SET_GOVERNOR, is_command=True)
        blocks = (of_machine, *([code] if _may_set_governor(machine) else []))
        yield Section(title="This machine", blocks=blocks)


def _next_steps(checkup: Checkup) -> Iterator[Code]:
    """Yield the next commands: a tolerance that can be detected, or a longer checkup."""
    if _verdict(checkup) == _FIT:
        yield Code("check your models", "pytest --modelperf", is_command=True)
        return
    best = _best(checkup)
    seconds = _LONGER * checkup.seconds
    if math.isfinite(best.change):
        # Twice the precision takes four times as long.
        seconds = best.seconds * (best.change / _TOLERANCE) ** 2
        share = math.ceil(100 * best.change) / 100
        option = f"--modelperf-tolerance p50={share:g}"
        yield Code("allow what can be detected", f"pytest --modelperf {option}", is_command=True)
    if seconds <= MAX_ADVISED_S:
        model = [] if checkup.growth is None else [shell_path(checkup.model)]
        options = f"--cores {checkup.cores} --max-seconds {rounded_up(seconds)}"
        words = ["modelperf doctor", *model, options]
        yield Code("measure again with more time", " ".join(words), is_command=True)


def _describe_growth(cores: int, growth: Growth) -> str:
    on = f"memory on {count_of(cores, 'core')}"
    run = f"{growth.inferences:,} inferences"
    interval = (
        f"{100 * growth.confidence:g} % interval {_format_kilobytes(growth.low)} to "
        f"{_format_kilobytes(growth.high)} KB"
    )
    if growth.is_shown:
        size = _format_kilobytes(growth.bytes_per_inference)
        return f"{on}: grows by {size} KB with every inference ({interval}, {run})"
    if growth.high > _TELLING_BYTES:
        return (
            f"{on}: no growth shown, but {run} do not exclude one of "
            f"{_format_kilobytes(growth.high)} KB an inference; --max-seconds makes time for more"
        )
    return f"{on}: no growth shown in {run} ({interval} an inference)"


def _format_kilobytes(value: float) -> str:
    return f"{value / _BYTES_PER_KB:.2f}".replace("-0.00", "0.00")


def _first_detecting(checkup: Checkup) -> Outlook | None:
    """Return the outlook with the fewest rounds that would detect a change beyond the tolerance."""
    return next((look for look in checkup.outlook if look.change <= _TOLERANCE), None)


def _noise_table(checkups: Sequence[Checkup]) -> Table:
    return table_of(
        "noise",
        checkups,
        (Column("cores"), lambda each: str(each.cores)),
        (Column("ms"), lambda each: format_ms(each.median_ns)),
        (Column("rounds"), lambda each: str(each.rounds)),
        (Column("took"), lambda each: _format_took(each.seconds)),
        (Column("difference"), lambda each: _format_ratio(each.ratio.value)),
        (Column("95 % interval"), lambda each: _format_interval(each.ratio)),
        (Column("within ±"), lambda each: _format_spread(each.spread.inferences)),
        (Column("between ±"), lambda each: _format_spread(each.spread.sessions)),
        caption="difference: the second session against the first, paired by turns\n"
        "±: standard deviation within a session, and between the medians of sessions",
    )


def _rounds_section(checkup: Checkup) -> Section:
    """Return the difference and the disturbances of each round, for the HTML page only."""
    processors = len(checkup.processors or ()) or checkup.cores
    columns = ("round", "difference", *_TAKEN, "interrupted")
    rows = (
        (
            *(str(number), _format_ratio(ratio)),
            _share(noise.others_ns, noise, processors),
            _share(noise.stolen_ns, noise, processors),
            _share(noise.throttled_ns, noise),
            "?" if noise.involuntary_switches is None else str(noise.involuntary_switches),
        )
        for number, (ratio, noise) in enumerate(zip(checkup.ratios, checkup.noise, strict=True), 1)
    )
    table = Table(
        "",
        tuple(map(Column, columns)),
        tuple(rows),
        caption="difference: the second session against the first; without noise it would be 0\n"
        f"{', '.join(_TAKEN)}: shares of the time of the processors of a round",
    )
    return Section(
        title=count_of(checkup.cores, "core"),
        sentence="round by round",
        blocks=(Rows(table),),
        is_open=False,
        on=On.PAGE,
    )


def _share(ns: int | None, noise: Noise, processors: int = 1) -> str:
    if ns is None or not noise.wall_ns:
        return "?"
    return percent(max(ns, 0) / (noise.wall_ns * processors))


def _outlook_table(checkups: Sequence[Checkup]) -> Table:
    """Return a table with a row for each number of rounds and a column for each core count."""
    cores = (Column(count_of(checkup.cores, "core")) for checkup in checkups)
    looks = zip(*(checkup.outlook for checkup in checkups), strict=True)
    power, level = round(100 * checkups[0].power), 100 * checkups[0].level
    return Table(
        "the slowdown that a comparison would see",
        (Column("rounds"), *cores),
        tuple((str(each[0].rounds), *map(_format_look, each)) for each in looks),
        caption=f"seen {power} times in 100, with {level:g} false alarm in 100 comparisons",
    )


def _format_look(look: Outlook) -> str:
    """Return the slowdown and the time it takes to detect, such as `2.0 % in 12.0 s`."""
    if not math.isfinite(look.change):
        return _format_seen(look.change)
    return f"{_format_seen(look.change)} in {_format_took(look.seconds)}"


def _advice(machine: MachineFacts, checkups: Sequence[Checkup]) -> Iterator[str]:
    for checkup in checkups:
        for line in _noise_lines(checkup):
            yield f"{checkup.cores}-core case: {line}"
    yield from _advice_on_machine(machine)
    for checkup in checkups:
        yield from _advice_on_checkup(machine, checkup)
        if _first_detecting(checkup) is None:
            yield (
                f"on {_name(checkup)} allow more than {percent(_TOLERANCE)}, or give each case "
                "more time (--max-seconds)"
            )


def _noise_lines(checkup: Checkup) -> Iterator[str]:
    found = find_noise(checkup.noise, len(checkup.processors or ()) or checkup.cores)
    return (f"{what}: {remedy}" for what, remedy in found.items())


def _advice_on_machine(machine: MachineFacts) -> Iterator[str]:
    if _may_set_governor(machine):
        yield (
            f"the governor {machine.governor} changes the clock with the load: "
            f"set it to performance ({_SET_GOVERNOR})"
        )
    if machine.turbo:
        yield (
            "turbo is on: the clock follows the heat, so times of different days differ. A duet "
            "cancels it; for absolute budgets, switch it off"
        )
    if machine.virtualization is not None:
        yield (
            f"this is a shared or virtual machine ({machine.virtualization}): compare "
            "versions in one run, never times of different days"
        )


def _may_set_governor(machine: MachineFacts) -> bool:
    return machine.governor not in (None, "performance")


def _advice_on_checkup(machine: MachineFacts, checkup: Checkup) -> Iterator[str]:
    if machine.usable_cores is not None and 1 < checkup.cores >= machine.usable_cores:
        yield (
            f"a case of {checkup.cores} cores leaves none for the rest of the system: measure "
            "with one core less if you can"
        )
    ratio = checkup.ratio
    if not _may_be_one(ratio):
        yield (
            f"two sessions of one model differed by {_format_ratio(ratio.value)} on "
            f"{count_of(checkup.cores, 'core')}, more than their interval allows: measure again "
            "with more rounds (--max-seconds)"
        )


def _may_be_one(ratio: Ratio) -> bool:
    """Whether both sessions may have taken the same time."""
    low, high = ratio.interval or (1.0, 1.0)
    return low - _MAX_BIAS <= 1.0 <= high + _MAX_BIAS


def _format_interval(ratio: Ratio) -> str:
    """Return an interval such as `-1.2 … +0.8 %`, or an empty text if there is none."""
    return " … ".join(map(_format_ratio, ratio.interval or ())).replace(" % …", " …")


def _format_ratio(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _format_spread(value: float | None) -> str:
    return "?" if value is None else percent(value)


def _format_seen(change: float) -> str:
    return percent(change) if math.isfinite(change) else "none"


def _format_took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
