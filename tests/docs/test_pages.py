"""The pages for users hold: their examples run, their names and figures are those of the code."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import pytest
from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import FIGURES, read_budgets
from pytest_modelperf.comparing.by_counts import compare_cases
from pytest_modelperf.comparing.changes import LayerTypeChange, OutputChange, PartChange, TimeChange
from pytest_modelperf.comparing.figures import LAYERS_ON
from pytest_modelperf.comparing.gates import RUN_LEVEL
from pytest_modelperf.comparing.limits import (
    DEFAULT_TAIL_TOLERANCE,
    DEFAULT_TOLERANCE,
    FIRST,
    LEAST_MEMORY_BYTES,
    LEAST_SIZE_BYTES,
    LOAD,
    MEMORY,
    OUTPUTS,
    SIZE,
    Tolerances,
)
from pytest_modelperf.comparing.records import (
    MEMBER,
    TOTAL,
    VERDICT_ORDER,
    CaseComparison,
    Metric,
    Verdict,
)
from pytest_modelperf.comparing.report import COMPARISON_COLUMNS
from pytest_modelperf.comparing.time_limits import PASS_LEVEL, MissLimit
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.counting.records import (
    LayerType,
    StaticLayer,
    StaticProfile,
    Uncounted,
)
from pytest_modelperf.profiler.hookspecs import PROJECT
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.programs.work import WORK_METRICS
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.declaring import CASE_WORDS, MODEL_WORDS
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS
from pytest_modelperf.spec.sources import RunSettings, read_settings
from pytest_modelperf.stats.budgets import seen_share
from pytest_modelperf.stats.decisions import EARLY_LOOKS, LOOKS
from pytest_modelperf.stats.records import PERCENTS, Latency, Percentile
from pytest_modelperf.testing.fixture import ModelPerf, PerfProfile
from pytest_modelperf.testing.outcomes import CaseOutcome, Source
from tests.support.checkout import ROOT
from tests.support.facts import make_model
from tests.support.known import known
from tests.support.project import assert_ended
from tests.support.small_models import ones, parse, static_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = ROOT / "docs"
NAMES = (
    "tutorial",
    "from-pytorch",
    "cost",
    "gpu",
    "writing-tests",
    "budgets",
    "ci",
    "reading-a-failure",
    "noise",
    "configuration",
    "python-api",
    "extending",
)
ENCODER = "g (float[N,seq,64] x) => (float[N,seq,64] y) { [proj] h = MatMul(x, w) y = Relu(h) }"
SWAP = "g (float[2,3] x) => (float[2,3] y) { y = my.ops.Swap(x) }"
PLUGIN = ("-p", "pytest_modelperf.plugin", "-p", "no:cacheprovider")


def text_of(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def plain(name: str) -> str:
    """The page without its line breaks."""
    return " ".join(text_of(name).split())


def blocks(language: str, name: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", text_of(name), re.DOTALL | re.MULTILINE)
    return [str(block) for block in found]


def table(name: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, cell by cell."""
    _, found, below = text_of(name).partition(f"{heading}\n")
    assert found, f"{name}.md has no {heading!r}"
    (_, _, *rows), *_ = (
        [*lines.splitlines()] for lines in re.findall(r"(?:^\|.*\n)+", below, re.MULTILINE)
    )
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with the models that the pages speak of; only our plugin is loaded there."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(pytester.path)
    folder = pytester.mkdir("models")
    encoder = parse(ENCODER, weights={"w": ones(64, 64)})
    (folder / "encoder.onnx").write_bytes(encoder.SerializeToString())
    return pytester


def write_examples(project: pytest.Pytester, name: str) -> list[str]:
    """The files that a page begins with a comment of their name; returns the names of tests."""
    written = []
    for block in blocks("python", name):
        title, _, _ = block.partition("\n")
        assert re.fullmatch(r"# \w+\.py", title), f"{name}.md: an example without a file name"
        (project.path / title[2:]).write_text(block, encoding="utf-8")
        written.append(title[2:])
    return [file for file in written if file.startswith("test_")]


