"""Checks that need no engine: what follows from a graph, against baselines and budgets.

Each run is with `--modelperf-static-only`.
"""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path
from textwrap import dedent

import pytest
from inline_snapshot import snapshot

from tests.support.command import run as command
from tests.support.project import (
    STATIC,
    assert_ended,
    assert_says_no_internals,
    between,
    read_json,
    write_dense,
    write_linear,
    write_table,
)
from tests.support.small_models import ones, parse

UPDATE = "--modelperf-update-baseline"
MODEL = "baselines/dense/model.json"
needs_subtests = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="pytest has subtests since version 9"
)
HOSTILE = "a::error file=x,line=1::b%0A.onnx"


def check(run: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return run.runpytest_inprocess(*STATIC, *arguments)


@pytest.fixture
def recorded(run: pytest.Pytester) -> pytest.Pytester:
    """A project with a baseline of `dense.onnx`, which a table names."""
    write_table(run, '[tool.modelperf.models."dense.onnx"]')
    check(run, UPDATE).assert_outcomes(passed=1)
    return run


def without_times(text: str) -> str:
    return re.sub(r"in \d+\.\d+ ?s\b", "in 0.0 s", text)


def summary_of(result: pytest.RunResult) -> str:
    """Return the text below `model performance`."""
    return without_times(between([*result.outlines, "=== end"], "= model performance =", "==="))


def test_an_update_shows_its_plan_and_writes_it(run: pytest.Pytester) -> None:
    result = assert_ended(check(run, UPDATE, "--modelperf-strict", "dense.onnx"), passed=1)
    assert summary_of(result) == snapshot("""\
1 case in 0.0 s

dense.onnx
case   what    before  after  change
────────────────────────────────────
b1-c1  MACs         -     15     new
       params       -     15     new

wrote the baselines of dense.onnx

case               verdict   MACs  params
─────────────────────────────────────────
dense.onnx::b1-c1  recorded    15      15

1 recorded.
""")
    assert read_json(run.path / MODEL)["cases"]


def test_an_unchanged_model_passes(recorded: pytest.Pytester) -> None:
    result = assert_ended(check(recorded, "-v"), "dense.onnx::b1-c1 PASSED*", passed=1)
    result.stdout.no_fnmatch_line("*no baseline*")


def test_a_model_with_more_macs_fails_with_both_figures_and_how_to_accept_it(
    recorded: pytest.Pytester,
) -> None:
    write_dense(recorded.path / "dense.onnx", width=7)
    result = assert_ended(check(recorded), failed=1)
    assert between(result.outlines, "_ dense.onnx::b1-c1 ", "model performance") == snapshot("""\
regressed: MACs +40.0 %, allowed 0 %; also params
why: MatMul: 1 as before, of other shapes

metric  before  now   change
───────────────────────────────────────
MACs        15   21  +40.0 %  regressed
params      15   21  +40.0 %  regressed

by layer type
layer type  count  MACs before  MACs now  MACs change  elementwise
─────────────────────────────────────────────────────────────────────
MatMul          1           15        21           +6            0  <

-v also shows 5 figures
accept: pytest --modelperf --modelperf-update-baseline "dense.onnx::b1-c1"
""")
    assert summary_of(result) == snapshot("""\
1 case in 0.0 s

case               verdict    decided by       MACs   params
────────────────────────────────────────────────────────────
dense.onnx::b1-c1  regressed  MACs +40.0 %  15 → 21  15 → 21

1 regressed.
regressed: each failure names the command that accepts it\
""")
    result.stdout.fnmatch_lines(["FAILED dense.onnx::b1-c1*"])
    assert_says_no_internals(result)


def test_the_line_that_accepts_a_failure_makes_it_pass(recorded: pytest.Pytester) -> None:
    write_dense(recorded.path / "dense.onnx", width=7)
    (line,) = [line for line in check(recorded).outlines if "accept: " in line]
    words = line.partition("accept: pytest ")[2].replace('"', "").split()
    recorded.runpytest_inprocess("--modelperf-static-only", *words).assert_outcomes(passed=1)
    check(recorded, "--modelperf-strict").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "options",
    [
        ("--rootdir=.",),
        ("-c", "our own.ini"),
        ("--rootdir=.", "-o", "modelperf_baseline_dir=the baselines"),
    ],
)
def test_the_line_that_accepts_a_failure_keeps_the_root_and_the_folder_that_were_typed(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    run.makeini("[pytest]")
    part = run.mkdir("part")
    (part / "our own.ini").write_text("[pytest]\n")
    monkeypatch.chdir(part)
    write_dense(part / "dense.onnx")
    check(run, *options, UPDATE, "dense.onnx").assert_outcomes(passed=1)
    write_dense(part / "dense.onnx", width=7)
    check(run, *options, "--modelperf-json=run.json", "dense.onnx").assert_outcomes(failed=1)
    (case,) = read_json(part / "run.json")["cases"]
    _, *words = shlex.split(case["accept"])
    run.runpytest_inprocess("--modelperf-static-only", *words).assert_outcomes(passed=1)
    assert_ended(check(run, *options, "--modelperf-strict", "dense.onnx"), passed=1)


def test_the_line_that_accepts_a_failure_names_a_test_outside_of_the_root(
    run: pytest.Pytester, tmp_path: Path
) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "import pytest\n\n"
        "@pytest.mark.perf_case('dense.onnx', baseline='dense.onnx')\n"
        "def test_it(): pass\n"
    )
    check(run, "--rootdir=.", "--modelperf-json=run.json", str(test)).assert_outcomes(passed=1)
    (case,) = read_json(run.path / "run.json")["cases"]
    _, *words = shlex.split(case["accept"])
    run.runpytest_inprocess("--modelperf-static-only", *words).assert_outcomes(passed=1)
    assert read_json(run.path / MODEL)["cases"]


