"""The options that say where a profile is kept, and under which name."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from pytest_modelperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_modelperf.profiler.records import Profile
    from pytest_modelperf.profiles.store import ProfileStore
    from pytest_modelperf.roofline.records import Roofline

_F = TypeVar("_F", bound=Callable[..., Any])


def profile_dir_option(command: _F) -> _F:
    return click.option(
        "--profile-dir",
        "--dir",
        "profile_dir",
        metavar="DIR",
        help="Folder of the kept profiles.  [default: profiles in the project's root, which is the "
        "nearest folder upward with [tool.modelperf] or .git]",
    )(command)


def open_store(model: str, profile_dir: str | None) -> ProfileStore:
    from pytest_modelperf.profiles.place import FOLDER, model_folder, project_root
    from pytest_modelperf.profiles.store import ProfileStore

    root = project_root(Path.cwd())
    place = root / FOLDER if profile_dir is None else Path(profile_dir)
    return ProfileStore(place, model_folder(model, root), model, profile_dir is not None)


class Keeping(Struct, frozen=True):
    """A request to keep a profile: the place, the name, and whether it may replace another."""

    store: ProfileStore
    name: str
    replaces: bool

    @classmethod
    def of(
        cls, model: str, name: str | None, profile_dir: str | None, *, replaces: bool, static: bool
    ) -> Keeping | None:
        """Reads the options before anything is measured; UsageError if they do not fit together."""
        if name is None:
            if replaces or profile_dir is not None:
                option = "--replace" if replaces else "--profile-dir"
                raise UsageError(f"{option} is about a profile that is kept: give a --name too.")
            return None
        if static:
            raise UsageError(
                "--name keeps what a run of the model told: leave --static out. What is counted "
                "is always there: modelperf profiles MODEL --show flops"
            )
        store = open_store(model, profile_dir)
        store.check_free(name, replaces=replaces)
        store.check_writable()
        return cls(store, name, replaces)

    def keep(self, profile: Profile, rooflines: Mapping[str, Roofline]) -> str:
        """Keeps the profile if any case was measured, and returns a line that says so."""
        from pytest_modelperf.profiles.records import NamedProfile
        from pytest_modelperf.profiles.text import describe_kept

        if all(case.measured is None for case in profile.cases):
            return f"{self.name} is not kept: no case was measured"
        now = dt.datetime.now(dt.timezone.utc).replace(microsecond=0)
        named = NamedProfile(name=self.name, date=now, profile=profile, rooflines=rooflines)
        before = self.store.keep(named, replaces=self.replaces)
        folder = os.path.relpath(self.store.path)
        replaced = None if before is None else before.date()
        return describe_kept(self.name, folder, replaced, self.store.command)
