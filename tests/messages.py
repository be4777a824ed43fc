"""Every message that the package has for a user when something is wrong, read from its source.

    python -m tests.messages [--json] [WORD...]

Prints errors, warnings, skips and reasons by module, each with its line, its class, and the exit
code of a command that ends with it; only those with one of the words, if any are given. What is
filled in stands in `{braces}`, `[a|b]` is one of several, and `[a]` may be left out. A message
whose words the source does not tell is listed as the expression that makes it: none is left out.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path

import pytest_modelperf

PACKAGE = Path(pytest_modelperf.__file__).parent

_BASE = "ModelPerfError"
# Errors that are not ours, and the code of a command or of pytest that ends with one: None where
# another message takes up the text.
_FOREIGN: Mapping[str, int | None] = {
    "AttributeError": None,
    "CollectError": 2,
    "EOFError": None,
    "OSError": None,
    "OptionError": 2,
    "PerfFailure": 1,
    "RuntimeError": None,
    "SystemExit": None,
    "TypeError": None,
    "UnknownShapeError": None,
    "ValueError": None,
    "pytest.UsageError": 4,
}
# Calls that show a text, by the code likewise: None where the run goes on.
_CALLS: Mapping[str, int | None] = {
    "click.echo": None,
    "print": None,
    "page.item": None,
    "page.sentence": None,
    "pytest.fail": 1,
    "pytest.skip": None,
    "self.fail": 2,
    "warnings.warn": None,
}
# Keywords of records that say why something did not come about.
_REASONS = frozenset({"advice", "failure", "note", "reason"})
# Functions that show a text so that nothing obeys it, or give one that is none of a user's.
_SAFE = re.compile(r"describe|format_\w+|len|printable|printable_lines|shown|_shown")
# Functions that return what is advised.
_ADVICE = re.compile(r"advice|advise|doubt|remed|reach")
# Of a call of these, only what it is called with is shown.
_PLAIN = frozenset(
    {"in_python", "in_table", "printable", "printable_lines", "shown", "str", "worded"}
)
_FIELD = re.compile(r"\{[^{}]*\}")
_WORD = re.compile(r"[A-Za-z]{2}")
# Methods that leave a text what it is.
_ON_TEXTS = frozenset({"format", "replace", "rstrip", "strip"})
_NUMERIC = re.compile(r".*[,%bdefgnoxX]")
_MAX_DEPTH = 4
_MAX_CHOICES = 8


@dataclass(frozen=True, slots=True)
class Text:
    """An expression as a text: its words, and the fields that nothing made safe to show."""

    words: str
    raw: tuple[str, ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether any of the words stand in the source, rather than come from elsewhere."""
        return _WORD.search(_FIELD.sub("", self.words)) is not None

    def __add__(self, other: Text) -> Text:
        return Text(self.words + other.words, self.raw + other.raw)


@dataclass(frozen=True, slots=True)
class Message:
    """A message, the place where it is made, and the code of a command that ends with it."""

    file: str
    line: int
    kind: str
    exit_code: int | None
    # None where the source does not tell it.
    text: str | None
    expression: str
    raw: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Module:
    """A file of the package, and what it defines and imports."""

    name: str
    file: str
    tree: ast.Module
    classes: list[ast.ClassDef] = field(default_factory=list)
    functions: dict[str, list[ast.FunctionDef]] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)

    # All that may make a message, and the functions around it, the inner ones first.
    spots: list[tuple[ast.AST, tuple[ast.FunctionDef, ...]]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, root: Path) -> _Module:
        inner = path.relative_to(root)
        name = ".".join(inner.with_suffix("").parts).removesuffix(".__init__")
        module = cls(name, inner.as_posix(), ast.parse(path.read_text("utf-8")))
        waiting: list[tuple[ast.AST, tuple[ast.FunctionDef, ...]]] = [(module.tree, ())]
        while waiting:
            node, functions = waiting.pop()
            if isinstance(node, ast.FunctionDef):
                functions = (node, *functions)
            module._note(node, functions)
            waiting += [(child, functions) for child in ast.iter_child_nodes(node)]
        for statement in module.tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                module.constants[statement.targets[0].id] = statement.value
        return module

    def _note(self, node: ast.AST, functions: tuple[ast.FunctionDef, ...]) -> None:
        match node:
            case ast.Call() | ast.Raise() | ast.Return():
                self.spots.append((node, functions))
            case ast.ClassDef():
                self.classes.append(node)
            case ast.FunctionDef():
                self.functions.setdefault(node.name, []).append(node)
            case ast.ImportFrom(module=str(place)):
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (place, alias.name)