def test_a_model_with_fewer_macs_has_improved(recorded: pytest.Pytester) -> None:
    write_dense(recorded.path / "dense.onnx", width=4)
    result = check(recorded, "-v", "--modelperf-strict")
    assert_ended(result, "dense.onnx::b1-c1 IMPROVED*", passed=1)


def test_a_case_without_a_baseline_passes_with_a_notice_and_fails_if_the_run_is_strict(
    run: pytest.Pytester,
) -> None:
    passing = check(run, "-v", "dense.onnx")
    assert_ended(
        passing, "dense.onnx::b1-c1 NEW*", "new: *--modelperf-update-baseline=new", passed=1
    )
    failing = assert_ended(check(run, "--modelperf-strict", "dense.onnx"), failed=1)
    lines = between(failing.outlines, "_ dense.onnx::b1-c1 ", "model performance").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["new", "record"]
    assert lines[1].endswith(' --modelperf-update-baseline "dense.onnx::b1-c1"')


def test_a_case_that_a_baseline_lacks_is_new(recorded: pytest.Pytester) -> None:
    write_table(recorded, '[tool.modelperf.models."dense.onnx"]\nbatch_size = [1, 8]')
    assert_ended(check(recorded), "dense.onnx::b8-c1 *new*", "dense.onnx::b1-c1 *passed*", passed=2)


def test_a_test_that_fails_itself_writes_the_baseline_of_its_case_all_the_same(
    run: pytest.Pytester,
) -> None:
    run.makepyfile(
        """
        import pytest

        @pytest.mark.perf_case(model="dense.onnx")
        def test_it():
            raise AssertionError
        """
    )
    check(run, UPDATE).assert_outcomes(failed=1)
    assert (run.path / MODEL).is_file()


@pytest.mark.parametrize(
    ("mode", "width", "stored"),
    [
        ("all", 7, 21),
        ("all", 4, 12),
        ("new", 7, 15),
        ("new", 4, 15),
        ("improved", 7, 15),
        ("improved", 4, 12),
    ],
)
def test_a_mode_says_which_changes_are_stored(
    recorded: pytest.Pytester, mode: str, width: int, stored: int
) -> None:
    write_dense(recorded.path / "dense.onnx", width=width)
    result = check(recorded, f"{UPDATE}={mode}")
    is_worse = stored == 15 and width > 5
    result.assert_outcomes(passed=int(not is_worse), failed=int(is_worse))
    assert read_json(recorded.path / MODEL)["cases"]["b1-c1"]["static"]["macs"] == stored


