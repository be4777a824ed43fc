"""The options for where a profile is kept, and under which name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_modelperf.cli.options import project_folder_option
from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.profiler.records import Profile
    from pytest_modelperf.profiles.store import ProfileStore
    from pytest_modelperf.roofline.records import Roofline


profile_dir_option = project_folder_option(
    "--profile-dir", "--dir", "profile_dir", of="kept profiles", default="profiles"
)


def open_store(model: str, profile_dir: str | None) -> ProfileStore:
    from pytest_modelperf.profiles.store import FOLDER, ProfileStore, model_folder, project_root

    root = project_root(Path.cwd())
    place = root / FOLDER if profile_dir is None else Path(profile_dir)
    return ProfileStore(place, model_folder(model, root), model, profile_dir is not None)


class KeepingOptions(Struct, frozen=True):
    """Whether to keep a profile, under which name and where."""

    name: str | None
    replaces: bool
    profile_dir: str | None

    def open(self, model: str, *, static: bool) -> KeepingPlace | None:
        """Open the place for the profile before anything is measured.

        Raises UsageError if the options do not fit together.
        """
        if self.name is None:
            if self.replaces or self.profile_dir is not None:
                option = "--replace" if self.replaces else "--profile-dir"
                raise UsageError(f"{option} needs a profile to keep: give --name as well.")
            return None
        if static:
            raise UsageError(
                "--name keeps the results of a run: leave out --static. The counts need no name: "
                "modelperf profiles MODEL --show flops"
            )
        store = open_store(model, self.profile_dir)
        store.check_free(self.name, replaces=self.replaces)
        store.check_writable()
        return KeepingPlace(store, self.name, self.replaces)


class KeepingPlace(Struct, frozen=True):
    """A store, the name for a profile in it, and whether that profile may replace another."""

    store: ProfileStore
    name: str
    replaces: bool

    def keep(self, profile: Profile, rooflines: Mapping[str, Roofline]) -> str:
        """Keep the profile if any case was measured, and return a line that says so."""
        from pytest_modelperf.profiles.records import NamedProfile
        from pytest_modelperf.profiles.store import relative_path

        if all(case.measured is None for case in profile.cases):
            return f"{self.name} is not kept: no case was measured"
        now = dt.datetime.now(dt.timezone.utc).replace(microsecond=0)
        named = NamedProfile(name=self.name, date=now, profile=profile, rooflines=rooflines)
        before = self.store.keep(named, replaces=self.replaces)
        folder = relative_path(str(self.store.path), Path.cwd())
        instead = "" if before is None else f" in place of the one of {before.date()}"
        return f"kept as {self.name} in {printable(folder)}{instead}: {self.store.command}"