def add_models(project: pytest.Pytester) -> None:
    folder = project.path / "models"
    pruned = parse(ENCODER.replace("Relu(h)", "Identity(h)"), weights={"w": ones(64, 64)})
    (folder / "pruned.onnx").write_bytes(pruned.SerializeToString())
    (folder / "swap.onnx").write_bytes(parse(SWAP).SerializeToString())


@pytest.mark.parametrize(
    ("name", "cases", "skipped"),
    [("writing-tests", 11, 2), ("budgets", 4, 0), ("extending", 1, 0)],
)
def test_the_examples_of_a_page_pass_if_nothing_runs(
    name: str, cases: int, skipped: int, project: pytest.Pytester
) -> None:
    """Tests that ask for a latency are skipped, and those about nothing else are left out."""
    add_models(project)
    tests = write_examples(project, name)
    options = ("--modelperf", "--modelperf-static-only", "-k", "not pruned and not function")
    result = project.runpytest_inprocess(*options, *PLUGIN, *tests)
    result.assert_outcomes(passed=cases - skipped, skipped=skipped)


@pytest.mark.slow
def test_the_examples_of_the_fixture_pass_with_an_engine(project: pytest.Pytester) -> None:
    add_models(project)
    write_examples(project, "writing-tests")
    # The figures have a median, which takes samples enough wherever the machine stalls.
    for seconds, passed, tests in (
        (3, 1, ["test_figures.py"]),
        (0.3, 4, ["test_checks.py", "test_other_models.py"]),
    ):
        options = ("--modelperf", f"--modelperf-max-seconds={seconds}", *PLUGIN)
        assert_ended(project.runpytest_inprocess(*options, *tests), passed=passed)


def test_the_ids_of_collected_models_are_as_the_page_shows(project: pytest.Pytester) -> None:
    (toml,) = blocks("toml", "writing-tests")
    (project.path / "pyproject.toml").write_text(toml)
    (shown,) = (
        block
        for block in blocks("console", "writing-tests")
        if block.startswith("$ pytest --modelperf --collect-only -q\n")
    )
    result = project.runpytest_inprocess("--modelperf", "--collect-only", "-q", *PLUGIN)
    assert [line for line in result.outlines if "::" in line] == shown.splitlines()[1:]


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ("b8 and seq128", ["test_encoder.py::test_encoder[b8-c1-seq128]"]),
        (
            "seq64",
            [
                "test_encoder.py::test_encoder[b1-c1-seq64]",
                "test_encoder.py::test_encoder[b8-c1-seq64]",
            ],
        ),
    ],
)
def test_the_ids_of_markers_can_be_chosen_as_the_page_says(
    expression: str, ids: list[str], project: pytest.Pytester
) -> None:
    write_examples(project, "writing-tests")
    options = ("--modelperf", "--collect-only", "-q", *PLUGIN)
    result = project.runpytest_inprocess(*options, "-k", expression, "test_encoder.py")
    assert [line for line in result.outlines if "::" in line] == ids


def test_the_levels_of_markers_are_merged_as_the_page_says(project: pytest.Pytester) -> None:
    write_examples(project, "writing-tests")
    file = project.path / "test_levels.py"
    tight = file.read_text().replace('macs="2G"', "macs=2097152").replace('"1M"', "4096")
    assert tight.count("2097152") == tight.count("4096") == 1
    # Four times 64 rows make 1,048,576 MACs, eight times 128 of them make 4,194,304.
    file.write_text(tight)
    options = ("--modelperf", "--modelperf-static-only", "-v", *PLUGIN)
    result = project.runpytest_inprocess(*options, "test_levels.py")
    assert_ended(result, "*test_two[[]b16-c1] OVER BUDGET*", passed=2, failed=1)
    file.write_text(tight.replace("4096", "4095"))
    assert_ended(project.runpytest_inprocess(*options, "test_levels.py"), failed=3)


