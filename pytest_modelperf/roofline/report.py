"""A roofline as part of a profile's report: peaks, a table of the layers, and a chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_modelperf.profiler.shown.drawn import CaseAdditions
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.profiler.shown.page_layers import kind_of
from pytest_modelperf.report.document import to_json
from pytest_modelperf.report.model import Drawing, Drawings, Line, On, Paragraph, ReportBlock, Rows
from pytest_modelperf.report.tables import Column, FilledColumn, Table, drop_blank_columns, table_of
from pytest_modelperf.roofline.records import ROOFLINE, Bound, LayerRoof, Peaks, Roofline
from pytest_modelperf.text.units import (
    format_bytes,
    format_count,
    format_ms,
    format_rate,
    format_share,
    table_decimals,
)
from pytest_modelperf.text.words import count_of

_GIGA = 1e9


def roofline_entry(roofline: Roofline, lines: Sequence[str], notes: Sequence[str]) -> Entry:
    """Return the keys of the JSON document, with the lines and notes of the text."""
    document: dict[str, Any] = to_json(ROOFLINE.of(roofline))
    decimals = table_decimals(_spent_ns(roofline))
    return {
        **document,
        "layers": [
            {
                **layer,
                "name": roof.name or roof.id,
                "kind": kind_of(roof.op_type),
                "text": _layer_lines(roof, decimals),
            }
            for layer, roof in zip(document["layers"], roofline.layers, strict=True)
        ],
        "tiles": list(_tiles(roofline, decimals)),
        "lines": lines,
        "notes": notes,
    }


def _spent_ns(roofline: Roofline) -> float:
    """Return the time of all layers, or their time at the roof if they did not run."""
    return sum(roof.least_ns if roof.ns is None else roof.ns for roof in roofline.layers)


def _tiles(roofline: Roofline, decimals: int) -> Iterator[tuple[str, str, str]]:
    """Yield tiles for the possible gain and the peaks of the machine."""
    peaks, gain = roofline.peaks, roofline.gain_ns
    if gain is None:
        least = format_ms(roofline.least_ns, table_decimals(roofline.least_ns))
        yield "least time", f"{least} ms", "that these peaks allow"
    else:
        note = f"{format_share(gain, _spent_ns(roofline))} of the layers' time"
        if roofline.gain_interval_ns is not None:
            low, high = (format_ms(bound, decimals) for bound in roofline.gain_interval_ns)
            note += f", {low} … {high} ms"
        yield "to gain", f"{format_ms(gain, decimals)} ms", note
    for name, rate in peaks.macs_per_second.items():
        yield f"peak of {name}", f"{_giga(rate)} GMAC/s", ""
    best = max(each.bytes_per_second for each in peaks.bandwidths)
    in_cache = f"in cache {_giga(best)} GB/s" if best > peaks.bytes_per_second else ""
    yield "peak of memory", f"{_giga(peaks.bytes_per_second)} GB/s", in_cache


def _layer_lines(roof: LayerRoof, decimals: int) -> list[str]:
    least, rate = format_ms(roof.least_ns, decimals), _giga_or_nothing(roof.attainable_per_second)
    name, bound = f"{roof.name or roof.id} ({roof.op_type})", f"{roof.bound.value} is the bound"
    if roof.ns is None:
        return [name, f"at least {least} ms, {rate} GMAC/s", bound]
    share = ">100 %" if roof.is_beyond else format_share(roof.share, 1.0)
    return [
        name,
        f"{format_ms(roof.ns, decimals)} ms, at the roof {least} ms",
        f"{_giga(roof.achieved_per_second)} of {rate} GMAC/s",
        f"{share} of its roof, {bound}",
    ]


def _giga_or_nothing(rate: float | None) -> str:
    return format_rate(None if rate is None else rate / _GIGA)


# -- a roofline as a part of the report of a profile


_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(Drawing("roofline", "Roofline"),),
    scripts=(_FOLDER / "roofline.js",),
    of_case=("roofline",),
)
_WORDS = (
    "roof: the GMAC/s that its MACs and bytes allow at these peaks",
    "share: of the roof, or, without MACs, of the bandwidth",
)
_DOUBT = "±"
_DOUBT_WORDS = (
    f"{_DOUBT}: half the interval of ms, and so of what there is to gain; of all layers, the widest"
)


def roofline_additions(rooflines: Mapping[str, Roofline], top: int | None = None) -> CaseAdditions:
    """Return what rooflines add to a profile by case, with at most `top` rows in their tables."""
    return CaseAdditions(
        _DRAWINGS,
        {case_id: {"roofline": _entry(each)} for case_id, each in rooflines.items()},
        {case_id: tuple(_blocks(each, top)) for case_id, each in rooflines.items()},
    )


def _blocks(roofline: Roofline, top: int | None) -> Iterator[ReportBlock]:
    lines = tuple(Line(text=text) for text in _peak_lines(roofline.peaks))
    yield Paragraph(lines, on=On.TEXT)
    yield Rows(_roofline_table(roofline, top), on=On.TEXT)


def _entry(roofline: Roofline) -> Entry:
    notes = _roofline_table(roofline, None).caption.splitlines()
    # The page has the interval of each gain instead of a column of doubt.
    shown = [note for note in notes if note != _DOUBT_WORDS]
    return roofline_entry(roofline, _peak_lines(roofline.peaks), shown)


def _peak_lines(peaks: Peaks) -> tuple[str, str]:
    """Return lines on peaks and memory: `peaks on 2 cores, onnxruntime 1.31.1: float32 ...`."""
    cores = count_of(peaks.cores, "core")
    engine = f"{peaks.engine} {peaks.version}" if peaks.version else peaks.engine
    products = ", ".join(
        f"{name} {_giga(rate)} GMAC/s" for name, rate in peaks.macs_per_second.items()
    )
    largest = max(peaks.bandwidths, key=lambda each: each.nbytes)
    best = max(peaks.bandwidths, key=lambda each: each.bytes_per_second)
    memory = f"memory {_giga(largest.bytes_per_second)} GB/s ({_size(largest.nbytes)} at once)"
    if best is not largest:
        memory += f", in cache {_giga(best.bytes_per_second)} GB/s ({_size(best.nbytes)})"
    balance = ", ".join(f"{name} {format_rate(each)}" for name, each in peaks.balance.items())
    return (
        f"peaks on {cores}, {engine}, measured {peaks.measured}: {products}",
        f"{memory}; balance in MAC/B: {balance}",
    )


# The columns that both tables have.
_LAYER: FilledColumn[LayerRoof] = (
    Column("layer", is_name=True, least=12),
    lambda roof: roof.name or roof.id,
)
_TYPE: FilledColumn[LayerRoof] = (Column("type", is_name=True, least=8), lambda roof: roof.op_type)
_BOUND: FilledColumn[LayerRoof] = (Column("bound", is_text=True), lambda roof: roof.bound.value)
_ROOF: FilledColumn[LayerRoof] = (
    Column("roof"),
    lambda roof: _giga(roof.attainable_per_second) if roof.work.macs else "",
)


def _roofline_table(roofline: Roofline, top: int | None) -> Table:
    """Return a row per layer, with the largest gain or, without a run, the longest time first."""
    if all(roof.ns is None for roof in roofline.layers):
        return _least_table(roofline, top)
    shown = roofline.layers[:top]
    has_doubt = any(roof.half_width_ns is not None for roof in shown)
    spent = sum(roof.ns or 0.0 for roof in roofline.layers)
    gain, doubt = roofline.gain_ns or 0.0, roofline.gain_interval_ns
    decimals = table_decimals(spent)
    total = (
        "total",
        "",
        format_ms(spent, decimals),
        format_ms(gain, decimals),
        "" if doubt is None else format_ms((doubt[1] - doubt[0]) / 2.0, decimals),
        format_share(spent - gain, spent),
        *("",) * 5,
        format_count(sum(roof.work.macs for roof in roofline.layers)),
    )
    table = table_of(
        "by layer, what there is to gain below the roof",
        shown,
        _LAYER,
        _TYPE,
        (Column("ms"), lambda roof: _ms(roof.ns, decimals)),
        (Column("to gain"), lambda roof: _ms(roof.gain_ns, decimals)),
        (Column(_DOUBT), lambda roof: _ms(roof.half_width_ns, decimals)),
        (Column("share"), _share),
        _BOUND,
        (Column("GMAC/s"), lambda roof: _giga(roof.achieved_per_second) if roof.work.macs else ""),
        _ROOF,
        (Column("MAC/B", rank=int(has_doubt)), _intensity),
        (Column("GB/s", rank=1), lambda roof: _giga(roof.achieved_bytes_per_second)),
        (Column("MACs", rank=1), _macs),
        total=total,
        caption="\n".join(_captions(roofline, len(roofline.layers) - len(shown))),
    )
    return drop_blank_columns(table)


def _least_table(roofline: Roofline, top: int | None) -> Table:
    least_ns, decimals = roofline.least_ns, table_decimals(roofline.least_ns)
    ordered = sorted(roofline.layers, key=lambda roof: -roof.least_ns)
    shown = ordered[:top]
    macs = format_count(sum(roof.work.macs for roof in ordered))
    lines = [_WORDS[0], "an engine that fuses layers moves less, and can be faster"]
    lines += _left_out(roofline, len(ordered) - len(shown))
    return table_of(
        "by layer, the least time that these peaks allow",
        shown,
        _LAYER,
        _TYPE,
        (Column("least ms"), lambda roof: format_ms(roof.least_ns, decimals)),
        (Column("share"), lambda roof: format_share(roof.least_ns, least_ns)),
        _BOUND,
        (Column("MAC/B"), _intensity),
        _ROOF,
        (Column("MACs"), _macs),
        total=("total", "", format_ms(least_ns, decimals), *("",) * 4, macs),
        caption="\n".join(lines),
    )


def _ms(ns: float | None, decimals: int) -> str:
    return "" if ns is None else format_ms(ns, decimals)


def _share(roof: LayerRoof) -> str:
    if roof.is_beyond:
        return ">100 %"
    return "" if roof.share is None else format_share(roof.share, 1.0)


def _intensity(roof: LayerRoof) -> str:
    return "" if roof.intensity is None or not roof.work.macs else format_rate(roof.intensity)


def _macs(roof: LayerRoof) -> str:
    return format_count(roof.work.macs) if roof.work.macs else ""


def _captions(roofline: Roofline, hidden: int) -> Sequence[str]:
    lines = ["; ".join(_WORDS), _DOUBT_WORDS]
    beyond = [roof for roof in roofline.layers if roof.is_beyond]
    if beyond:
        lines.append(
            f">100 %: {count_of(len(beyond), 'layer')} faster than these peaks; the true peaks are "
            f"at least {_best_of(beyond)}; modelperf profile --measure-peaks measures them again"
        )
    return [*lines, *_left_out(roofline, hidden)]


def _left_out(roofline: Roofline, hidden: int) -> Iterator[str]:
    for reason, count in roofline.unplaced.items():
        yield f"{count_of(count, 'layer')} left out: {reason}"
    if hidden:
        yield f"{count_of(hidden, 'more layer')}: --top 0 shows all"


def _best_of(beyond: Sequence[LayerRoof]) -> str:
    """Return the highest rates that were reached: `46.37 GMAC/s of float32 and 61.2 GB/s`."""
    parts: dict[str, float] = {}
    for roof in beyond:
        is_compute = roof.bound is Bound.COMPUTE
        rate = roof.achieved_per_second if is_compute else roof.achieved_bytes_per_second
        unit = f"GMAC/s of {roof.precision}" if is_compute else "GB/s"
        parts[unit] = max(parts.get(unit, 0.0), rate or 0.0)
    return " and ".join(f"{_giga(rate)} {unit}" for unit, rate in parts.items())


def _giga(rate: float | None) -> str:
    return "" if rate is None else format_rate(rate / _GIGA)


def _size(nbytes: int) -> str:
    mebibytes = nbytes / (1 << 20)
    return f"{mebibytes:.0f} MiB" if round(mebibytes) else format_bytes(nbytes)
