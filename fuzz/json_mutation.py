"""JSON with something wrong in a value, a key, or the order: changes that bytes seldom make."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pytest_modelperf.tracing.records import TRACE_HEAD

# Written as it stands: what no value of Python becomes, or what its writer would refuse.
_TOKENS = ("NaN", "-Infinity", "1e999", "-0", "-0.0", "1e-999", "1E5", "0.1", "1" + "0" * 400,
           "9" * 5000, "[" * 3000, "[" * 900 + "]" * 900, '"\\ud800"', '"\\u0000"', "nul",
           "")  # fmt: skip
_VALUES = (None, True, False, 0, 1, -1, 2, 3, 127, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63),
           0.5, 1.0, 1e18, 1e308, "", "x", "0", "1", "Conv", "model_run", "b1-c1",
           "\x1b[2J", "\u202e", "a" * 300)  # fmt: skip

# How ONNX Runtime begins a profile, and what it writes behind a key; other keys have " :".
_OWN_START = b'[\n{"cat" : "'
_OWN_COLONS = {"cat": " : ", "ph": " : ", "args": " : "}


@dataclass(frozen=True, slots=True)
class _Token:
    text: str


class _Entries(list[Any]):
    """The entries of an object as lists of a key and a value: a key may stand twice."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place that holds a value: the n-th of a list or of an object."""

    holder: list[Any]
    at: int

    @property
    def value(self) -> Any:  # noqa: ANN401  # any that JSON has
        found = self.holder[self.at]
        return found[1] if isinstance(self.holder, _Entries) else found

    def put(self, value: object) -> None:
        if isinstance(self.holder, _Entries):
            self.holder[self.at] = [self.holder[self.at][0], value]
        else:
            self.holder[self.at] = value


def mutate_json(data: bytes, random: Random) -> bytes | None:
    """A document with a few values changed; None for what is no JSON."""
    return _mutated(data, random, _text)


def mutate_ort_profile(data: bytes, random: Random) -> bytes | None:
    """A profile of ONNX Runtime with a few values changed, as the runtime writes it or as JSON."""
    is_own = data.startswith(_OWN_START) != (random.random() < 0.05)
    escapes = random.random() < 0.8

    def write(root: object) -> str:
        if not is_own or type(root) is not list:
            return _text(root)
        lines = ",\n".join(_own_line(event, escapes=escapes) for event in root)
        return f"[\n{lines}\n]\n"

    return _mutated(data, random, write)


def mutate_trace(data: bytes, random: Random) -> bytes | None:
    """A recording with a few values changed, an event a line as before."""

    def write(root: object) -> str:
        events = _value_of(root, "traceEvents")
        if not isinstance(events, list):
            return _text(root)
        lines = ",\n".join(map(_text, events))
        return f'{TRACE_HEAD}\n{lines}\n],\n"otherData":{_text(_value_of(root, "otherData"))}}}\n'

    return _mutated(data, random, write)


def mutate_trace_file(data: bytes, random: Random) -> bytes | None:
    """A file that `modelperf trace` takes with a few values changed, in the form that it has."""
    if data.startswith(TRACE_HEAD.encode()):
        return mutate_trace(data, random)
    return mutate_ort_profile(data, random)


def mutate_json_lines(data: bytes, random: Random) -> bytes | None:
    """Lines of JSON with one of them changed, and sometimes repeated or moved."""
    lines = data.splitlines()
    if not lines:
        return None
    at = random.randrange(len(lines))
    changed = mutate_json(lines[at], random)
    if changed is None:
        return None
    if random.random() < 0.2:
        lines.insert(random.randint(0, len(lines)), changed)
    else:
        lines[at] = changed
    return b"\n".join(lines) + b"\n"


def _value_of(value: object, key: str) -> object:
    """What stands behind a key of an object, at last; None where there is none."""
    entries = value if isinstance(value, _Entries) else []
    return next((held for name, held in reversed(entries) if name == key), None)


