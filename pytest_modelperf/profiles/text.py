"""Kept profiles on a terminal: the list, one of them, two side by side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.profiler.shown.tables.static import describe_model
from pytest_modelperf.profiler.shown.text import render_profile
from pytest_modelperf.profiles.records import (
    DIMENSIONS,
    ENGINE,
    FLOPS,
    MODEL_FILE,
    CasePair,
    NamedProfile,
    ProfileList,
    SideBySide,
    WorkAndTime,
)
from pytest_modelperf.profiles.tables import (
    case_pair_table,
    layer_pair_table,
    profile_list_tables,
    type_pair_table,
    work_and_time_table,
)
from pytest_modelperf.report.commands import fold_command
from pytest_modelperf.report.page import Page, TextStyle
from pytest_modelperf.roofline.text import roofline_insets
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.quoting import shell_path, shell_word

# The standard deviation of the difference between two processes: the least and the most of
# several real models, each run in 40 processes on a shared machine of 2 cores.
APART = (0.06, 0.28)
_TIME = "%Y-%m-%d %H:%M UTC"
# The default engine of `modelperf profile`.
_USUAL_ENGINE = "onnxruntime"


def render_list(found: ProfileList, style: TextStyle) -> str:
    page = Page(style)
    known = found.flops or next(reversed(found.kept), None)
    page.line(printable(found.model) if known is None else describe_model(known.profile), "bold")
    if known is not None:
        page.table(*profile_list_tables(found), cuts_first=True)
    if not found.kept:
        page.line("")
        page.item(f"none is kept: {_first_command(found)}")
    if found.unusable:
        page.line("")
    for each in found.unusable:
        page.item(f"{printable(each.name)}: {printable(each.reason)}", style="red")
    return page.text()


def _first_command(found: ProfileList) -> str:
    """The command that keeps a first profile. Without counts and errors, it is a function."""
    is_function = found.flops is None and not found.unusable
    engine = " --engine callable" if is_function else ""
    folder = "" if found.folder is None else f" --profile-dir {shell_path(found.folder)}"
    return f"modelperf profile {shell_path(found.model)}{engine} --name baseline{folder}"


def render_named(
    named: NamedProfile, view: LayerView, style: TextStyle, *, is_older: bool = False
) -> str:
    """A profile as `modelperf profile` shows it, its date, and why it has no roofline."""
    head, end = Page(style), Page(style)
    head.line(_kept(named), "bold")
    if is_older:
        head.item("of another model file than the present one", style="yellow")
    report = head.text() + render_profile(
        named.profile, view, style, roofline_insets(named.rooflines, view.top)
    )
    without = [
        case
        for case in named.profile.cases
        if case.measured is not None and case.case.id not in named.rooflines
    ]
    if not without:
        return report
    end.line("")
    _write_missing_roofline(end, named, without)
    return report + end.text()


def render_flops(
    named: NamedProfile, view: LayerView, style: TextStyle, notes: Sequence[str] = ()
) -> str:
    """The counts, with the roofline of each case, or a note on why there is none."""
    report = render_profile(named.profile, view, style, roofline_insets(named.rooflines, view.top))
    if not notes:
        return report
    page = Page(style)
    page.line("")
    for note in notes:
        page.item(printable(note), style="yellow")
    return report + page.text()


def _write_missing_roofline(
    page: Page, named: NamedProfile, without: Sequence[CaseProfile]
) -> None:
    """Why these cases have no roofline, and the command that keeps a profile with one."""
    timed = [case for case in without if case.measured and case.measured.layer_times]
    untimed = ", ".join(printable(case.case.id) for case in without if case not in timed)
    if untimed:
        page.item(f"no roofline of {untimed}: there are no times of layers")
    if timed:
        ids = ", ".join(printable(case.case.id) for case in timed)
        page.item(f"no roofline of {ids}: none was kept")
        for line in fold_command("with one", _with_roofline(named, timed), page.width):
            page.line(line)


def _with_roofline(named: NamedProfile, cases: Sequence[CaseProfile]) -> str:
    """The command that measures these cases again, and keeps their roofline under another name."""
    model = named.profile.model
    batches = dict.fromkeys(str(case.case.batch_size) for case in cases)
    cores = dict.fromkeys(str(case.case.cores) for case in cases)
    dims = dict.fromkeys(dim for case in cases for dim in case.case.sizes.items())
    engines = dict.fromkeys(_engine(case).name for case in cases)
    return " ".join(
        [
            f"modelperf profile {shell_path(model.path or model.name)}",
            f"--batch {','.join(batches)} --cores {','.join(cores)}",
            *(f"--dim {shell_word(f'{name}={size}')}" for name, size in dims),
            *_lengths([case.case for case in cases]),
            *(f"--engine {shell_word(name)}" for name in engines if name != _USUAL_ENGINE),
            "--roofline --name NAME",
        ]
    )


def render_side_by_side(found: SideBySide, top: int | None, style: TextStyle) -> str:
    page = Page(style)
    page.line(f"{printable(found.before.name)} -> {printable(found.after.name)}", "bold")
    for word, named in (("before", found.before), ("now", found.after)):
        page.item(f"{word}: {_kept(named)}")
    for each in found.unlike:
        text = f"{each.what}: {printable(each.before)} -> {printable(each.after)}"
        page.item(text, style="yellow")
    page.table(case_pair_table(found), cuts_first=True)
    for name, case in found.single:
        page.item(f"{printable(case.id)} was measured in {_single(found, name, case)}")
    page.line("")
    _write_doubt(page, found)
    for pair in found.pairs:
        if not pair.layers:
            page.line("")
            page.item(f"{printable(pair.id)}: no times of layers on both sides")
            continue
        if len(found.pairs) > 1:
            page.line("")
            page.line(printable(pair.id), "bold")
        page.table(type_pair_table(pair))
        page.table(layer_pair_table(pair, top))
    return page.text()


def render_work_and_time(found: WorkAndTime, style: TextStyle) -> str:
    page = Page(style)
    page.line(f"{FLOPS} and {_kept(found.kept)}", "bold")
    for case in found.cases:
        if len(found.cases) > 1:
            page.line("")
            page.line(printable(case.case.id), "bold")
        page.table(work_and_time_table(case))
    for each in found.without_times:
        page.item(f"{printable(each.id)} has no times of layers")
    return page.text()


def describe_kept(name: str, folder: str, replaced: dt.date | None, command: str) -> str:
    """The folder of a kept profile, the one that it replaced, and the command that lists it."""
    instead = "" if replaced is None else f" in place of the one of {replaced}"
    return f"kept as {name} in {printable(folder)}{instead}: {command}"


def _kept(named: NamedProfile) -> str:
    name = printable(named.name)
    return name if named.date is None else f"{name}, kept {named.date.strftime(_TIME)}"


def _single(found: SideBySide, name: str, case: Case) -> str:
    other = found.after if name == found.before.name else found.before
    is_there = any(each.case.id == case.id for each in other.profile.cases)
    return f"{printable(name)} only" + (f": in {printable(other.name)} it failed" * is_there)


# -- how sure that is


def _write_doubt(page: Page, found: SideBySide) -> None:
    """The warning that nothing here is proven to be a change, and the command that could."""
    least, most = (100 * share for share in APART)
    text = (
        "The two did not take turns. Runs of one model that are apart in time differ by "
        f"{least:g} to {most:g} % though nothing changed"
    )
    large = [pair.id for pair in found.pairs if _is_large(pair)]
    if not large:
        text += ", so none of this is shown to be a change."
    elif len(large) == len(found.pairs):
        text += "; this is more, and not tested."
    else:
        text += f"; of {printable(', '.join(large))} it is more, and not tested, and nothing else "
        text += "is shown to be a change."
    page.sentence(text, style="yellow")
    for line in fold_command("to know", _what_to_type(found), page.width):
        page.line(f"  {line}")


def _is_large(pair: CasePair) -> bool:
    """Whether the medians differ by more than two runs of one model usually do."""
    most = 1 + APART[1]
    return pair.ratio is not None and not 1 / most <= pair.ratio <= most


def _what_to_type(found: SideBySide) -> str:
    """The command that runs the two in turn, by what differs between them."""
    unlike = {each.what for each in found.unlike}
    pair = found.pairs[0]
    model = found.after.profile.model
    now = shell_path(model.path or model.name)
    case = pair.after.case
    options = " ".join(
        [
            f"--batch {case.batch_size} --cores {case.cores}",
            *(f"--dim {shell_word(f'{name}={size}')}" for name, size in case.sizes.items()),
            *_lengths([case]),
        ]
    )
    if MODEL_FILE in unlike:
        before = found.before.profile.model.path
        old = "OLD.onnx" if before in {None, model.path} else shell_path(before or "")
        return f"modelperf compare {old} {now} {options}"
    if ENGINE in unlike and _is_other_version(pair):
        return f"modelperf compare {now} {now} --python-a OTHER_PYTHON {options}"
    if ENGINE in unlike and case.phase is not None:
        engines = [shell_word(_engine(each).name) for each in (pair.before, pair.after)]
        chosen = f"--engine {engines[0]} --engine-b {engines[1]}"
        return f"modelperf compare {now} {now} {chosen} {options}"
    if ENGINE in unlike:
        return f"modelperf whatif {now} --engine {shell_word(_engine(pair.after).name)} {options}"
    if pair.before.case.id != case.id or DIMENSIONS in unlike:
        batches, cores = (
            ",".join(dict.fromkeys(map(str, sizes)))
            for sizes in (
                (pair.before.case.batch_size, case.batch_size),
                (pair.before.case.cores, case.cores),
            )
        )
        dims = "".join(f" --dim {shell_word(dim)}" for dim in _both_sizes(pair.before.case, case))
        lengths = "".join(f" {each}" for each in _lengths([pair.before.case, case]))
        return f"modelperf sweep {now} --batch {batches} --cores {cores}{dims}{lengths}"
    return f"modelperf doctor {now} --cores {case.cores}"


def _lengths(cases: Sequence[Case]) -> list[str]:
    """The options that make the phases of these cases."""
    phases = [case.phase for case in cases if case.phase is not None]
    prompts = dict.fromkeys(str(each.prompt) for each in phases if each.prompt)
    counts = dict.fromkeys(str(each.generate) for each in phases if each.phase is Phase.STEP)
    options = (("--prompt", prompts), ("--generate", counts))
    return [f"{option} {','.join(values)}" for option, values in options if values]


def _both_sizes(before: Case, now: Case) -> list[str]:
    """The values of --dim that make both cases: `seq=64,128`, or `seq=64,past=0` for each."""
    cases = [before.sizes, now.sizes]
    names = list({**cases[0], **cases[1]})
    sizes = {name: list(dict.fromkeys(c[name] for c in cases if name in c)) for name in names}
    is_paired = sum(len(each) > 1 for each in sizes.values()) > 1
    if is_paired and cases[0].keys() == cases[1].keys():
        return [",".join(f"{name}={case[name]}" for name in names) for case in cases]
    return [f"{name}={','.join(map(str, sizes[name]))}" for name in names]


def _is_other_version(pair: CasePair) -> bool:
    """Whether one engine ran both cases with the same options, in two versions."""
    old, new = _engine(pair.before), _engine(pair.after)
    return (old.name, old.options) == (new.name, new.options)


def _engine(case: CaseProfile) -> EngineFacts:
    """The engine of a case that ran, as both cases of a pair did."""
    if case.measured is None:
        raise ValueError("one case of the pair did not run")
    return case.measured.engine