@dataclass(frozen=True, slots=True)
class _Function:
    """A function, and the module that it is in."""

    module: _Module
    node: ast.FunctionDef


class Source:
    """The modules of a package."""

    def __init__(self, folder: Path = PACKAGE) -> None:
        modules = [_Module.read(path, folder.parent) for path in sorted(folder.rglob("*.py"))]
        self.modules = {module.name: module for module in modules}

    @cached_property
    def exit_codes(self) -> Mapping[str, int | None]:
        """Each class of error with the code of a command that ends with one."""
        classes = [c for module in self.modules.values() for c in module.classes if c.bases]
        bases = {node.name: ast.unparse(node.bases[0]) for node in classes}
        codes = {
            node.name: int(ast.unparse(each.value))
            for node in classes
            for each in node.body
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "exit_code"
        }
        found: dict[str, int | None] = {**_FOREIGN, _BASE: codes[_BASE]}
        for name in bases:
            line = [name]
            while line[-1] in bases and line[-1] != _BASE:
                line.append(bases[line[-1]])
            if line[-1] == _BASE:
                found[name] = next(codes[each] for each in line if each in codes)
        return found

    def function(self, module: _Module, called: ast.expr) -> _Function | None:
        """The function of the package that is called, where no other can be meant."""
        if isinstance(called, ast.Name):
            name, home = called.id, module
            if name not in home.functions and name in home.imported:
                place, name = home.imported[name]
                home = self.modules.get(place, home)
            found = [_Function(home, node) for node in home.functions.get(name, [])]
        elif isinstance(called, ast.Attribute):
            # Of whatever object: all that make errors have a name of their own.
            found = [
                _Function(home, node)
                for home in (module, *self.modules.values())
                for node in home.functions.get(called.attr, [])
                if _is_method(node) and (home is module or self.error_of(node) is not None)
            ][:1]
        else:
            found = []
        return found[0] if len(found) == 1 else None

    def error_of(self, function: ast.FunctionDef) -> str | None:
        """The class of the errors that a function makes for others."""
        name = "" if function.returns is None else ast.unparse(function.returns)
        return name if name in self.exit_codes else None

    def constant(self, module: _Module, name: str) -> tuple[_Module, ast.expr] | None:
        """What a name of a module stands for, and where that is said."""
        if name not in module.constants and name in module.imported:
            place, name = module.imported[name]
            module = self.modules.get(place, module)
        value = module.constants.get(name)
        return None if value is None else (module, value)

    def messages(self) -> tuple[Message, ...]:
        finders = [_Finder(self, module) for module in self.modules.values()]
        found = [message for finder in finders for message in finder.find()]
        # A function that makes errors for others is shown with the words of each of these.
        followed = {place for finder in finders for place in finder.followed}
        return tuple(m for m in found if (m.file, m.line) not in followed)


