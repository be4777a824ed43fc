"""Records as JSON objects, declared by their keys and the path of each value in the record.

    TRIED = JsonObject(Tried, "options=option_set.options rounds speedup=speedup.value outputs",
                       outputs=OUTPUT)

A declaration is all that a document needs: it writes the object, its `json_type` reads one strictly
and has the JSON Schema, and `read` turns it back into a record. In a declaration

- `key=a.b` is the value of `a.b`, null if `a` is None; `key` alone is the field of that name;
- `*` is every field that has no key yet, in their order, and `*?` is the same for `key?`;
- a path continues inside each item of a tuple; `0` is its first item, `.` the record itself, and
  `name.*` are the values of a mapping;
- `key=` is null unless the caller gives a value when the record is written;
- if a key is declared twice, the second declaration counts, at the place of the first;
- `key?` may be missing in a document that is read, because it follows from other keys or is newer
  than the document.

A keyword argument gives the declaration of the records under a key, or a stricter type than that of
the record. A bound in the record itself would apply wherever it is read, such as between processes.
A key in `_ms` with a path in `_ns` is converted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    Generic,
    Optional,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta, Struct

from pytest_modelperf.files.documents import ContradictionError
from pytest_modelperf.report.document import SCHEMA, dump_document

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=Struct)

Path: TypeAlias = tuple[str, ...]
# An annotation, or a type built from several. Python has no type that covers both.
Hint: TypeAlias = Any
_NS_PER_MS = 1e6
_SELF = (".",)
_VALUES = "*"
_NULL = "expected a value, found null"


class Key(Struct, frozen=True):
    """A key of an object, the path of its value, and whether it is computed from other keys."""

    name: str
    path: Path
    is_computed: bool = False

    @property
    def attribute(self) -> str:
        """The key as a Python name: `p999_ms` for `p99.9_ms`."""
        return self.name.replace(".", "").replace(" ", "_")

    @property
    def is_given(self) -> bool:
        return self.path == ("",)

    @property
    def is_converted(self) -> bool:
        """Whether the record has nanoseconds and the document has milliseconds."""
        return _unit(self.name) == "ms" and _unit(self.path[-1]) == "ns"


class JsonObject(Generic[S]):
    """The JSON object of a record."""

    def __init__(
        self,
        kind: type[S],
        keys: str,
        /,
        *,
        about: str = "",
        title: str = "",
        forbids_unknown: bool = False,
        **inner: Any,  # noqa: ANN401  # a declaration, or a type
    ) -> None:
        self.kind = kind
        self.inner = inner
        self.about = about
        self.title = title or kind.__name__
        self.forbids_unknown = forbids_unknown
        self.declared = keys
        self._plans: dict[tuple[type[Struct], Path], _Plan] = {}

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        named = [_key(text) for text in self.declared.split()]
        taken = {key.path[0] for key in named if len(key.path) == 1} | {key.name for key in named}
        found: dict[str, Key] = {}
        for key in named:
            if key.name != _VALUES:
                found[key.name] = key
                continue
            names = zip(
                self.kind.__struct_encode_fields__, self.kind.__struct_fields__, strict=True
            )
            for name, path in names:
                if path not in taken:
                    found[name] = Key(name, (path,), key.is_computed)
        return tuple(found.values())

    def keys_at(self, path: str) -> str:
        """Return these keys for a record that contains this record at a path."""
        return " ".join(
            f"{key.name}{'?' if key.is_computed else ''}={path}.{'.'.join(key.path)}"
            for key in self.keys
        )

    # -- writing

    def of(self, record: S, **given: object) -> dict[str, Any]:
        """Return the values of a record by their keys, and the given ones."""
        found = {name: read(record) for name, read in self._readers}
        return {**found, **given} if given else found

    def missing(self) -> dict[str, Any] | None:
        return None

    @cached_property
    def _readers(self) -> tuple[tuple[str, Callable[[object], object]], ...]:
        return tuple((key.name, self._reader(key)) for key in self.keys)

    def _reader(self, key: Key) -> Callable[[object], object]:
        if key.is_given:
            return lambda _: None
        follow = _follower(key.path)
        inner = self.inner.get(key.attribute)
        if isinstance(inner, JsonObject):
            return lambda record: inner.of_all(follow(record))
        return (lambda record: _as_ms(follow(record))) if key.is_converted else follow

    def of_all(self, found: Hint) -> object:
        """Return the object of a record, or the objects of all records in a tuple or mapping."""
        if isinstance(found, tuple | list):
            return [self.of_all(each) for each in found]
        if isinstance(found, Mapping):
            return {name: self.of_all(each) for name, each in found.items()}
        return self.missing() if found is None else self.of(found)

    @cached_property
    def or_nulls(self) -> OrNulls[S]:
        """The object that has null for every key if the record is None."""
        return OrNulls(self)

    # -- the type

    @cached_property
    def json_type(self) -> Hint:
        """The type of the object. Raises TypeError if the record does not have a declared path."""
        return msgspec.defstruct(
            self.title,
            [self._field(key) for key in self.keys],
            namespace={"__doc__": self.about or _summary(self.kind)},
            module=self.kind.__module__,
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=self.forbids_unknown,
        )

    def _field(self, key: Key) -> tuple[str, Any, Any]:
        kind = self._type_of(key)
        if not key.is_computed:
            return key.attribute, kind, msgspec.field(name=key.name)
        default = _empty(kind)
        kind = kind if default is not None else _or_none(kind)
        return key.attribute, kind, msgspec.field(name=key.name, default=default)

    def _type_of(self, key: Key) -> Hint:
        inner = self.inner.get(key.attribute)
        if inner is not None and not isinstance(inner, JsonObject):
            return inner
        if key.is_given:
            raise TypeError(f"{self.title}.{key.name} needs a type, because it is given")
        found = _resolve(self.kind, key.path)
        if isinstance(inner, JsonObject):
            return inner.wrapped(found)
        return _in_ms(found) if key.is_converted else found

    def wrapped(self, found: Hint) -> Hint:
        """Return the type of the result of `of_all` for an annotated value."""
        return _wrapped(found, self.json_type)

    # -- reading

    def read(self, found: object, place: str = "", **given: object) -> S:
        """Make a record from an object of `json_type` and the fields that the object does not have.

        Raises ContradictionError if a field that must have a value is null.
        """
        return self.read_part(self.kind, "", found, place, **given)

    def read_part(self, kind: type[T], at: str, found: object, place: str, **given: object) -> T:
        """Make the record of this kind at a path of an object of `json_type`, as `read` does."""
        return self._read(kind, tuple(at.split(".")) if at else (), found, place, given)

    def _read(
        self, kind: type[T], at: Path, found: object, place: str, given: Mapping[str, object]
    ) -> T:
        plan = self._plans.get((kind, at))
        if plan is None:
            plan = self._plans[kind, at] = self._plan(kind, at)
        values = dict(given)
        for name, key, read, may_lack in plan.keys:
            if name in values:
                continue
            value = getattr(found, key.attribute)
            if value is None:
                if not may_lack:
                    raise ContradictionError(_joined(place, key.name), _NULL)
                values[name] = None
            else:
                values[name] = value if read is None else read(value, _joined(place, key.name))
        for name, inside in plan.parts:
            if name not in values:
                values[name] = self._read(inside, (*at, name), found, place, {})
        return kind(**values)

    def _plan(self, kind: type[Struct], at: Path) -> _Plan:
        hints = _hints(kind)
        by_path = {key.path: key for key in self.keys}
        keys, parts = [], []
        for name in kind.__struct_fields__:
            path, (hint, may_lack) = (*at, name), _without_none(hints[name])
            if path in by_path:
                keys.append((name, by_path[path], self._read_of(by_path[path], hint), may_lack))
            elif _is_struct(hints[name]) and any(p[: len(path)] == path for p in by_path):
                parts.append((name, hints[name]))
        return _Plan(tuple(keys), tuple(parts))

    def _read_of(self, key: Key, hint: Hint) -> _Read | None:
        """Return the function that turns a key's value into a field, or None if both are equal."""
        inner = self.inner.get(key.attribute)
        if isinstance(inner, JsonObject):
            return inner.read_all
        if not key.is_converted:
            return None
        return _as_whole_ns if _bare(hint) is int else _as_ns

    def read_all(self, found: object, place: str) -> object:
        """Return the record of an object, or the records of all objects in a tuple."""
        if isinstance(found, tuple):
            return tuple(self.read(each, f"{place}[{i}]") for i, each in enumerate(found))
        return self.read(found, place)


