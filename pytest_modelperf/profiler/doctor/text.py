"""The report on a machine: how noisy it is, what could be detected on it, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_modelperf.profiler.doctor.records import Checkup, Outlook
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.machine.pages import REMEDY
from pytest_modelperf.profiler.shown.conditions import (
    describe_engine,
    describe_machine_line,
    find_noise,
)
from pytest_modelperf.report.page import PageStyle, write_items
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.stats.records import Growth, Ratio
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_ms, percent
from pytest_modelperf.text.words import count_of

# The default tolerance of a comparison.
TOLERANCE = 0.03
_BYTES_PER_KB = 1000
# A run that cannot tell this growth an inference was too short.
_TELLING_BYTES = 1000
# If two sessions of one model differ by more than this, noise alone does not explain it.
_MAX_BIAS = 0.005


def render_checkups(machine: MachineFacts, checkups: Sequence[Checkup], style: PageStyle) -> str:
    """The whole report: the answer first, then its evidence, then what to do."""
    page = style.page()
    for checkup in checkups:
        page.item(describe_checkup(checkup), style="bold")
    page.line("")
    page.item(describe_machine_line(machine))
    page.item(describe_engine(checkups[0].engine))
    page.item(
        f"{printable(checkups[0].model)} ran against itself: two sessions in turn, so that any "
        "difference is noise"
    )
    page.table(noise_table(checkups))
    page.table(outlook_table(checkups))
    for checkup in checkups:
        if checkup.growth is not None:
            page.line("")
            page.item(describe_growth(checkup.cores, checkup.growth))
    notes = dict.fromkeys(note for checkup in checkups for note in checkup.notes)
    write_items(page, [f"note: {printable(note)}" for note in notes])
    advice = list(dict.fromkeys(advice_lines(machine, checkups)))
    if advice:
        page.line("")
        page.line("what to do", "bold cyan")
        for each in advice:
            page.item(each)
    return page.text()


def describe_checkup(checkup: Checkup) -> str:
    """One sentence: which change can be detected here, and how soon."""
    cores = count_of(checkup.cores, "core")
    enough = first_detecting(checkup)
    if enough is None:
        best = min(checkup.outlook, key=lambda look: look.change)
        if not math.isfinite(best.change):
            return f"{cores}: too few rounds to tell; --max-seconds makes time for more"
        return (
            f"{cores}: noisy. A slowdown must be {percent(best.change)} to be seen in "
            f"{format_took(best.seconds)}; one of {percent(TOLERANCE)} would mostly be missed"
        )
    return (
        f"{cores}: fit to measure. A slowdown of {percent(enough.change)} or more is seen in "
        f"{format_took(enough.seconds)}"
    )


def describe_growth(cores: int, growth: Growth) -> str:
    """Whether the memory of the model grows with every inference."""
    on = f"memory on {count_of(cores, 'core')}"
    run = f"{growth.inferences:,} inferences"
    interval = (
        f"{100 * growth.confidence:g} % interval {format_kilobytes(growth.low)} to "
        f"{format_kilobytes(growth.high)} KB"
    )
    if growth.is_shown:
        size = format_kilobytes(growth.bytes_per_inference)
        return f"{on}: grows by {size} KB with every inference ({interval}, {run})"
    if growth.high > _TELLING_BYTES:
        return (
            f"{on}: no growth shown, but {run} do not exclude one of "
            f"{format_kilobytes(growth.high)} KB an inference; --max-seconds makes time for more"
        )
    return f"{on}: no growth shown in {run} ({interval} an inference)"


def format_kilobytes(value: float) -> str:
    return f"{value / _BYTES_PER_KB:.2f}".replace("-0.00", "0.00")


def first_detecting(checkup: Checkup) -> Outlook | None:
    """The first number of rounds after which a change beyond the tolerance would be seen."""
    return next((look for look in checkup.outlook if look.change <= TOLERANCE), None)


def noise_table(checkups: Sequence[Checkup]) -> Table:
    rows = []
    for checkup in checkups:
        ratio = checkup.ratio
        rows.append(
            (
                str(checkup.cores),
                format_ms(checkup.median_ns),
                str(checkup.rounds),
                format_took(checkup.seconds),
                format_ratio(ratio.value),
                format_interval(ratio),
                format_spread(checkup.spread.inferences),
                format_spread(checkup.spread.sessions),
            )
        )
    titles = (
        "cores", "ms", "rounds", "took", "difference", "95 % interval", "within ±",
        "between ±",
    )  # fmt: skip
    caption = (
        "difference: the second session against the first, paired by turns\n"
        "±: standard deviation within a session, and between the medians of sessions"
    )
    return Table("noise", tuple(map(Column, titles)), tuple(rows), caption=caption)


def outlook_table(checkups: Sequence[Checkup]) -> Table:
    columns = (Column("cores"), *(Column(f"{o.rounds} rounds") for o in checkups[0].outlook))
    rows = []
    for checkup in checkups:
        rows.append((str(checkup.cores), *(format_seen(o.change) for o in checkup.outlook)))
        rows.append(("", *(f"in {format_took(o.seconds)}" for o in checkup.outlook)))
    power, level = round(100 * checkups[0].power), 100 * checkups[0].level
    caption = f"seen {power} times in 100, with {level:g} false alarm in 100 comparisons"
    return Table("the slowdown that a comparison would see", columns, tuple(rows), caption=caption)


def advice_lines(machine: MachineFacts, checkups: Sequence[Checkup]) -> Iterator[str]:
    for checkup in checkups:
        found = find_noise(checkup.noise, len(checkup.processors or ()) or checkup.cores)
        for what, remedy in found.items():
            yield f"{checkup.cores}-core case: {what}: {remedy}"
    yield from _advice_on_machine(machine)
    if any(checkup.lacks_huge_pages for checkup in checkups):
        yield (
            "this system gives huge pages of memory to who asks for them. In small ones a model "
            "that reads large weights for little work varies from session to session: "
            f"{REMEDY} in the environment asks"
        )
    for checkup in checkups:
        yield from _advice_on_checkup(machine, checkup)


def _advice_on_machine(machine: MachineFacts) -> Iterator[str]:
    if machine.governor not in (None, "performance"):
        yield (
            f"the governor {printable(str(machine.governor))} changes the clock with the load: "
            "set it to performance (sudo cpupower frequency-set -g performance)"
        )
    if machine.turbo:
        yield (
            "turbo is on: the clock follows the heat, so times of different days differ. A duet "
            "cancels it; for absolute budgets, switch it off"
        )
    if machine.virtualization is not None:
        yield (
            f"this is a shared or virtual machine ({printable(machine.virtualization)}): compare "
            "versions in one run, never times of different days"
        )


def _advice_on_checkup(machine: MachineFacts, checkup: Checkup) -> Iterator[str]:
    if machine.usable_cores is not None and 1 < checkup.cores >= machine.usable_cores:
        yield (
            f"a case of {checkup.cores} cores leaves none for the rest of the system: measure "
            "one core less where you can"
        )
    ratio = checkup.ratio
    if not may_be_one(ratio):
        yield (
            f"two sessions of one model differed by {format_ratio(ratio.value)} on "
            f"{count_of(checkup.cores, 'core')}, more than their interval allows: measure again "
            "with more rounds (--max-seconds)"
        )
    if first_detecting(checkup) is None:
        yield (
            f"on {count_of(checkup.cores, 'core')} allow more than {percent(TOLERANCE)}, or give "
            "each case more time (--max-seconds)"
        )


def may_be_one(ratio: Ratio) -> bool:
    """Whether two sessions took equally long, as far as their interval tells."""
    low, high = ratio.interval or (1.0, 1.0)
    return low - _MAX_BIAS <= 1.0 <= high + _MAX_BIAS


def format_interval(ratio: Ratio) -> str:
    """`-1.2 % to +0.8 %`; empty without an interval."""
    return " to ".join(map(format_ratio, ratio.interval or ()))


def format_ratio(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def format_spread(value: float | None) -> str:
    return "?" if value is None else percent(value)


def format_seen(change: float) -> str:
    return percent(change) if math.isfinite(change) else "none"


def format_took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