class _Reader:
    """Reads the expressions of one function, whose parameters may be given."""

    def __init__(
        self,
        source: Source,
        module: _Module,
        functions: Sequence[ast.FunctionDef] = (),
        given: Mapping[str, Text] | None = None,
        depth: int = 0,
    ) -> None:
        self._source = source
        self._module = module
        self._functions = functions
        self._given = given or {}
        self._depth = depth
        self._reading: set[str] = set()

    def read(self, node: ast.expr) -> Text:
        found: Text | None = None
        match node:
            case ast.Constant(value=value):
                found = Text("" if value is None else str(value))
            case ast.JoinedStr(values=values):
                found = sum(map(self.read, values), Text(""))
            case ast.FormattedValue():
                found = self._field(node)
            case ast.BinOp(op=ast.Add()):
                both = self.read(node.left) + self.read(node.right)
                found = both if both.is_told else None
            case ast.IfExp():
                found = _one_of(node, [self.read(node.body), self.read(node.orelse)])
            case ast.BoolOp(op=ast.Or()):
                found = _one_of(node, [self.read(each) for each in node.values])
            case ast.NamedExpr():
                found = self.read(node.value)
            case ast.Name():
                found = self._name(node)
            case ast.Call():
                found = self._call(node)
        return _unfollowed(node) if found is None else found

    def _field(self, node: ast.FormattedValue) -> Text:
        spec = "" if node.format_spec is None else ast.unparse(node.format_spec)[2:-1]
        found = self.read(node.value)
        if node.conversion == ord("r"):
            # The `repr` of a text has no character that a terminal obeys.
            words = found.words if found.is_told else f"{found.words.removesuffix('}')}!r}}"
            return Text(words)
        return Text(found.words) if _NUMERIC.fullmatch(spec) else found

    def _name(self, node: ast.Name) -> Text:
        if node.id in self._given:
            return self._given[node.id]
        if node.id in self._reading:
            return Text("")
        values = [v for each in self._functions for v in _assigned(each).get(node.id, ())]
        reader = self
        if not values and (constant := self._source.constant(self._module, node.id)) is not None:
            values = [constant[1]]
            reader = _Reader(self._source, constant[0], (), {}, self._depth + 1)
        if not values or self._depth > _MAX_DEPTH:
            return _unfollowed(node)
        self._reading.add(node.id)
        found = _one_of(node, [reader.read(value) for value in values])
        self._reading.discard(node.id)
        return found if found.is_told else Text(f"{{{node.id}}}", found.raw)

    def _call(self, node: ast.Call) -> Text:
        name = _dotted(node.func).rsplit(".", 1)[-1]
        if name in _PLAIN and len(node.args) == 1:
            inner = self.read(node.args[0])
            return Text(inner.words, () if _SAFE.fullmatch(name) else inner.raw)
        if name == "join" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            return self._joined(node, node.func.value, node.args[0])
        if isinstance(node.func, ast.Attribute) and name in _ON_TEXTS:
            found = self.read(node.func.value)
            return found if found.is_told else _unfollowed(node)
        called = self._source.function(self._module, node.func)
        if called is None or self._depth >= _MAX_DEPTH or _SAFE.fullmatch(name):
            return _unfollowed(node)
        found = self.read_returned(called, node)
        return found if found.is_told else _unfollowed(node, found.raw or None)

    def _joined(self, node: ast.Call, between: ast.expr, joined: ast.expr) -> Text:
        if not isinstance(joined, ast.List | ast.Tuple):
            return _unfollowed(node)
        parts = [
            _unfollowed(each.value) if isinstance(each, ast.Starred) else self.read(each)
            for each in joined.elts
        ]
        separator = self.read(between).words
        return Text(separator.join(p.words for p in parts), tuple(r for p in parts for r in p.raw))

    def read_returned(self, function: _Function, call: ast.Call) -> Text:
        """What a function returns for a call: the text, or that of the error that it makes."""
        home = _Reader(self._source, function.module, (), {}, self._depth + 1)
        given = {name: home.read(value) for name, value in _defaults(function.node).items()}
        given |= {name: self.read(value) for name, value in _given_to(function.node, call).items()}
        reader = _Reader(self._source, function.module, (function.node,), given, self._depth + 1)
        returned = [
            node.value
            for node in ast.walk(function.node)
            if isinstance(node, ast.Return) and node.value is not None
        ]
        if not 0 < len(returned) <= _MAX_CHOICES:
            return _unfollowed(call)
        return _one_of(call, [reader.read_error(value) for value in returned])

    def read_error(self, node: ast.expr) -> Text:
        """The text of an error where the expression makes one, and otherwise its own."""
        if isinstance(node, ast.Call) and _class_name(node) in self._source.exit_codes:
            texts = [self.read(argument) for argument in node.args]
            first = next((each for each in texts if each.is_told), texts[0] if texts else Text(""))
            remedies = [each for each in map(self._remedy, node.args) if each is not None]
            return sum((Text(" ") + each for each in remedies), first)
        return self.read(node)

    def _remedy(self, node: ast.expr) -> Text | None:
        """The text of a remedy, whose fields are names of settings."""
        if isinstance(node, ast.Name):
            values = [v for each in self._functions for v in _assigned(each).get(node.id, ())]
            found = [each for each in map(self._remedy, values) if each is not None]
            return found[0] if found else None
        if isinstance(node, ast.Call) and _dotted(node.func) == "Remedy":
            return self.read(node.args[0])
        return None


