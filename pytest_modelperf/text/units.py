"""Numbers for people: counts, bytes, shares, shapes and times with their unit."""

from __future__ import annotations

import math
import re

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY_PREFIXES = ((1 << 60, "EiB"), (1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"),
                    (1 << 20, "MiB"), (1 << 10, "KiB"))  # fmt: skip
_MOST = 10**30
_COUNT = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kKMGTPE]?)\s*")

UNKNOWN = "?"
# Marks a figure that is only an estimate.
ESTIMATE = "~"
# A smaller share would be shown as 0.0 %.
LEAST_PERCENT = 0.0005
# In microseconds with three decimals, a smaller change would show at most one digit.
_SMALL_CHANGE_MS = 0.01


def format_count(value: int | None) -> str:
    """Return a count with four digits and a decimal prefix: `4.089 G`, `25.61 M`, `512`."""
    if value is None:
        return UNKNOWN
    return _scaled(value, _PREFIXES, "")


def format_signed_count(value: int) -> str:
    """Return a count with its sign: `+86.53 M`, `-1.2 k`, `0`."""
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return f"{sign}{format_count(abs(value))}"


def format_bytes(value: int | None) -> str:
    """Return a size with four digits and a binary prefix: `97.49 MiB`, `512 B`."""
    if value is None:
        return UNKNOWN
    return _scaled(value, _BINARY_PREFIXES, "B")


def percent(share: float) -> str:
    """Return a share with the two digits that are useful in an interval: `0.7 %`, `12 %`."""
    if 0 < share < LEAST_PERCENT:
        return "<0.1 %"
    return f"{100 * share:.{0 if share >= 0.0995 else 1}f} %"


def signed_percent(change: float) -> str:
    """Return a change with its sign, or `<0.1 %` for one that would be shown as 0.0 %."""
    if change and abs(change) < LEAST_PERCENT:
        return "<0.1 %"
    return f"{100 * change:+.1f} %" if change else "0 %"


def format_confidence(level: float) -> str:
    """Return a confidence such as `99.85 %`, with enough digits that only 1 is shown as `100 %`."""
    shown = f"{100 * level:.4g}"
    if shown == "100" and level < 1:
        wrong = float(f"{100 * (1 - level):.1g}")
        shown = f"{100 - wrong:.12g}"
    return f"{shown} %"


def format_share(part: float | None, whole: float | None) -> str:
    """Return `part` of `whole` in percent, such as `12.3 %`. 0 of 0 is 0 %."""
    if part is None or whole is None:
        return UNKNOWN
    return f"{100 * part / whole if whole else 0.0:.1f} %"


def format_shape(shape: tuple[int | None, ...] | None) -> str:
    """Return a shape such as `1x3x224x224`, with `?` for unknown sizes and `scalar` for rank 0."""
    if shape is None:
        return UNKNOWN
    return "x".join(UNKNOWN if dim is None else str(dim) for dim in shape) or "scalar"


def exact_number(value: float) -> str:
    """Return all digits of a whole number below 2^64, or the nine that identify any float32."""
    is_whole = float(value).is_integer() and abs(value) < 2**64
    return f"{value:.0f}" if is_whole else f"{value:.9g}"


def parse_count(text: str) -> int:
    """Return the count that a user wrote, such as `4.1G`, or raise ValueError for other texts."""
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    factor = next((f for f, p in _PREFIXES if p == match[2].replace("K", "k")), 1)
    return round(float(match[1]) * factor)


def _scaled(value: float, prefixes: tuple[tuple[float, str], ...], unit: str) -> str:
    if value > _MOST:
        # A model file may claim more than a float can hold.
        return f"over 10^30 {unit}".rstrip()
    for factor, prefix in prefixes:
        # 999,999 is 1 M, not 1000 k: at this bound, four digits round up.
        if abs(value) >= factor * 0.99995 and abs(value) >= 1000:
            scaled = value / factor
            return f"{scaled:.{_decimals(scaled)}f} {prefix}"
    return f"{value} {unit}".rstrip()


def format_ms(ns: float | None, decimals: int | None = None) -> str:
    """Return a time in milliseconds with four digits, or with `decimals` if given: `6.708`.

    A bound by few rounds can be beyond the largest float, and is unknown then.
    """
    if ns is None or not math.isfinite(ns):
        return UNKNOWN
    return f"{ns / 1e6:.{ms_decimals(ns) if decimals is None else decimals}f}"


def ms_decimals(ns: float) -> int:
    """Return the decimals that give a time in milliseconds four digits, but at most whole ns."""
    return min(6, _decimals(ns / 1e6))


def change_decimals(ns: float) -> int:
    """Return the decimals that show whole microseconds, or two digits below 10 microseconds."""
    ms = abs(ns) / 1e6
    return 3 if ms >= _SMALL_CHANGE_MS or not ms else min(6, 1 - math.floor(math.log10(ms)))


def table_decimals(total_ns: float | None) -> int:
    """Return one number of decimals for all times of a table in ms, so that they compare by eye."""
    # No kernel's clock has a finer resolution than a microsecond.
    return max(3, ms_decimals(total_ns or 0.0))


def format_rate(value: float | None) -> str:
    """Return a rate, per second or in billions per second: `1.204 k`, `61.31`, `0.073`."""
    if value is None:
        return UNKNOWN
    if value >= 1000:
        return _scaled(value, _PREFIXES, "")
    return f"{value:.{min(3, _decimals(value))}f}"


def _decimals(value: float) -> int:
    """Return the decimals that give four digits after rounding: 0.99999 becomes 1.000."""
    rounded = abs(float(f"{value:.4g}"))
    is_scalable = 0.0 < rounded < math.inf
    return max(0, 3 - math.floor(math.log10(rounded))) if is_scalable else 0


def format_seconds(seconds: float) -> str:
    """Return a duration such as `4.3 s` or `2 min 10 s`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