_Read: TypeAlias = Callable[[Any, str], object]


class _Plan(Struct, frozen=True):
    """The fields of a record that have a key, and those whose inner fields have one."""

    keys: tuple[tuple[str, Key, _Read | None, bool], ...]
    parts: tuple[tuple[str, type[Struct]], ...]


class JsonDocument(JsonObject[S]):
    """The JSON document of a record: its first key is the number of its schema."""

    def __init__(self, kind: type[S], keys: str, /, **options: Any) -> None:  # noqa: ANN401  # those of an object
        super().__init__(kind, f"schema= {keys}", schema=int, **options)

    def of(self, record: S, **given: object) -> dict[str, Any]:
        return super().of(record, schema=SCHEMA, **given)

    def dump(self, record: S, **given: object) -> str:
        return dump_document(self.of(record, **given))


class OrNulls(JsonObject[S]):
    """The object of a record that may be None.

    If it is None, all keys are null except the given ones.
    """

    def __init__(self, known: JsonObject[S], **given: object) -> None:
        title = f"{known.title}OrNulls"
        super().__init__(known.kind, known.declared, about=known.about, title=title, **known.inner)
        self.given = given

    def missing(self) -> dict[str, Any]:
        return {**{key.name: None for key in self.keys}, **self.given}

    def wrapped(self, found: Hint) -> Hint:
        return _wrapped(_without_none(found)[0], self.json_type)

    def _type_of(self, key: Key) -> Hint:
        found = super()._type_of(key)
        return found if key.name in self.given else _or_none(found)