@pytest.mark.slow
def test_the_report_of_a_failure_is_laid_out_as_the_page_shows(project: pytest.Pytester) -> None:
    """Differences hidden by noise do not exist today, so all that exist must be shown."""
    light = Path(onnx.__path__[0]) / "backend/test/data/light/light_squeezenet.onnx"
    # Without the twin: that it runs as fast cannot be shown within a second everywhere.
    (project.path / "old.onnx").write_bytes(light.read_bytes())
    options = ("--modelperf", "--modelperf-max-seconds=1", "--modelperf-strict", *PLUGIN)
    model = "models/squeezenet.onnx"
    (script,) = blocks("python", "reading-a-failure")
    exec(script, {})  # noqa: S102  # our own page
    result = project.runpytest_inprocess(*options, "-v", "--modelperf-against=old.onnx", model)
    result.assert_outcomes(failed=1)
    brief, page, *_ = blocks("text", "reading-a-failure")
    assert len(brief.splitlines()) <= 22
    assert re.search(r"^why: 8 Relu became Elu", brief, re.MULTILINE)
    now = result.stdout.str()
    shown, today = headings(page), headings(now)
    assert today["metric"] <= shown["metric"]
    assert set(today) - {"case"} <= set(shown) | {"by layer type"}
    for pattern in (
        r"^(regressed|inconclusive): .*p\d\d latency",
        r"^MACs +349.2 M +349.2 M +0 % .*passed$",
        r"^elementwise  .*\+137.3 %",
        r"^why: (?s:.)*8 Relu became Elu",
        # Or of the parts that changed.
        r"^how: \d+ rounds? as a duet[ ,]",
    ):
        assert re.search(pattern, page, re.MULTILINE), pattern
        assert re.search(pattern, now, re.MULTILINE), pattern
    assert re.search(r"^note: the baseline takes .* on this machine", page, re.MULTILINE)
    assert '"models/squeezenet.onnx::b1-c1"' in page


def headings(text: str) -> dict[str, set[str]]:
    """The columns of each table, by its title or else its first column."""
    found = re.findall(r"^(.*)\n(.+)\n─{9,}$", text, re.MULTILINE)
    columns = [(title, re.split(r"\s{2,}", line.strip())) for title, line in found]
    return {title or names[0]: set(names) for title, names in columns}


@pytest.mark.parametrize("block", [block for name in NAMES for block in blocks("toml", name)])
def test_every_block_of_toml_is_one_that_is_read(block: str) -> None:
    content: dict[str, Any] = tomllib.loads(block)
    tool = content.pop("tool", {})
    project = content.pop("project", {})
    assert not content
    if project:
        assert list(project["entry-points"]) == [PROJECT]
        return
    written = tool.pop("pytest", {}).get("ini_options", {})
    by_ini = {option.ini: option.key for option in RUN_SETTINGS if option.is_in_files}
    ini = {by_ini[key]: value for key, value in written.items()}
    table = tool.pop("modelperf", None)
    assert not tool
    assert ini or table
    assert isinstance(read_settings(Path("/project"), {}, ini, table), RunSettings)


def yaml_blocks() -> list[tuple[str, str]]:
    found = [(name, block) for name in NAMES for block in blocks("yaml", name)]
    assert len(found) == 8
    return found