@pytest.mark.parametrize(
    ("options", "passed"),
    [((f"{UPDATE}=new",), 2), ((UPDATE, "dense.onnx::b8-c1"), 1)],
    ids=["new ones", "a selected one"],
)
def test_cases_are_added_to_those_that_are_stored(
    recorded: pytest.Pytester, options: tuple[str, ...], passed: int
) -> None:
    write_table(recorded, '[tool.modelperf.models."dense.onnx"]\nbatch_size = [1, 8]')
    check(recorded, *options).assert_outcomes(passed=passed)
    assert list(read_json(recorded.path / MODEL)["cases"]) == ["b1-c1", "b8-c1"]


def test_an_update_that_changes_nothing_says_so_and_leaves_the_file(
    recorded: pytest.Pytester,
) -> None:
    before = (recorded.path / MODEL).read_bytes()
    check(recorded, UPDATE).stdout.fnmatch_lines(["baselines already up to date"])
    assert (recorded.path / MODEL).read_bytes() == before


def test_models_that_are_recorded_as_one_baseline_are_named(run: pytest.Pytester) -> None:
    write_dense(run.path / "wide.onnx", 6)
    run.makepyfile(
        """
        def test_it(modelperf):
            modelperf.check("dense.onnx", baseline="one.onnx")
            modelperf.check("wide.onnx", baseline="one.onnx", batch_size=2)
        """
    )
    text = " ".join(check(run, UPDATE).stdout.str().split())
    assert "dense.onnx and wide.onnx are both recorded as the baseline one.onnx: " in text
    assert not (run.path / "baselines").exists()