def _key(text: str) -> Key:
    name, equals, path = text.partition("=")
    key = name.removesuffix("?")
    steps = _SELF if path == "." else tuple((path if equals else key).split("."))
    return Key(key, steps, key != name)


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _unit(name: str) -> str:
    return name.rpartition("_")[2]


# -- values


def _follower(path: Path) -> Callable[[object], object]:
    """Return a function that returns the value at a path of a record, or None if a part is None."""
    if path == _SELF:
        return lambda record: record
    if len(path) == 1:
        return attrgetter(path[0])

    first, rest = attrgetter(path[0]), path[1:]
    # Documents have thousands of layers, and most paths have two parts.
    last = attrgetter(*rest) if len(rest) == 1 and rest[0].isidentifier() else None

    def follow(record: object) -> object:
        found = first(record)
        if found is None or last is None or isinstance(found, tuple):
            return _follow(found, rest)
        return last(found)

    return follow


def _follow(found: Hint, path: Path) -> object:
    for index, name in enumerate(path):
        if found is None:
            return None
        if name == _VALUES:
            found = tuple(found.values())
        elif not isinstance(found, tuple):
            found = getattr(found, name)
        elif name.isdigit():
            found = found[int(name)]
        else:
            return tuple(_follow(each, path[index:]) for each in found)
    return found


def _as_ms(ns: Any) -> object:  # noqa: ANN401  # a number, several, or None
    if ns is None:
        return None
    return tuple(map(_as_ms, ns)) if isinstance(ns, tuple) else ns / _NS_PER_MS


def _as_ns(ms: Any, _: str = "") -> object:  # noqa: ANN401  # a number, or several
    return tuple(map(_as_ns, ms)) if isinstance(ms, tuple) else ms * _NS_PER_MS


def _as_whole_ns(ms: float, _: str) -> int:
    return round(ms * _NS_PER_MS)


# -- annotations