def _mutated(data: bytes, random: Random, write: Callable[[object], str]) -> bytes | None:
    try:
        root = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=lambda pairs: _Entries(map(list, pairs)),
            parse_constant=_Token,
        )
        for _ in range(random.choice((1, 1, 2, 4))):
            slots = list(_slots(root))
            if slots:
                random.choice(_CHANGES)(slots, random)
            else:
                root = random.choice(_VALUES)
        return write(root).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        # It is no JSON, or nests deeper than this can follow.
        return None


def _slots(value: object) -> Iterator[_Slot]:
    """Every place in a document, whatever holds it."""
    if isinstance(value, list):
        for at in range(len(value)):
            slot = _Slot(value, at)
            yield slot
            yield from _slots(slot.value)


def _replace(slots: Sequence[_Slot], random: Random) -> None:
    is_token = random.random() < 0.3
    value = _Token(random.choice(_TOKENS)) if is_token else random.choice(_VALUES)
    random.choice(slots).put(value)


def _nudge(slots: Sequence[_Slot], random: Random) -> None:
    """A number becomes one near it, a text one that differs by a character."""
    slot = random.choice(slots)
    value = slot.value
    if isinstance(value, bool | None):
        slot.put(not value)
    elif isinstance(value, int | float):
        slot.put(random.choice((value + 1, value - 1, value * 2, value // 2, -value, value + 1000)))
    elif isinstance(value, str):
        at = random.randint(0, len(value))
        slot.put(value[:at] + random.choice(("", "0", "-", '"', "\n", "é", "/")) + value[at + 1 :])


def _swap(slots: Sequence[_Slot], random: Random) -> None:
    one, other = random.choice(slots), random.choice(slots)
    # A list could not be put into itself.
    if not isinstance(one.value, list) and not isinstance(other.value, list):
        value = one.value
        one.put(other.value)
        other.put(value)


def _copy(slots: Sequence[_Slot], random: Random) -> None:
    """A value stands in another place, too; as text, for the place may be inside of it."""
    random.choice(slots).put(_Token(_text(random.choice(slots).value)))


def _delete(slots: Sequence[_Slot], random: Random) -> None:
    slot = random.choice(slots)
    del slot.holder[slot.at]


def _repeat(slots: Sequence[_Slot], random: Random) -> None:
    """A value of a list, or a key with its value, is there twice."""
    slot = random.choice(slots)
    value = _Token(_text(slot.value))
    is_entry = isinstance(slot.holder, _Entries)
    copied = [slot.holder[slot.at][0], value] if is_entry else value
    slot.holder.insert(random.randint(0, len(slot.holder)), copied)


def _rename(slots: Sequence[_Slot], random: Random) -> None:
    """A key becomes another of the document, or one that is nowhere."""
    entries = [slot.holder[slot.at] for slot in slots if isinstance(slot.holder, _Entries)]
    if entries:
        keys = [entry[0] for entry in entries]
        random.choice(entries)[0] = random.choice([*keys, "", "x", "\n", "b2-c2"])


def _wrap(slots: Sequence[_Slot], random: Random) -> None:
    slot = random.choice(slots)
    value = slot.value
    slot.put([value] if random.random() < 0.5 else _Entries([["x", value]]))


def _shuffle(slots: Sequence[_Slot], random: Random) -> None:
    random.shuffle(random.choice(slots).holder)


_CHANGES: tuple[Callable[[Sequence[_Slot], Random], None], ...] = (
    _replace, _replace, _nudge, _nudge, _nudge, _swap, _copy, _delete, _repeat, _rename, _wrap,
    _shuffle,
)  # fmt: skip


def _text(value: object) -> str:
    if isinstance(value, _Token):
        return value.text
    if isinstance(value, _Entries):
        return "{" + ",".join(f"{json.dumps(key)}:{_text(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


def _own_line(event: object, *, escapes: bool) -> str:
    """An event as the runtime writes it; older versions write a name as it is."""
    if not isinstance(event, _Entries):
        return _text(event)
    parts = []
    for key, value in event:
        is_bare = key == "name" and isinstance(value, str) and not escapes
        text = f'"{value}"' if is_bare else _text(value)
        parts.append(f"{json.dumps(key)}{_OWN_COLONS.get(key, ' :')}{text}")
    return "{" + ",".join(parts) + "}"
