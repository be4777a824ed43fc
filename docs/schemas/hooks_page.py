"""The reference of the hooks in docs/extending.md, from the specifications of the hooks.

`make schemas` writes it between the marks of that page.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

from marked_blocks import code, table, with_block

from pytest_modelperf.profiler.hookspecs import Engines, Hooks, Operators

PAGE = Path(__file__).parent.parent / "extending.md"
_MARK = "hooks"
# What each hook calls on the argument of this name.
_REGISTERING: Mapping[str, Callable[..., object]] = {
    "operators": Operators.register,
    "engines": Engines.register,
}


def with_hooks(text: str) -> str:
    """The page with the hooks of today."""
    return with_block(text, _MARK, reference())


def reference() -> str:
    """A table of the hooks, then what their arguments can do."""
    hooks = [each for name, each in vars(Hooks).items() if not name.startswith("_")]
    rows = [(code(_call(hook)), _words(hook)) for hook in hooks]
    parts = [table(("hook", "what it does"), rows)]
    for name, register in _REGISTERING.items():
        parts.append(f"{code(f'{name}.{_call(register)}')}\n\n{_words(register)}\n")
    return "\n".join(parts)


def _call(function: Callable[..., object]) -> str:
    signature = inspect.signature(function)
    kept = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    shown = signature.replace(parameters=kept, return_annotation=inspect.Signature.empty)
    return f"{function.__name__}{shown}"


def _words(function: Callable[..., object]) -> str:
    """The docstring, a paragraph on a line."""
    paragraphs = inspect.getdoc(function)
    return "\n\n".join(" ".join(part.split()) for part in (paragraphs or "").split("\n\n"))