class _Finder:
    """Finds the messages of a module."""

    def __init__(self, source: Source, module: _Module) -> None:
        self._source = source
        self._module = module
        # Where a function makes errors for others: file and line.
        self.followed: set[tuple[str, int]] = set()

    def find(self) -> list[Message]:
        found = [each for spot in self._module.spots for each in self._of_node(*spot)]
        return sorted(found, key=lambda message: message.line)

    def _of_node(self, node: ast.AST, functions: tuple[ast.FunctionDef, ...]) -> Iterator[Message]:
        reader = _Reader(self._source, self._module, functions)
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from self._of_raise(node.exc, reader)
        elif isinstance(node, ast.Call):
            yield from self._of_call(node, reader)
        elif isinstance(node, ast.Return) and _ADVICE.search(functions[0].name):
            text = reader.read(node.value or ast.Constant(None))
            if text.is_told:
                yield self._message(node, "advice", None, text)

    def _of_call(self, node: ast.Call, reader: _Reader) -> Iterator[Message]:
        name = _class_name(node)
        if name in self._source.exit_codes and name != "SystemExit":
            yield self._message(node, name, self._source.exit_codes[name], reader.read_error(node))
        shows = _dotted(node.func)
        if shows in {"click.echo", "print"} and {"err", "file"}.isdisjoint(
            each.arg for each in node.keywords
        ):
            return
        if shows in _CALLS and node.args:
            text = reader.read(node.args[0])
            if text.is_told or not shows.startswith("page."):
                yield self._message(node, shows, _CALLS[shows], text)
        for each in node.keywords:
            if each.arg in _REASONS and (found := reader.read(each.value)).is_told:
                yield self._message(each.value, each.arg or "", None, found)

    def _of_raise(self, node: ast.expr, reader: _Reader) -> Iterator[Message]:
        if isinstance(node, ast.Call):
            if _class_name(node) in self._source.exit_codes:
                return
            called = self._source.function(self._module, node.func)
            if called is None:
                yield self._message(node, "raise", None, Text(""))
                return
            kind = self._source.error_of(called.node) or "raise"
            text = reader.read_returned(called, node)
            if text.is_told:
                self._follow(called)
            yield self._message(node, kind, self._source.exit_codes.get(kind), text)
        else:
            yield self._message(node, "raise", None, Text(""))

    def _follow(self, function: _Function) -> None:
        for node in ast.walk(function.node):
            if isinstance(node, ast.Call) and _class_name(node) in self._source.exit_codes:
                self.followed.add((function.module.file, node.lineno))

    def _message(
        self, node: ast.expr | ast.stmt, kind: str, code: int | None, text: Text
    ) -> Message:
        told = text.words if text.is_told else None
        return Message(
            self._module.file,
            node.lineno,
            kind,
            code,
            told,
            ast.unparse(node),
            tuple(dict.fromkeys(text.raw)),
        )