def test_models_of_one_name_that_are_recorded_as_one_baseline_need_others(
    run: pytest.Pytester,
) -> None:
    write_dense(run.mkdir("wide") / "dense.onnx", 6)
    run.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("path", ["dense.onnx", "wide/dense.onnx"])
        def test_it(modelperf, path):
            modelperf.check(path, baseline="one.onnx")
        """
    )
    text = " ".join(check(run, UPDATE).stdout.str().split())
    assert "dense.onnx is not the same model in all cases of the baseline one.onnx: " in text
    assert "need baselines of their own" in text


def test_a_model_that_is_named_by_a_link_too_is_recorded_as_one(run: pytest.Pytester) -> None:
    (run.path / "latest.onnx").symlink_to("dense.onnx")
    run.makepyfile(
        """
        def test_it(modelperf):
            modelperf.check("dense.onnx")
            modelperf.check("latest.onnx", baseline="dense.onnx", batch_size=2)
        """
    )
    check(run, UPDATE).assert_outcomes(passed=1)
    assert list(read_json(run.path / MODEL)["cases"]) == ["b1-c1", "b2-c1"]


def test_only_collecting_writes_nothing(run: pytest.Pytester) -> None:
    assert check(run, UPDATE, "--collect-only", "dense.onnx").ret == pytest.ExitCode.OK
    assert not (run.path / "baselines").exists()


def narrow(run: pytest.Pytester) -> None:
    """Two cases stored, of which the table names one."""
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nbatch_size = [1, 8]')
    check(run, UPDATE).assert_outcomes(passed=2)
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nbatch_size = 1')


def test_unused_baselines_are_reported_and_stay_until_their_removal_is_asked_for(
    recorded: pytest.Pytester,
) -> None:
    narrow(recorded)
    before = (recorded.path / MODEL).read_bytes()
    result = check(recorded)
    assert_ended(result, "unused baselines: dense.onnx::b8-c1; pytest *", passed=1)
    assert (recorded.path / MODEL).read_bytes() == before
    result = assert_ended(check(recorded, "--modelperf-prune"), passed=1)
    assert list(read_json(recorded.path / MODEL)["cases"]) == ["b1-c1"]
    result.stdout.no_fnmatch_line("unused*")
    check(recorded, "--modelperf-prune").stdout.no_fnmatch_line("*removed*")


def test_a_baseline_without_any_test_is_deleted_whole(recorded: pytest.Pytester) -> None:
    write_table(recorded, '[tool.modelperf.models."linear.onnx"]\ndims = {seq = 1}')
    check(recorded, "--modelperf-prune").assert_outcomes(passed=1)
    assert not (recorded.path / "baselines/dense").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("dense.onnx",),
        (".",),
        ("-k", "not b2"),
        ("--deselect", "dense.onnx::b2-c1"),
        ("--ignore", "test_other.py"),
        ("--ignore-glob", "*other*"),
        ("--lf",),
        ("-o", "python_files=check_*.py"),
        ("--collect-only",),
    ],
    ids=" ".join,
)
def test_a_run_that_did_not_see_all_tests_prunes_nothing(
    recorded: pytest.Pytester, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(recorded)
    recorded.makepyfile(test_other="")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin")
    # One of two cases fails, so that there is a last failure.
    write_table(
        recorded, '[tool.modelperf.models."dense.onnx"]\nbatch_size = [1, 2]\nbudget = {macs = 15}'
    )
    check(recorded).assert_outcomes(passed=1, failed=1)
    before = (recorded.path / MODEL).read_bytes()
    result = check(recorded, "--modelperf-prune", *arguments)
    assert (recorded.path / MODEL).read_bytes() == before
    if "--collect-only" not in arguments:
        result.stdout.fnmatch_lines(["note: nothing was pruned: only a run of all tests*"])


@pytest.mark.parametrize(
    ("ignored", "stored"),
    [
        ("test_other.py", ["b1-c1", "b8-c1"]),
        ("linear.onnx", ["b1-c1", "b8-c1"]),
        ("more", ["b1-c1", "b8-c1"]),
        ("setup.py", ["b1-c1"]),
        ("env", ["b1-c1"]),
        ("build", ["b1-c1"]),
        ("baselines", ["b1-c1"]),
    ],
)
def test_tests_that_a_conftest_ignores_keep_their_baselines(
    recorded: pytest.Pytester, ignored: str, stored: list[str]
) -> None:
    narrow(recorded)
    write_table(recorded, '[tool.modelperf.models."**/*.onnx"]')
    write_dense(recorded.path / "linear.onnx")
    write_dense(recorded.path / "env/model.onnx")
    for file in ("test_other.py", "more/test_it.py", "setup.py", "env/pyvenv.cfg", "build/test.py"):
        (recorded.path / file).parent.mkdir(exist_ok=True)
        (recorded.path / file).touch()
    recorded.makeconftest(f"collect_ignore = [{ignored!r}]")
    check(recorded, "--modelperf-prune")
    assert list(read_json(recorded.path / MODEL)["cases"]) == stored


@pytest.mark.parametrize("testpaths", ["", ".", "te*/"])
@pytest.mark.parametrize("order", ["", "(tryfirst=True)", "(trylast=True)"])
def test_tests_that_a_plugin_does_not_choose_may_use_a_baseline_another_time(
    recorded: pytest.Pytester, testpaths: str, order: str
) -> None:
    """pytest-picked replaces the arguments so."""
    narrow(recorded)
    (recorded.mkdir("tests") / "test_it.py").write_text("def test_it(): pass")
    settings = f'[tool.pytest.ini_options]\ntestpaths = "{testpaths}"\n' if testpaths else ""
    write_table(recorded, f'{settings}[tool.modelperf.models."dense.onnx"]')
    recorded.makeconftest(
        f"""
        import pytest

        @pytest.hookimpl{order}
        def pytest_configure(config):
            if config.getoption("verbose") == 1:
                config.args = ["tests/test_it.py"]
        """
    )
    check(recorded, "--modelperf-prune", "-v")
    assert list(read_json(recorded.path / MODEL)["cases"]) == ["b1-c1", "b8-c1"]
    check(recorded, "--modelperf-prune")
    assert list(read_json(recorded.path / MODEL)["cases"]) == ["b1-c1"]


@pytest.mark.parametrize("order", ["", "(tryfirst=True)", "(trylast=True)"])
def test_a_test_that_a_conftest_drops_may_use_its_baseline_another_time(
    recorded: pytest.Pytester, order: str
) -> None:
    """Pytest does not call `pytest_deselected` for it."""
    recorded.makeconftest(
        f"""
        import pytest

        @pytest.hookimpl{order}
        def pytest_collection_modifyitems(items):
            items[:] = [item for item in items if "dense" not in item.nodeid]
        """
    )
    recorded.makepyfile("def test_it(): pass")
    result = assert_ended(check(recorded, "--modelperf-prune"), passed=1)
    assert (recorded.path / MODEL).is_file()
    result.stdout.fnmatch_lines(["note: nothing was pruned: *"])


def test_a_run_that_stopped_early_prunes_only_if_no_test_may_name_more(
    recorded: pytest.Pytester,
) -> None:
    narrow(recorded)
    source = "def test_fails(): assert 1 == 2\n\ndef test_it({}): pass"
    recorded.makepyfile(source.format("modelperf"))
    check(recorded, "--modelperf-prune", "-x")
    assert len(read_json(recorded.path / MODEL)["cases"]) == 2
    recorded.makepyfile(source.format(""))
    check(recorded, "--modelperf-prune", "-x")
    assert len(read_json(recorded.path / MODEL)["cases"]) == 1


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            ("def test_it(modelperf):", "assert 1 == 2", "modelperf.check('dense.onnx')"),
            id="it failed",
        ),
        pytest.param(
            (
                "def test_it(modelperf, subtests):",
                "with subtests.test():",
                "    assert 1 == 2",
                "    modelperf.check('dense.onnx')",
            ),
            marks=needs_subtests,
            id="it failed inside of a subtest",
        ),
        pytest.param(
            (
                "def test_it(modelperf, subtests):",
                "with subtests.test(): pass",
                "assert 1 == 2",
                "modelperf.check('dense.onnx')",
            ),
            marks=needs_subtests,
            id="it failed after a subtest",
        ),
    ],
)
def test_a_test_that_did_not_come_to_its_end_may_use_its_baseline_another_time(
    recorded: pytest.Pytester, lines: tuple[str, ...]
) -> None:
    write_table(recorded, "")
    recorded.makepyfile("\n    ".join(lines))
    result = check(recorded, "--modelperf-prune")
    assert (recorded.path / MODEL).is_file()
    result.stdout.fnmatch_lines(["note: nothing was pruned: *"])


def test_a_test_that_is_skipped_may_use_its_baseline_another_time(
    recorded: pytest.Pytester,
) -> None:
    write_table(recorded, "")
    recorded.makepyfile(
        """
        import pytest

        @pytest.mark.skip
        @pytest.mark.perf_case(model="dense.onnx")
        def test_it(): pass
        """
    )
    check(recorded, "--modelperf-prune")
    assert (recorded.path / MODEL).is_file()


@pytest.mark.parametrize(
    ("body", "outcomes"),
    [
        ("pytest.skip('no torch', allow_module_level=True)", {"skipped": 1}),
        ("1 / 0", {"errors": 1}),
    ],
)
def test_a_file_that_could_not_be_collected_may_use_its_baselines_another_time(
    recorded: pytest.Pytester, body: str, outcomes: dict[str, int]
) -> None:
    write_table(recorded, "")
    recorded.makepyfile(
        test_left_out=f"import pytest\n\n{body}\n", test_other="def test_one(): pass"
    )
    options = ("--modelperf-prune", "--continue-on-collection-errors")
    check(recorded, *options).assert_outcomes(passed=1, **outcomes)
    assert (recorded.path / MODEL).is_file()


@pytest.mark.parametrize(
    ("budget", "is_kept"),
    [
        ("macs = 15", True),
        ("macs = 14", False),
        ("flops = 30", True),
        ("flops = 29", False),
        ('macs = "0.01k"', False),
        ("params = 15", True),
        ("params = 14", False),
        ("size_mb = 1", True),
        ("size_mb = 0.0001", False),
        ("latency_ms = 1e-9", True),
    ],
)
def test_a_budget_is_held_if_no_engine_is_needed(
    run: pytest.Pytester, budget: str, *, is_kept: bool
) -> None:
    write_table(run, f'[tool.modelperf.models."dense.onnx"]\nbudget = {{{budget}}}')
    check(run).assert_outcomes(passed=int(is_kept), failed=int(not is_kept))


def test_a_budget_that_nothing_was_run_for_is_noted(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nbudget = {latency_ms = 1}')
    result = check(run, "-v")
    assert_ended(result, "*budgets of measured figures are not judged without a run*", passed=1)


def test_a_new_baseline_does_not_make_a_budget_pass(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nbudget = {macs = 14}')
    assert_ended(check(run, UPDATE), "over budget: MACs 15, limit 14*", failed=1)


@pytest.fixture
def mixed(recorded: pytest.Pytester) -> pytest.Pytester:
    """One case that regressed, and two tests of other kinds."""
    write_dense(recorded.path / "dense.onnx", width=7)
    recorded.makepyfile(
        test_others="""
        def test_one(): pass

        def test_macs(modelperf):
            assert modelperf("dense.onnx").static.macs == 21
        """
    )
    return recorded


def test_quiet_says_only_what_is_wrong(mixed: pytest.Pytester) -> None:
    result = assert_ended(check(mixed, "-q"), passed=2, failed=1)
    assert summary_of(result) == snapshot("""\
