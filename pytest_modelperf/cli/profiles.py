"""`modelperf profiles` lists, shows, compares and removes kept profiles."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cli.options import (
    OutputOptions,
    generation_options,
    load_extensions,
    model_options,
    output_options,
    project_folder_option,
    request_of,
    takes_records,
    top_option,
)
from pytest_modelperf.cli.output import show, write_report
from pytest_modelperf.cli.parameters import COMMAND_WORDING, GroupedCommand, setting_option
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import BATCH_SIZE, CORES
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.run_definitions import ENGINE
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.profiler.hookspecs import Operators
    from pytest_modelperf.profiler.records import Profile
    from pytest_modelperf.profiler.request import ProfileRequest
    from pytest_modelperf.profiles.records import ProfileList
    from pytest_modelperf.profiles.side_by_side import BesideFirst
    from pytest_modelperf.profiles.store import ProfileStore
    from pytest_modelperf.report.model import Report
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


_INCOMPLETE = 2


class ActionOptions(Struct, frozen=True):
    """The actions on kept profiles. Without one, they are listed."""

    show: str | None
    compared: tuple[str, str] | None
    removed: tuple[str, ...]

    @property
    def shows_flops(self) -> bool:
        from pytest_modelperf.profiles.records import FLOPS

        return self.show == FLOPS

    def check(self, cases: CaseSpec, outputs: OutputOptions) -> None:
        """Raise UsageError if the options do not fit together."""
        if sum(map(bool, (self.show is not None, self.compared, self.removed))) > 1:
            raise UsageError("--show, --compare and --remove exclude each other: give one of them.")
        for option, file in (
            ("--json", outputs.json_file),
            ("--csv", outputs.csv_file),
            ("--html", outputs.html_file),
            ("--markdown", outputs.markdown_file),
        ):
            if self.removed and file is not None:
                raise UsageError(f"--remove writes nothing: leave out {option} or --remove.")
        is_kept = self.removed or self.compared or (self.show is not None and not self.shows_flops)
        if is_kept and (cases.batch_sizes != (None,) or cases.dims or cases.inputs):
            raise UsageError(
                "--batch, --dim and --input give flops its shapes; kept profiles have their own: "
                "leave them out."
            )
        if is_kept and (cases.prompts or cases.generates or cases.state):
            raise UsageError(
                "--prompt, --generate and --state give flops its lengths; kept profiles have their "
                "own: leave them out."
            )
        is_usual = cases.cores == CaseSpec().cores and cases.engine == ENGINE.default
        if not self.shows_flops and not is_usual:
            raise UsageError(
                "--cores and --engine are for the roofline of flops: add --show flops."
            )


@click.command(cls=GroupedCommand, short_help="List, show, compare and remove kept profiles.")
@click.argument("model", type=click.Path())
@click.option("--show", metavar="NAME", help="Show one profile in full; flops shows the counts.")
@click.option(
    "--compare",
    "compared",
    nargs=2,
    metavar="A B",
    help="Compare two side by side. If one is flops, shares of MACs are shown next to shares of "
    "time.",
)
@click.option(
    "--remove", "removed", multiple=True, metavar="NAME", help="Remove a profile; repeatable."
)
@setting_option(BATCH_SIZE, help="batch sizes for flops")
@setting_option(CORES, help="core counts for the roofline of --show flops")
@setting_option(
    ENGINE, default=ENGINE.default, help="engine whose peaks the roofline of --show flops uses"
)
@model_options
@generation_options
@top_option
@output_options(csv="what is shown")
@profile_dir_option
@takes_records(action=ActionOptions, cases=CaseSpec, outputs=OutputOptions)
def profiles(  # noqa: PLR0913  # one parameter per group of options
    *,
    model: str,
    action: ActionOptions,
    cases: CaseSpec,
    plugins: tuple[str, ...],
    top: int,
    outputs: OutputOptions,
    profile_dir: str | None,
) -> None:
    """List the profiles of MODEL that `modelperf profile MODEL --name NAME` kept.

    The list begins with flops: what is counted now, at the shapes that --batch, --dim, --input,
    --prompt and --generate give. The page of the list has each profile next to the first.

    \b
    modelperf profiles model.onnx
    modelperf profiles model.onnx --show baseline
    modelperf profiles model.onnx --show flops --batch 8 --dim seq=64
    modelperf profiles model.onnx --compare baseline pruned
    modelperf profiles model.onnx --compare flops baseline
    modelperf profiles model.onnx --html profiles.html
    modelperf profiles model.onnx --remove baseline
    """  # noqa: D301  # click: keep the lines of the paragraph
    action.check(cases, outputs)
    is_shown = outputs.check(model)
    shown = _Shown(outputs, is_shown=is_shown, top=top)
    store = open_store(model, profile_dir)
    if action.removed:
        _remove(store, action.removed)
    elif action.compared:
        _compare(store, action.compared, shown)
    elif action.show is not None and not action.shows_flops:
        _show(store, action.show, shown)
    else:
        request = request_of(cases)
        extensions = load_extensions(plugins)
        if action.shows_flops:
            engine = cases.engine or str(ENGINE.default)
            extensions.engines.find(engine)
            _show_flops(store, request, extensions.operators, engine, shown)
        else:
            _list(store, request, extensions.operators, shown)


class _Shown(Struct, frozen=True):
    outputs: OutputOptions
    is_shown: bool
    top: int

    def put(self, report: Report, document: str) -> None:
        write_report(report, lambda: document, self.outputs, is_shown=self.is_shown)


def _list(
    store: ProfileStore, request: ProfileRequest, operators: Operators, shown: _Shown
) -> None:
    from pytest_modelperf.profiles.report import profile_list_report
    from pytest_modelperf.profiles.store import dump_profile_list, list_profiles

    found = list_profiles(store, request, operators, COMMAND_WORDING)
    pairs = None if shown.outputs.html_file is None else _next_to_first(found)
    shown.put(profile_list_report(found, pairs), dump_profile_list(found))
    if found.unusable:
        raise SystemExit(_INCOMPLETE)


def _next_to_first(found: ProfileList) -> BesideFirst | None:
    """Compare the first profile with each other one, or return None if it is the only one."""
    from pytest_modelperf.profiles.side_by_side import put_beside_first

    if not found.kept:
        raise UsageError(
            "--html shows kept profiles, and none is kept. Keep one by modelperf profile --name, "
            "or add --show flops for the page of the counts."
        )
    return None if len(found.kept) == 1 else put_beside_first(found.kept)


def _show_flops(
    store: ProfileStore, request: ProfileRequest, operators: Operators, engine: str, shown: _Shown
) -> None:
    """Show the counts, and the least time that the peaks of this machine allow."""
    from pytest_modelperf.profiler.machine.describe import describe_machine
    from pytest_modelperf.profiler.shown.tables.layer_columns import DEFAULT_COLUMNS
    from pytest_modelperf.profiler.shown.tables.layers import LayerView
    from pytest_modelperf.profiles.report import named_report
    from pytest_modelperf.profiles.side_by_side import find_theoretical_rooflines
    from pytest_modelperf.profiles.store import count_flops, dump_named
    from pytest_modelperf.roofline.peaks import cache_folder

    counted = count_flops(store.model, request, operators)
    roofs = find_theoretical_rooflines(counted.profile, describe_machine(), cache_folder(), engine)
    found = replace(counted, rooflines=roofs.by_case)
    view = LayerView(DEFAULT_COLUMNS, "macs" if shown.top else None, shown.top or None)
    shown.put(named_report(found, view, notes=roofs.notes), dump_named(found))


def _show(store: ProfileStore, name: str, shown: _Shown) -> None:
    from pytest_modelperf.profiler.shown.tables.layer_columns import MEASURED_COLUMNS
    from pytest_modelperf.profiler.shown.tables.layers import LayerView
    from pytest_modelperf.profiles.report import named_report
    from pytest_modelperf.profiles.store import find_older

    found = store.read(name)
    is_older = name in (find_older(store.model, [found]) or ())
    view = LayerView(MEASURED_COLUMNS, "ms" if shown.top else None, shown.top or None)
    shown.put(named_report(found, view, is_older=is_older), store.read_text(name))


def _compare(store: ProfileStore, names: tuple[str, str], shown: _Shown) -> None:
    from pytest_modelperf.profiles.records import FLOPS, SIDE_BY_SIDE, WORK_AND_TIME
    from pytest_modelperf.profiles.report import work_and_time_report
    from pytest_modelperf.profiles.report_pairs import side_by_side_report
    from pytest_modelperf.profiles.side_by_side import put_beside_work, put_side_by_side

    if names[0] == names[1]:
        raise UsageError(f"--compare takes two profiles, not {printable(names[0])} twice.")
    before, after = (None if name == FLOPS else store.read(name) for name in names)
    kept = before or after
    if before is not None and after is not None:
        pair = put_side_by_side(before, after)
        shown.put(side_by_side_report(pair, shown.top or None), SIDE_BY_SIDE.dump(pair))
    elif kept is not None:
        both = put_beside_work(kept)
        shown.put(work_and_time_report(both), WORK_AND_TIME.dump(both))


def _remove(store: ProfileStore, names: tuple[str, ...]) -> None:
    unique = tuple(dict.fromkeys(names))
    store.check_there(unique)
    for name in unique:
        store.remove(name)
        show(f"removed {printable(name)} of {printable(store.model)}\n")
