"""Facts about the models, the cases, the machine and the run, in tables and lines of text."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts, Measurement, Noise
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts, Outcome
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.text.units import format_bytes, format_count, percent
from pytest_modelperf.text.version import __version__
from pytest_modelperf.text.words import count_of, cut_end

# The precision that the median should reach.
WANTED_HALF_WIDTH = 0.01

# The longest measurement that may be advised, as a multiple of the time spent.
MAX_LONGER = 60
# The longest measurement that may be advised, in seconds.
MAX_ADVISED_S = 600.0

# Noise below these shares is not reported.
MAX_STOLEN = 0.01
MAX_THROTTLED = 0.01
MAX_OTHERS = 0.05
MAX_SWITCHES_PER_SECOND = 100
# Fewer rounds give no rate.
MIN_SWITCHES = 50
# Processor times come in ticks of the system's clock. A difference within one tick is no evidence.
_TICK_NS = 10_000_000
# A headline has at most about this many characters of a reason. The list below has all of it.
_REASON_WIDTH = 160

# These instruction sets are left out if the one that includes them is listed.
_INCLUDED = {
    "avx2": frozenset({"sse4_2", "avx", "fma", "f16c"}),
    "asimd": frozenset({"neon"}),
    "sve2": frozenset({"sve"}),
}


def describe_machine_line(machine: MachineFacts) -> str:
    """Return a line of the machine's facts that affect inference: key, processor, memory etc."""
    parts = [
        machine.cpu or "",
        _cores(machine),
        _memory(machine),
        describe_instruction_sets(machine),
    ]
    if machine.governor not in (None, "performance"):
        parts.append(f"governor {machine.governor}")
    facts = ", ".join(part for part in parts if part)
    virtual = f"; {machine.virtualization}" if machine.virtualization else ""
    name = f"machine {machine.key}"
    return f"{name}: {facts}{virtual}" if facts or virtual else name


def _cores(machine: MachineFacts) -> str:
    physical, logical, usable = machine.physical_cores, machine.logical_cores, machine.usable_cores
    known = physical or logical or usable
    if known is None:
        return ""
    parts = [count_of(known, "core")]
    if logical is not None and logical != known:
        parts.append(f"{logical} processors")
    if machine.quota_cores is not None:
        parts.append(f"a quota of {machine.quota_cores:.4g} CPUs")
    elif usable is not None and usable != (logical or known):
        parts.append(f"{usable} of them usable")
    return ", ".join(parts)


def _memory(machine: MachineFacts) -> str:
    if machine.memory_limit_bytes is not None:
        whole = f" of {format_bytes(machine.memory_bytes)}" if machine.memory_bytes else ""
        return f"{format_bytes(machine.memory_limit_bytes)}{whole}"
    return format_bytes(machine.memory_bytes) if machine.memory_bytes else ""


def describe_instruction_sets(machine: MachineFacts) -> str:
    present = machine.instruction_sets or ()
    included = frozenset[str]().union(*(_INCLUDED.get(name, frozenset()) for name in present))
    return " ".join(name for name in present if name not in included)


def describe_engine(engine: EngineFacts) -> str:
    """Describe an engine: its version, its providers, and the options that were given."""
    options = [f"{key}={value}" for key, value in engine.options.items()]
    facts = ", ".join([*engine.providers, *options])
    return f"engine {engine.label}: {facts}" if facts else f"engine {engine.label}"


def unmeasured_reasons(cases: Sequence[CaseProfile]) -> list[str]:
    """Return the reasons why cases could not be measured.

    Cases with equal reasons share a line.
    """
    about: dict[str, list[str]] = {}
    for case in cases:
        if case.measured is None and case.outcome is not Outcome.STATIC:
            about.setdefault(f"{case.outcome.value}: {case.reason}", []).append(case.case.id)
    return [f"{', '.join(ids)}: {why}" for why, ids in about.items()]