def test_workflows_are_indented_as_yaml_wants_it_and_use_the_actions_that_we_use() -> None:
    pinned = re.findall(
        r"uses: (\S+)@\w{40} # (v\d+)", (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    )
    ours = {f"{name}@{version}" for name, version in pinned}
    ours |= {"pytest-modelperf/pytest-modelperf@v1", "pytest-modelperf/pytest-modelperf/comment@v1"}
    used: set[str] = set()
    for _, block in yaml_blocks():
        level, key = len(block) - len(block.lstrip(" ")), "-"
        for line in block.splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            indent = len(line) - len(line.lstrip(" "))
            assert "\t" not in line
            assert indent % 2 == 0
            # Deeper only below a key without a value, or an item of a list.
            assert indent <= level or key.endswith((":", "|", ">")) or key.startswith("- "), line
            level, key = indent, line.strip()
        used |= set(re.findall(r"uses: (\S+)", block))
    assert used
    assert used <= ours


@pytest.mark.parametrize("name", [*NAMES, "baselines", "json"])
def test_every_option_that_is_typed_is_there(name: str) -> None:
    flags = {option.flag for option in RUN_SETTINGS} | {"--modelperf"}
    assert set(re.findall(r"--modelperf[a-z-]*", text_of(name))) <= flags
    modes = set(re.findall(r"--modelperf-update-baseline=(\w+)", text_of(name)))
    assert modes <= {"all", "new", "improved"}


def test_typed_options_come_before_a_table_and_a_table_before_the_rest() -> None:
    """The page lists this order for each setting that it names."""
    typed: dict[str, object] = {
        "tolerance": "0.1",
        "max_seconds": "1",
        "engine": "a",
        "engine_option": ["k=a"],
    }
    ini: dict[str, object] = {
        "tolerance": "0.3",
        "max_seconds": "3",
        "engine": "c",
        "engine_option": ["k=c"],
    }
    top: dict[str, object] = {
        "tolerance": 0.4,
        "max_seconds": 4,
        "engine": "d",
        "engine_options": {"k": "d"},
    }
    model: dict[str, object] = {
        "tolerance": 0.2,
        "max_seconds": 2,
        "engine": "b",
        "engine_options": {"k": "b"},
    }
    for each, source in enumerate((typed, model, ini, top), 1):
        source |= {"warmup_seconds": each / 10, "min_seconds": each / 5}
        source |= {"gateway": f"ssh=host-{each}"}
    settable = (
        "`tolerance`, `measure`, `output_sketch`, `engine`, `engine_options`, `gateway`, "
        "`max_seconds`, `warmup_seconds` and `min_seconds`"
    )
    assert f"The second source can set {settable}" in plain("configuration")

    def given(typed: dict[str, Any], model: dict[str, Any], ini: dict[str, Any]) -> tuple[Any, ...]:
        tables = {"models": {"m.onnx": model}} if model else {}
        settings = read_settings(Path("/project"), typed, ini, {**top, **tables})
        found = settings.for_model(settings.spec_for("m.onnx") or CaseSpec())
        options = found.engine_options["k"]
        times = found.max_seconds, found.warmup_seconds, found.min_seconds
        how = found.engine, options, found.gateway_spec
        return found.tolerances.of(50.0), *times, *how

    assert given(typed, model, ini) == (0.1, 1, 0.1, 0.2, "a", "a", "ssh=host-1")
    assert given({}, model, ini) == (0.2, 2, 0.2, 0.4, "b", "b", "ssh=host-2")
    assert given({}, {}, ini) == (0.3, 3, 0.3, 0.6, "c", "c", "ssh=host-3")
    assert given({}, {}, {}) == (0.4, 4, 0.4, 0.8, "d", "d", "ssh=host-4")


def test_every_budget_has_a_row_and_its_unit() -> None:
    rows = table("budgets", "## What can be limited")
    named = [word for row in rows for word in quoted(row[0])]
    assert sorted(named) == sorted(FIGURES)
    for row in rows:
        for word in quoted(row[0]):
            figure = FIGURES[word]
            assert figure.is_count == (row[2] == "a count")
            assert {"MB": 1e6, "KB": 1e3}.get(row[2], 1.0) == figure.scale
            assert figure.is_least == ("least" in row[1])
            assert figure.takes_share == (row[2] == "a share")
    assert "1 MB is 1,000,000 bytes" in plain("budgets")
    (size,) = read_budgets({"size_mb": 1}, "here")
    assert size.limit == 1_000_000
    assert "1 KB is 1,000" in plain("budgets")
    assert '`"4.1G"` is 4,100,000,000' in plain("budgets")
    (macs,) = read_budgets({"macs": "4.1G"}, "here")
    assert macs.limit == 4_100_000_000


def test_the_budgets_that_need_another_word_are_read_as_the_page_writes_them() -> None:
    rows = table("budgets", "Some budgets need another word:")
    for (word,), others, (example,) in (map(quoted, row) for row in rows):
        written = {str(each.arg): ast.literal_eval(each.value) for each in call_words(example)}
        assert next(iter(written)) == word
        assert set(written) - {word} <= set(others)
        (budget,) = read_budgets(written, "here")
        assert budget.figure is FIGURES[word]
        with pytest.raises(UsageError):
            read_budgets({word: written[word]}, "here")


def call_words(arguments: str) -> list[ast.keyword]:
    call = ast.parse(f"f({arguments})", mode="eval").body
    assert isinstance(call, ast.Call)
    return call.keywords


def test_the_inferences_that_show_a_share_of_misses_are_those_of_the_code() -> None:
    found = re.search(
        r"^\| misses \| (.+) \|\n.+\n\| inferences without a miss \| (.+) \|$",
        text_of("budgets"),
        re.MULTILINE,
    )
    shares, samples = (cells.split(" | ") for cells in known(found).groups())
    limits = [MissLimit(1.0, float(share.removesuffix(" %")) / 100) for share in shares]
    assert samples == [f"{limit.samples_needed:,}" for limit in limits]
    assert seen_share(459) < 0.01 < seen_share(458)
    assert seen_share(4603) < 0.001 < seen_share(4602)


def test_the_rules_on_the_pages_are_those_of_the_code() -> None:
    tail = f"{100 * DEFAULT_TAIL_TOLERANCE:g} %"
    better = 100 * (1 - 1 / (1 + DEFAULT_TOLERANCE))
    for page, rule in (
        ("budgets", f"is {100 * DEFAULT_TOLERANCE:g} % for p50 and {tail} for p95"),
        ("noise", f"{EARLY_LOOKS[0]} at least, {LOOKS[-1]} at most"),
        ("noise", f"by more than the tolerance ({100 * DEFAULT_TOLERANCE:g} %)"),
        ("noise", f"wholly below -{better:.1f} %"),
        ("noise", f"up to `max_seconds` ({DUET_POLICY.max_seconds:g})"),
        ("noise", f"is at most {100 * RUN_LEVEL:g} % for *all of its tests together*"),
        ("noise", f"passes in at most {100 * PASS_LEVEL:g} %"),
    ):
        assert rule in plain(page), rule


def test_every_verdict_has_a_row_and_the_worst_is_named_first() -> None:
    rows = table("reading-a-failure", "## The verdicts")
    assert sorted(quoted(row[0])[0] for row in rows) == sorted(v.value for v in Verdict)
    order = ", ".join(f"`{verdict.value}`" for verdict in VERDICT_ORDER)
    assert f"A case has the worst of its figures: {order}, in this order" in plain(
        "reading-a-failure"
    )


def attributes(kind: type) -> set[str]:
    stored = set(getattr(kind, "__struct_fields__", ()))
    return {name for name in {*dir(kind), *stored} if not name.startswith("_")}


def named_in(rows: Iterable[list[str]]) -> set[str]:
    return {name for row in rows for name in quoted(row[0])}


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("## A profile", PerfProfile),
        ("### Static figures", StaticProfile),
        ("### Latency", Latency),
        ("## A comparison", CaseComparison),
    ],
)
def test_every_attribute_on_the_page_is_there(heading: str, kind: type) -> None:
    names = {re.sub(r"\(.*\)", "", name) for name in named_in(table("python-api", heading))}
    assert names
    known = {name for name in dir(kind) if not name.startswith("_")}
    if kind is not PerfProfile:
        known |= attributes(kind)
    assert names <= known