case               verdict    decided by       MACs   params
────────────────────────────────────────────────────────────
dense.onnx::b1-c1  regressed  MACs +40.0 %  15 → 21  15 → 21

1 regressed.\
""")


@pytest.mark.parametrize(
    ("option", "lines"),
    [
        ("-qq", ["*dense.onnx::b1-c1*"]),
        ("-v", ["dense.onnx::b1-c1 REGRESSED *", "test_others.py::test_one PASSED *"]),
        ("-rN", ["*= model performance =*", "=* 1 failed, 2 passed in *"]),
    ],
)
def test_every_verbosity_shows_which_case_is_wrong(
    mixed: pytest.Pytester, option: str, lines: list[str]
) -> None:
    check(mixed, option).stdout.fnmatch_lines(lines)


@needs_subtests
def test_subtests_keep_the_words_of_pytest(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_it(modelperf, subtests):
            with subtests.test("new"):
                modelperf.check("dense.onnx")
            with subtests.test("wrong"):
                assert 1 == 2
        """
    )
    assert_ended(
        check(run, "-v"),
        "*::test_it SUBPASSED[[]new] *",
        "*::test_it SUBFAILED[[]wrong] *",
        "*::test_it FAILED *",
        "1 new.",
        failed=2,
    )


@pytest.mark.parametrize("style", ["short", "line", "no", "long", "native", "auto"])
def test_every_style_of_tracebacks_shows_the_verdict_and_none_our_frames(
    mixed: pytest.Pytester, style: str
) -> None:
    result = assert_ended(check(mixed, f"--tb={style}"), passed=2, failed=1)
    assert "regressed  MACs +40.0 %" in result.stdout.str()
    assert_says_no_internals(result)
    if style == "no":
        result.stdout.no_fnmatch_line("*accept:*")


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_reports_fit_the_terminal(
    mixed: pytest.Pytester, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ours = [*between(check(mixed).outlines, "_ dense.onnx::b1-c1 ", "short test").splitlines()]
    assert max(len(line) for line in ours if "pytest --modelperf" not in line) <= columns


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n1")], ids=["one process", "xdist"])
def test_a_terminal_of_ascii_has_the_lines_of_any_other(
    mixed: pytest.Pytester, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pytest would write a text that it cannot encode in one line, its line breaks escaped."""
    shown = {}
    for encoding in ("utf-8", "ascii"):
        monkeypatch.setenv("PYTHONIOENCODING", encoding)
        lines = mixed.runpytest_subprocess(*STATIC, *options).outlines
        begin = next(i for i, line in enumerate(lines) if "_ dense.onnx::b1-c1 " in line)
        end = next(i for i, line in enumerate(lines) if "short test summary" in line)
        # How long it took is not the same.
        shown[encoding] = [re.sub(r" in [0-9.]+ s", "", line) for line in lines[begin:end]]
    assert any(line.startswith("─") for line in shown["utf-8"])
    plain = (line.replace("─", "-").replace(" → ", " ->") for line in shown["utf-8"])
    assert shown["ascii"] == [*plain]


def test_colour_is_there_if_and_only_if_it_is_asked_for(mixed: pytest.Pytester) -> None:
    assert "\x1b[" not in check(mixed, "--color=no").stdout.str()
    coloured = check(mixed, "--color=yes").outlines
    begin = next(i for i, line in enumerate(coloured) if "model performance" in line)
    assert any("\x1b[" in line for line in coloured[begin + 1 :])


def test_the_files_of_a_run_have_its_case_and_the_verdict(mixed: pytest.Pytester) -> None:
    check(mixed, "--junit-xml=run.xml", "--modelperf-json=run.json", "--modelperf-markdown=run.md")
    (case,) = read_json(mixed.path / "run.json")["cases"]
    assert (case["test"], case["verdict"]) == ("dense.onnx::b1-c1", "regressed")
    assert {m["name"]: m["after"] for m in case["metrics"]}["macs"] == 21
    text = (mixed.path / "run.md").read_text("utf-8")
    assert "regressed" in text
    assert "dense.onnx::b1-c1" in text
    cases = {case.get("name"): case for case in ET.parse("run.xml").iter("testcase")}  # noqa: S314  # pytest's
    regressed = cases["b1-c1"]
    properties = {each.get("name"): each.get("value") for each in regressed.iter("property")}
    assert properties.pop("modelperf.seconds") is not None
    assert properties == snapshot(
        {
            "modelperf.verdict": "regressed",
            "modelperf.case": "b1-c1",
            "modelperf.model": "dense.onnx",
            "modelperf.batch_size": "1",
            "modelperf.cores": "1",
            "modelperf.macs": "21",
            "modelperf.params": "21",
        }
    )
    (failure,) = regressed.iter("failure")
    assert str(failure.text).startswith("regressed: MACs ")
    assert "pytest_modelperf" not in str(failure.text)
    assert list(cases["test_one"].iter("property")) == []


def test_files_are_written_where_pytest_was_started(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(run, "")
    run.mkdir("deeper")
    monkeypatch.chdir("deeper")
    check(run, "../dense.onnx", "--modelperf-json=run.json", "--modelperf-markdown=run.md")
    assert sorted(path.name for path in Path().iterdir()) == ["run.json", "run.md"]


@pytest.fixture
def on_github(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> pytest.Pytester:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return run


def commands(result: pytest.RunResult) -> list[str]:
    """The lines that the runner of GitHub obeys."""
    return [line for line in result.outlines if line.startswith("::")]


def test_a_failure_is_an_annotation_on_the_line_of_its_test(on_github: pytest.Pytester) -> None:
    on_github.makepyfile(
        test_it=dedent(
            """\
            import pytest

            @pytest.mark.perf_case(model="dense.onnx")
            @pytest.mark.perf_budget(macs=14)
            def test_it(): pass
            """
        )
    )
    (line,) = commands(assert_ended(check(on_github), failed=1))
    properties, _, message = line.removeprefix("::").partition("::")
    assert properties == snapshot("error file=test_it.py,line=3,title=test_it[b1-c1] over budget")
    assert message == snapshot("over budget: MACs 15, limit 14")


@pytest.mark.parametrize("has_repository", [True, False])
def test_an_annotation_names_the_file_from_the_top_of_the_repository(
    on_github: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *, has_repository: bool
) -> None:
    part = on_github.mkdir("part")
    (on_github.path / "dense.onnx").rename(part / "dense.onnx")
    table = '[tool.modelperf.models."dense.onnx"]\nbudget = {macs = 14}\n'
    (part / "pyproject.toml").write_text(table)
    if has_repository:
        on_github.mkdir(".git")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(on_github.path))
    monkeypatch.chdir(part)
    (line,) = commands(on_github.runpytest_inprocess(*STATIC, "--rootdir=."))
    file = "part/dense.onnx" if has_repository else "dense.onnx"
    assert line.startswith(f"::error file={file},title=")


def test_the_summary_of_a_step_is_added_to_what_is_there(
    on_github: pytest.Pytester, tmp_path: Path
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    check(on_github, "dense.onnx")
    text = summary.read_text("utf-8")
    assert text.startswith("# before\n")
    assert "dense.onnx::b1-c1" in text


def test_a_run_in_which_nothing_was_checked_says_nothing_and_adds_nothing_to_the_summary(
    on_github: pytest.Pytester, tmp_path: Path
) -> None:
    on_github.makepyfile("def test_one(): pass")
    result = assert_ended(check(on_github), passed=1)
    result.stdout.no_fnmatch_line("*model performance*")
    assert commands(result) == []
    assert not (tmp_path / "summary.md").exists()


def test_a_hostile_name_is_one_annotation_and_no_command(
    on_github: pytest.Pytester, tmp_path: Path
) -> None:
    write_dense(on_github.path / HOSTILE)
    name = HOSTILE.replace("::", "\\n::")
    write_dense(on_github.path / name.encode().decode("unicode_escape"))
    on_github.makepyfile(
        test_it=f"""
        import pytest

        @pytest.mark.perf_case(model={HOSTILE!r})
        @pytest.mark.perf_budget(macs=14)
        def test_one(): pass

        @pytest.mark.perf_case(model="{name}")
        @pytest.mark.perf_budget(macs=14)
        def test_two(): pass
        """
    )
    lines = commands(assert_ended(check(on_github), failed=2))
    assert len(lines) == 2
    for line in lines:
        kind, properties, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()  # type: ignore[union-attr]  # a mismatch fails here too
        assert (kind, "::" in properties) == ("error", False)
        assert message
    assert "\n::error" not in (tmp_path / "summary.md").read_text("utf-8")


def test_sizes_that_went_together_are_compared_so_with_the_folder_of_a_baseline(
    run: pytest.Pytester,
) -> None:
    write_linear(run.path / "linear.onnx")
    dims = "[{seq = 1, N = 3}, {seq = 64, N = 2}]"
    write_table(run, f'[tool.modelperf.models."linear.onnx"]\ndims = {dims}')
    check(run, UPDATE, "linear.onnx").assert_outcomes(passed=2)
    check(run, "linear.onnx").assert_outcomes(passed=2)
    done = command("compare", "baselines/linear", "linear.onnx", "--static", "--csv", "-")
    assert (done.exit_code, done.err) == (0, "")
    macs = [line for line in done.out.splitlines() if ",macs," in line]
    assert {line.split(",")[0] for line in macs} == {"b3-c1-seq1-N3", "b2-c1-seq64-N2"}


def test_elsewhere_there_are_no_annotations(run: pytest.Pytester) -> None:
    assert commands(check(run, "dense.onnx", "--modelperf-strict")) == []


def test_a_branch_that_needs_a_run_leaves_a_budget_open_and_is_named(
    run: pytest.Pytester,
) -> None:
    model = parse(
        """g (float[1,3] x, bool cached) => (float[1,3] y) {
            y = If (cached) <
                then_branch = short () => (float[1,3] a) { a = Relu(x) },
                else_branch = long () => (float[1,3] b) { b = MatMul(x, w) }
            >
        }""",
        weights={"w": ones(3, 3)},
    )
    (run.path / "branches.onnx").write_bytes(model.SerializeToString())
    write_table(run, '[tool.modelperf.models."branches.onnx"]\nbudget = {macs = 8}')
    result = check(run, "--modelperf-strict")
    assert_ended(result, "inconclusive: MACs 9, limit 8", "note: If 'y': which branch *", failed=1)


def write_older(run: pytest.Pytester, rows: str) -> None:
    """An older version of `linear.onnx`, with these sizes in front of the last one."""
    graph = f"g (float[{rows},3] x) => (float[{rows},5] y) {{ y = MatMul(x, w) }}"
    model = parse(graph, weights={"w": ones(3, 5)})
    (run.path / "older.onnx").write_bytes(model.SerializeToString())


def check_against_older(run: pytest.Pytester, words: str) -> pytest.RunResult:
    write_table(run, f'[tool.modelperf.models."linear.onnx"]\n{words}')
    return check(run, "--modelperf-against", "older.onnx")


@pytest.mark.parametrize("rows", ["N,seq", "N,64", "batch,seq"])
def test_an_older_version_takes_the_sizes_whose_dimensions_it_has(
    rows: str, run: pytest.Pytester
) -> None:
    write_older(run, rows)
    check_against_older(run, "batch_size = 2\ndims = {seq = 64}").assert_outcomes(passed=1)


def test_a_dimension_with_a_former_name_gets_an_error_that_says_so(
    run: pytest.Pytester,
) -> None:
    write_older(run, "N,length")
    result = check_against_older(run, "dims = {seq = 64}")
    assert_ended(result, "the older version of linear.onnx cannot have *'length'*", failed=1)
    assert "dims = {length" not in result.stdout.str()


def test_an_older_version_of_another_batch_size_is_not_compared(run: pytest.Pytester) -> None:
    write_older(run, "4,64")
    result = check_against_older(run, "dims = {seq = 64}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["the older version of linear.onnx runs at batch size 4, and the model now at 1: *"]
    )
    check_against_older(run, "batch_size = 4\ndims = {seq = 64}").assert_outcomes(passed=1)