def describe_failed(cases: Sequence[CaseProfile]) -> str:
    """Return a text such as `2 of 4 cases failed: the worker was killed`, or an empty one."""
    failed = [case for case in cases if case.outcome is Outcome.FAILED]
    if not failed:
        return ""
    count = "failed" if len(cases) == 1 else f"{len(failed):,} of {len(cases):,} cases failed"
    reasons = {line for case in failed for line in case.reason.splitlines()[:1]}
    return f"{count}: {cut_end(min(reasons), _REASON_WIDTH)}" if len(reasons) == 1 else count


def doubt_lines(cases: Sequence[CaseProfile]) -> list[str]:
    """Return reasons why the figures of some cases are less certain than intended."""
    measured = {case.case.id: case.measured for case in cases if case.measured}
    return [
        *_wide_intervals(measured),
        *_unsteady(measured),
        *_noise_lines(measured),
        *_notes(measured),
    ]


def _wide_intervals(cases: Mapping[str, Measurement]) -> list[str]:
    widths = {name: run.typical.half_width for name, run in cases.items()}
    wide = {name: w for name, w in widths.items() if w is not None and w > WANTED_HALF_WIDTH}
    lines = []
    if wide:
        listed = ", ".join(f"{name} ± {percent(w)}" for name, w in wide.items())
        # An interval shrinks with the square root of the number of rounds.
        seconds = max(
            cases[name].seconds * (w / WANTED_HALF_WIDTH) ** 2 for name, w in wide.items()
        )
        spent = max(cases[name].seconds for name in wide)
        remedy = (
            f"max-seconds {rounded_up(seconds)} may narrow it"
            if seconds < min(MAX_LONGER * spent, MAX_ADVISED_S)
            else "measure when less else runs here"
        )
        lines.append(f"interval: {listed}, wider than {100 * WANTED_HALF_WIDTH:g} %; {remedy}")
    single = [name for name, width in widths.items() if width is None]
    if single:
        lines.append(
            f"interval: none for {_ids(single)}, too few rounds; "
            "a larger max-seconds makes time for more"
        )
    return lines


def rounded_up(seconds: float) -> int:
    """Round up to two digits, because the figure is only an estimate."""
    unit = int(10 ** max(0, math.floor(math.log10(max(seconds, 1.0))) - 1))
    return math.ceil(seconds / unit) * unit


def _unsteady(cases: Mapping[str, Measurement]) -> Iterator[str]:
    for name, run in cases.items():
        unsteady = [made for made in run.rounds if not made.is_steady]
        # A minority of such rounds may be chance.
        if 2 * len(unsteady) > len(run.rounds):
            runs = max(made.warmup_runs for made in unsteady)
            yield (
                f"unsteady: {name}: in {len(unsteady)} of {len(run.rounds)} rounds "
                f"times still changed after a warm-up of {count_of(runs, 'inference')}"
            )


def _noise_lines(cases: Mapping[str, Measurement]) -> Iterator[str]:
    """Yield the disturbances of each case that matter, and what to do about them."""
    for name, run in cases.items():
        found = noise_of(run)
        if found:
            remedies = ", ".join(dict.fromkeys(found.values()))
            yield f"noise: {name}: {', '.join(found)}; {remedies}"


def noise_of(measured: Measurement) -> dict[str, str]:
    """Return the disturbances of a measurement that matter, and what to do about each."""
    processors = len(measured.processors or ()) or 1
    return find_noise([made.block.noise for made in measured.rounds], processors)