def test_every_attribute_of_a_profile_is_on_the_page() -> None:
    known = {name for name in vars(PerfProfile) if not name.startswith("_")}
    assert named_in(table("python-api", "## A profile")) == known


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("`uncounted`", Uncounted),
        ("`layers` | `id`", StaticLayer),
        ("`metrics`", Metric),
        ("`outputs`", OutputChange),
        ("`parts`", PartChange),
        ("`percentile(99.0)`", Percentile),
    ],
)
def test_every_attribute_of_a_part_is_there(row: str, kind: type) -> None:
    (line,) = (line for line in text_of("python-api").splitlines() if line.startswith(f"| {row}"))
    names = set(quoted(line.split(" | ", 1)[1])) - {"confidence"}
    assert names
    assert names <= attributes(kind)


def test_every_attribute_of_layers_and_changes_is_there() -> None:
    text = text_of("python-api")
    types = text.partition("### Layer types\n")[2].partition("Time that belongs")[0]
    assert set(quoted(types)) <= attributes(LayerType)
    layers = text.partition("### Layers\n")[2].partition("##")[0]
    assert set(quoted(layers)) <= attributes(LayerRow)
    (line,) = (line for line in text.splitlines() if line.startswith("| `layer_types` | each"))
    op, before, after, time, *parts = quoted(line)[1:]
    assert {op, before, after, time} <= attributes(LayerTypeChange)
    assert set(parts) <= attributes(TimeChange)


