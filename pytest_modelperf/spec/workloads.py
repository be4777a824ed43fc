"""A workload as it is declared: its members, and when their inferences arrive."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.profiler.inputs.mixture import Arrivals, Mixture, WorkloadMember


class DeclaredMember(Struct, frozen=True, kw_only=True):
    """One member: sizes of dimensions or a file of arrays, and how often it occurs."""

    dims: Mapping[str, int] = field(default_factory=dict)
    file: Path | None = None
    weight: int = 1

    def name(self, named_by: Collection[str]) -> str:
        """Return `seq=16,width=4` for these dimensions, or the file name without its suffix."""
        if self.file is not None:
            return self.file.stem
        own = [name for name in self.dims if name in named_by] or self.dims
        return ",".join(f"{name}={self.dims[name]}" for name in own)

    def read(self, named_by: Collection[str]) -> WorkloadMember:
        """Read the arrays of its file, or raise UsageError if that fails."""
        from pytest_modelperf.profiler.inputs.given import read_given
        from pytest_modelperf.profiler.inputs.mixture import WorkloadMember

        given = None if self.file is None else read_given(str(self.file))
        return WorkloadMember(
            name=self.name(named_by), weight=self.weight, dims=self.dims, given=given
        )


class DeclaredWorkload(Struct, frozen=True):
    """The members of a workload, or the pattern of the files that are its members.

    Without both, the inputs of the case are run. An inference arrives every `every_ms`, even if
    earlier ones are still running. Up to `streams` run at once.
    """

    members: tuple[DeclaredMember, ...] = ()
    pattern: Path | None = None
    every_ms: float | None = None
    streams: int = 1

    @property
    def is_mixed(self) -> bool:
        """Whether it has members of its own."""
        return bool(self.members) or self.pattern is not None

    @property
    def arrivals(self) -> Arrivals | None:
        """When inferences arrive, or None if each begins when the one before is over."""
        from pytest_modelperf.profiler.inputs.mixture import Arrivals

        if self.every_ms is None and self.streams == 1:
            return None
        return Arrivals(self.every_ms, self.streams)

    def located(self, find: Callable[[str], Path]) -> DeclaredWorkload:
        """Make the paths of its files absolute. `find` resolves a relative path."""
        if self.pattern is not None:
            folder = find(os.fspath(self.pattern.parent))
            return replace(self, pattern=folder / self.pattern.name)
        return replace(
            self,
            members=tuple(
                each if each.file is None else replace(each, file=find(os.fspath(each.file)))
                for each in self.members
            ),
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its members. Raises UsageError if the pattern matches none."""
        if self.pattern is None:
            return tuple(each.file for each in self.members if each.file is not None)
        found = tuple(sorted(self.pattern.parent.glob(self.pattern.name)))
        if not found:
            raise UsageError(
                f"no file matches the workload {printable(str(self.pattern))}: give a pattern of "
                ".npz files, such as inputs/*.npz."
            )
        return found

    def read(self) -> Mixture:
        """Read the workload with all arrays, or raise UsageError if a file cannot be read."""
        from pytest_modelperf.profiler.inputs.mixture import Mixture

        members = self.members or tuple(DeclaredMember(file=file) for file in self.files)
        names = dict.fromkeys(name for each in members for name in each.dims)
        varying = [name for name in names if len({each.dims.get(name) for each in members}) > 1]
        return Mixture.of([each.read(varying) for each in members])