def _class_name(call: ast.Call) -> str:
    """The class that a call makes one of; `pytest.UsageError` is told from ours."""
    name = _dotted(call.func)
    return name if name in _FOREIGN else name.rsplit(".", 1)[-1]


def _dotted(called: ast.expr) -> str:
    """The name by which something is called, as far as it is one: `click.echo`, `.join`."""
    if isinstance(called, ast.Name):
        return called.id
    return f"{_dotted(called.value)}.{called.attr}" if isinstance(called, ast.Attribute) else ""


def _unfollowed(node: ast.expr, raw: tuple[str, ...] | None = None) -> Text:
    """An expression as a field, which is raw unless something in it makes a text safe."""
    shown = ast.unparse(node)
    if raw is None:
        names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        raw = () if any(map(_SAFE.fullmatch, names)) or "!r" in shown else (shown,)
    return Text(f"{{{shown.replace('{', '(').replace('}', ')')}}}", raw)


def _one_of(node: ast.expr, texts: Sequence[Text]) -> Text:
    """Any of several texts; the expression itself where none of them is told."""
    raw = tuple(each for text in texts for each in text.raw)
    words = list(dict.fromkeys(text.words for text in texts))
    if len(words) == 1:
        return Text(words[0], raw)
    if not any(text.is_told for text in texts):
        return _unfollowed(node, raw)
    return Text(f"[{'|'.join(each for each in words if each)}]", raw)


@cache
def _assigned(function: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """What a function assigns to each name of its own."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for each in targets:
                if isinstance(each, ast.Name) and node.value is not None:
                    values.setdefault(each.id, []).append(node.value)
    return values


def _defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    arguments = function.args
    places = [*arguments.posonlyargs, *arguments.args]
    last = places[len(places) - len(arguments.defaults) :]
    found = {each.arg: value for each, value in zip(last, arguments.defaults, strict=True)}
    for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if value is not None:
            found[each.arg] = value
    return found


def _given_to(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    given = dict(zip(names[_is_method(function) :], call.args, strict=False))
    return given | {each.arg: each.value for each in call.keywords if each.arg is not None}


def _is_method(function: ast.FunctionDef) -> bool:
    return [each.arg for each in function.args.args[:1]] == ["self"]


def render(messages: Sequence[Message], width: int) -> str:
    """The messages by file, as wide as a terminal."""
    lines: list[str] = []
    for file, group in groupby(messages, key=lambda message: message.file):
        lines.append(file)
        for each in group:
            code = "" if each.exit_code is None else f", exit {each.exit_code}"
            lines.append(f"  {each.line} {each.kind}{code}")
            shown = f"(not told) {each.expression}" if each.text is None else each.text
            for line in shown.splitlines():
                lines += textwrap.wrap(line, width, initial_indent="    ", subsequent_indent="    ")
        lines.append("")
    untold = sum(message.text is None for message in messages)
    lines.append(f"messages: {len(messages):,}; not told by the source: {untold:,}")
    return "\n".join(lines)


def select(messages: Sequence[Message], words: Sequence[str]) -> list[Message]:
    """Those with one of the words in their file, class or text; all of them without words."""
    return [
        each
        for each in messages
        if not words or any(word in f"{each.file} {each.kind} {each.text}" for word in words)
    ]


def dump(messages: Sequence[Message]) -> str:
    return json.dumps([asdict(message) for message in messages], indent=2, ensure_ascii=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print every message of the package.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only messages with one of these")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    options = parser.parse_args()
    found = select(Source().messages(), options.words)
    width = shutil.get_terminal_size().columns
    sys.stdout.write(f"{dump(found) if options.json else render(found, width)}\n")


if __name__ == "__main__":
    main()