def test_the_words_of_a_call_are_on_the_page() -> None:
    words = named_in(table("python-api", "`case` is any of these words, with one size of each:"))
    assert words == set(CASE_WORDS) - set(MODEL_WORDS)
    calls = {
        re.sub(r"\W.*", "", name.removeprefix("modelperf."))
        for name in named_in(table("python-api", "## `modelperf`"))
    }
    assert calls == {name for name in vars(ModelPerf) if not name.startswith("_")} | {"modelperf"}


def test_the_page_on_comparing_names_every_column_of_the_csv() -> None:
    page = text_of("comparing")
    assert [name for name in COMPARISON_COLUMNS if f"`{name}`" not in page] == []


def empty_case() -> CaseOutcome:
    case = CaseProfile(Case(1, 1), static_of(parse(SWAP)))
    return CaseOutcome(
        test="m.onnx::b1-c1",
        source=Source(path="m.onnx", line=None),
        model=make_model("m.onnx", "m.onnx", None, 1),
        cores=1,
        batch_size=1,
        comparison=replace(compare_cases(case, case), outcome=Verdict.NEW),
    )


def test_the_page_on_json_has_every_metric() -> None:
    of_budgets = table("json", "#### Metrics of budgets")
    named = named_in([*table("json", "### Names of metrics"), *of_budgets])
    assert {quoted(row[0])[0] for row in of_budgets}.isdisjoint(
        metric.name for metric in empty_case().comparison.metrics
    )
    counted = {metric.name for metric in empty_case().comparison.metrics}
    assert counted
    assert named >= counted
    assert named == (
        {figure.metric for figure in FIGURES.values()}
        | {f"latency_p{percent:g}" for percent in PERCENTS}
        | counted
        | {"elementwise_ops", "weight_bytes", "activation_bytes", "peak_activation_bytes"}
        | {"memory_bytes", OUTPUTS, f"{LAYERS_ON}<provider>", TOTAL, f"{MEMBER}<member>"}
        | set(WORK_METRICS)
    )


def test_the_tolerances_of_other_figures_are_those_of_the_code() -> None:
    rows = table("memory", "# Limit memory, load time, size and outputs")
    default = Tolerances()
    described = {quoted(row[0])[0]: row[2] for row in rows}
    assert sorted(described) == sorted((LOAD, FIRST, MEMORY, SIZE, OUTPUTS))
    for name in (LOAD, FIRST, MEMORY, SIZE):
        assert described[name].startswith(f"{100 * default.of_figure(name):g} %")
    assert f"{LEAST_MEMORY_BYTES >> 20} MiB" in described[MEMORY]
    assert f"{LEAST_SIZE_BYTES >> 20} MiB" in described[SIZE]
    assert default.outputs is None