def _resolve(kind: Hint, path: Path) -> Hint:
    """Return the type of the value at a path. Raises TypeError if the path does not exist."""
    if path in ((), _SELF):
        return _as_json(kind)
    kind, may_lack = _without_none(kind)
    name, rest = path[0], path[1:]
    if name == _VALUES:
        found = _resolve(tuple[get_args(kind)[1], ...], rest)  # type: ignore[misc]  # at run time
    elif not _is_tuple(kind):
        found = _resolve(_hint(kind, name), rest)
    elif name.isdigit():
        found = _resolve(get_args(kind)[0], rest)
    else:
        found = tuple[_resolve(get_args(kind)[0], path), ...]  # type: ignore[misc]  # the same
    return _or_none(found) if may_lack else found


def _hint(kind: Hint, name: str) -> Hint:
    """Return the annotation of a field, or of what a property returns."""
    found = getattr(kind, name, None)
    if isinstance(found, property):
        return _hints(found.fget)["return"]
    if not _is_struct(kind) or name not in kind.__struct_fields__:
        raise TypeError(f"{getattr(kind, '__name__', kind)} does not have {name!r}")
    return _hints(kind)[name]


def _hints(of: Hint) -> dict[str, Any]:
    return get_type_hints(of, include_extras=True)


def _without_none(kind: Hint) -> tuple[Any, bool]:
    """Return the annotation without None, and whether the value may be None."""
    kinds = get_args(kind)
    if type(None) not in kinds or _origin(kind) is Annotated:
        return kind, False
    return Union[tuple(each for each in kinds if each is not type(None))], True  # noqa: UP007  # made here


def _or_none(kind: Hint) -> Hint:
    return kind if kind is Any else Optional[kind]  # noqa: UP045  # a value, not an annotation


def _wrapped(found: Hint, kind: Hint) -> Hint:
    """Replace the type of the records in an annotation."""
    bare, may_lack = _without_none(found)
    made = kind
    if _is_tuple(bare):
        made = tuple[kind, ...]
    elif _origin(_bare(bare)) is Mapping:
        made = Mapping[str, kind]
    if _origin(bare) is Annotated:
        made = Annotated[(made, *bare.__metadata__)]
    return _or_none(made) if may_lack else made


def _as_json(kind: Hint) -> Hint:
    """Return the type of a value in a document. A path is a text there."""
    bare, may_lack = _without_none(kind)
    if not (isinstance(bare, type) and issubclass(bare, PurePath)):
        return kind
    return _or_none(str) if may_lack else str


def _in_ms(kind: Hint) -> Hint:
    """Convert the annotation of a value in nanoseconds, with its bounds, to milliseconds."""
    bare, may_lack = _without_none(kind)
    made: Hint = float
    if _is_tuple(bare):
        made = tuple.__class_getitem__(
            tuple(each if each is ... else _in_ms(each) for each in get_args(bare))
        )
    elif _origin(bare) is Annotated:
        (meta,) = (each for each in bare.__metadata__ if isinstance(each, Meta))
        made = Annotated[float, Meta(ge=_scaled(meta.ge), le=_scaled(meta.le))]
    return _or_none(made) if may_lack else made


def _scaled(bound: float | None) -> float | None:
    if bound is None:
        return None
    ms = bound / _NS_PER_MS
    return int(ms) if ms.is_integer() else ms


def _origin(kind: Hint) -> object:
    return get_origin(kind)


def _bare(kind: Hint) -> Hint:
    return kind.__origin__ if _origin(kind) is Annotated else kind


def _is_tuple(kind: Hint) -> bool:
    return _origin(_bare(kind)) in (tuple, Sequence)


def _is_struct(kind: Hint) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _empty(kind: Hint) -> Hint:
    """Return the default for a missing key, or None if the type has no empty value."""
    bare = _bare(kind)
    if _origin(bare) is tuple:
        return ()
    if _origin(bare) is Mapping:
        return {}
    return bare() if bare in (bool, int, str) else None


def _summary(kind: type[Struct]) -> str:
    """Return the first paragraph of a docstring, with null for None."""
    return re.sub(r"\bNone\b", "null", (kind.__doc__ or "").partition("\n\n")[0])