def find_noise(noises: Sequence[Noise], processors: int) -> dict[str, str]:
    """Return the disturbances of these blocks that matter, and what to do about each.

    The one that took the largest share of the time is first.
    """
    wall_ns = sum(noise.wall_ns for noise in noises)
    if not wall_ns:
        return {}
    taken: list[tuple[float, str, str]] = []
    stolen = sum(noise.stolen_ns or 0 for noise in noises)
    if stolen > max(MAX_STOLEN * wall_ns * processors, 2 * _TICK_NS):
        share = stolen / (wall_ns * processors)
        what = f"the hypervisor took {percent(share)} of its processors"
        taken.append((share, what, "use a machine that is not shared"))
    throttled = sum(noise.throttled_ns or 0 for noise in noises)
    if throttled > MAX_THROTTLED * wall_ns:
        share = throttled / wall_ns
        what = f"its CPU quota halted it for {percent(share)} of the time"
        taken.append((share, what, "give the container more CPU, or measure on fewer cores"))
    others = sum(noise.others_ns or 0 for noise in noises)
    if others > max(MAX_OTHERS * wall_ns, 2 * _TICK_NS) * processors:
        share = others / (wall_ns * processors)
        what = f"other processes took {percent(share)} of its processors"
        taken.append((share, what, "stop other programs"))
    found = {what: remedy for _, what, remedy in sorted(taken, key=lambda each: -each[0])}
    switches = sum(noise.involuntary_switches or 0 for noise in noises)
    if switches > max(MAX_SWITCHES_PER_SECOND * wall_ns / 1e9, MIN_SWITCHES):
        rate = format_count(round(switches * 1e9 / wall_ns))
        found[f"it was interrupted {rate} times a second"] = "stop other programs"
    return found


def _notes(cases: Mapping[str, Measurement]) -> list[str]:
    """Return each note of the measurements once.

    The cases are named unless the note applies to all.
    """
    about: dict[str, list[str]] = {}
    for name, run in cases.items():
        for note in run.notes:
            about.setdefault(note, []).append(name)
    return [
        f"note: {'' if len(ids) == len(cases) else f'{_ids(ids)}: '}{note}"
        for note, ids in about.items()
    ]


def _ids(ids: Sequence[str]) -> str:
    return ", ".join(ids)


# -- tables at the end of a page


_SHORT_HASH = 12


class ModelRow(Struct, frozen=True):
    """A model, its role in this report, and the engine that it ran on."""

    role: str
    model: ModelFacts
    engine: str = ""


def models_table(rows: Iterable[ModelRow]) -> Table:
    """Return a table with each model once, without columns that are blank."""
    table = table_of(
        "",
        rows,
        (Column("", is_name=True), lambda row: row.role),
        (Column("model", is_name=True), lambda row: row.model.name),
        (Column("path", is_name=True), lambda row: row.model.path or row.model.function_file or ""),
        (Column("size"), lambda row: row.model.described_size),
        (Column("sha256", is_name=True), lambda row: (row.model.sha256 or "")[:_SHORT_HASH]),
        (Column("operator sets", is_text=True), lambda row: _describe_opsets(row.model)),
        (Column("producer", is_text=True), lambda row: row.model.producer),
        (Column("engine", is_text=True), lambda row: row.engine),
    )
    return drop_blank_columns(replace(table, rows=tuple(dict.fromkeys(table.rows))))


def _describe_opsets(model: ModelFacts) -> str:
    return ", ".join(
        f"{'opset' if domain in {'', 'ai.onnx'} else domain} {number}"
        for domain, number in model.opsets.items()
    )


def run_table(
    machines: Iterable[MachineFacts | None],
    rows: Iterable[tuple[str, str]] = (),
    made: dt.datetime | None = None,
) -> Table:
    """Return a table of the machines, the rules of the run, its date and this package's version.

    Unknown facts are left out.
    """
    described = dict.fromkeys(describe_machine_line(each) for each in machines if each is not None)
    facts = [
        *(("machine", line.removeprefix("machine ")) for line in described),
        *rows,
        ("date", "" if made is None else f"{made.astimezone(dt.timezone.utc):%Y-%m-%d %H:%M} UTC"),
        ("made by", f"pytest-modelperf {__version__}"),
    ]
    columns = (Column("", is_text=True), Column("", is_text=True))
    return Table("", columns, tuple(fact for fact in facts if fact[1]))


def format_share(share: float | None) -> str:
    """Return a share as text, such as `3 %`, or an empty text if there is none."""
    return "" if share is None else f"{100 * share:.4g} %"
