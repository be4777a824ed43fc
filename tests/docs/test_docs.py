"""The documentation holds: its examples run, its figures and names are those of the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from configparser import ConfigParser
from pathlib import Path

import click
import onnx
import pytest

from pytest_modelperf.baselines.recording import PROCESSES
from pytest_modelperf.baselines.records import FIDELITY
from pytest_modelperf.cli import main
from pytest_modelperf.comparing.gates import RUN_LEVEL
from pytest_modelperf.comparing.limits import DEFAULT_TOLERANCE
from pytest_modelperf.comparing.time_limits import PASS_LEVEL
from pytest_modelperf.errors import BindingError
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_bytes import KEEP_BYTES, KEEP_INTEGER_BYTES
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.operators import cost
from pytest_modelperf.graph.twin import KEEP_WEIGHT_BYTES, MAX_MODEL_BYTES, MAX_TWIN_BYTES
from pytest_modelperf.profiler.doctor.checkup import LEVEL, POWER
from pytest_modelperf.profiler.hookspecs import PROJECT, Operators
from pytest_modelperf.profiler.inputs.made import make_inputs
from pytest_modelperf.profiler.sampling.kernels import MAX_LAYER_RUNS
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY, SamplingPolicy
from pytest_modelperf.profiler.shown.facts import (
    MAX_OTHERS,
    MAX_STOLEN,
    MAX_SWITCHES_PER_SECOND,
    MAX_THROTTLED,
)
from pytest_modelperf.profiler.shown.tables.layer_columns import ALL_COLUMNS
from pytest_modelperf.profiler.worker.client import DEFAULT_LIMIT_S
from pytest_modelperf.profiler.worker.gateway import LEAST_START_LIMIT_S
from pytest_modelperf.stats.decisions import EARLY_LOOKS, LOOKS, share_level, spend_level
from pytest_modelperf.stats.estimates import needed_samples
from pytest_modelperf.stats.processes import FEWEST_PROCESSES
from pytest_modelperf.stats.records import PERCENTS
from tests.support.checkout import ROOT
from tests.support.command import run
from tests.support.known import known
from tests.support.shown import assert_laid_out, block, headings
from tests.support.small_models import layer_of, ones, parse, static_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = ROOT / "docs"
# Without those that are left out when a wheel is tested.
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
OPERATORS = DOCS / "operators.md"
ENGINES = DOCS / "engines.md"
BASELINES = DOCS / "baselines.md"
STATISTICS = DOCS / "statistics.md"
SWEEP = DOCS / "sweep.md"
GATED = """
    g (float[2,3,8] x, float[8,5] w, float[2,3,5] gate) => (y) {
        [gate_3] h = my.ops.GatedLinear(x, w, gate)
        y = Relu(h)
    }
"""
RESULTS = 2 * 3 * 5


def blocks(language: str, page: Path = OPERATORS) -> list[str]:
    """The code blocks of one language, in order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """The calls of modelperf that a page types, as a shell would take them apart."""
    lines = "".join(blocks("console", page)).replace("\\\n", " ").splitlines()
    typed = [shlex.split(line, comments=True) for line in lines if line.startswith("$ modelperf ")]
    return [words[2:] for words in typed]


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """The model that the page speaks of, in a folder together with the extension."""
    model = parse(GATED)
    extension, *_ = blocks("python")
    (tmp_path / "gated.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "gated_ops.py").write_text(extension)
    monkeypatch.chdir(tmp_path)
    return model


def test_the_extension_counts_what_its_formulas_say(gated: onnx.ModelProto) -> None:
    extension, *_ = blocks("python")
    module: dict[str, object] = {}
    exec(extension, module)  # noqa: S102  # our own page
    register = module["modelperf_register_operators"]
    assert callable(register)
    operators = Operators()
    register(operators)
    profile = static_of(gated, operators)
    layer = layer_of(profile, "my.ops::GatedLinear")
    assert layer.macs == 2 * 3 * 8 * 5
    assert layer.elementwise_ops == RESULTS * (32 + 1 + 4 + 1)
    assert layer.output_shape == (2, 3, 5)
    assert layer_of(profile, "Relu").elementwise_ops == RESULTS
    assert profile.coverage == 1.0
    assert static_of(gated).coverage == 0.0


@pytest.mark.usefixtures("gated")
def test_the_command_takes_the_extension(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (console,) = blocks("console")
    prompt, command, *arguments = console.split()
    assert (prompt, command) == ("$", "modelperf")
    monkeypatch.syspath_prepend(Path.cwd())
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--json", "-"])
    assert stopped.value.code == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["static"]["coverage"] == 1.0


@pytest.mark.usefixtures("gated")
def test_a_conftest_takes_the_extension(pytester: pytest.Pytester) -> None:
    extension, test = blocks("python")
    (pytester.path / "gated.onnx").write_bytes(parse(GATED).SerializeToString())
    (pytester.path / "conftest.py").write_text(extension)
    (pytester.path / "test_gate.py").write_text(test)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.chdir(pytester.path)
        result = pytester.runpytest_inprocess("--modelperf", "-p", "pytest_modelperf.plugin")
    result.assert_outcomes(passed=1)


def test_the_entry_point_is_of_the_group_that_is_loaded() -> None:
    (toml,) = blocks("toml")
    groups = tomllib.loads(toml)["project"]["entry-points"]
    assert groups.keys() == {PROJECT}


def test_the_weights_on_the_page_are_those_of_the_code() -> None:
    text = OPERATORS.read_text(encoding="utf-8")
    paragraph = known(re.search(r"each operation by its weight: (.*?)\.\n", text, re.DOTALL))
    printed = {
        name: int(weight)
        for names, weight in re.findall(r"((?:`\w+`(?:, | and )?)+)(?:\s+are)? (\d+)", paragraph[1])
        for name in re.findall(r"`(\w+)`", names)
    }
    assert printed == {
        name: getattr(cost, name)
        for name in dir(cost)
        if re.match("[A-Z]{3,}$", name) and name != "FREE"
    }


@pytest.mark.slow
def test_an_engine_is_written_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, plugin = blocks("python", ENGINES)
    (tmp_path / "reference_engine.py").write_text(engine)
    (tmp_path / "reference_plugin.py").write_text(plugin)
    model = parse("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (call,) = (words for words in commands(ENGINES) if "reference" in words)
    done = run(*call, "--max-seconds", "0.1", "--json", "-")
    assert done.exit_code == 0, done.err
    (case,) = json.loads(done.out)["cases"]
    assert case["engine"]["name"] == "reference"
    assert case["engine"]["version"] == onnx.__version__
    assert case["latency"]["min_ms"] > 0
    refused = run(*call, "--engine-option", "speed=11")
    assert refused.exit_code == 2
    assert refused.err == "Error: the engine reference has no option speed.\n"


@pytest.mark.parametrize("page", [*filter(commands, PAGES)], ids=lambda page: page.name)
def test_every_command_that_is_typed_has_these_options(page: Path) -> None:
    for name, *arguments in commands(page):
        command = main.commands[name]
        # An unknown option raises, and so does an option without its value.
        command.make_parser(click.Context(command)).parse_args(arguments)


def test_the_pages_type_every_command() -> None:
    assert {name for page in PAGES for name, *_ in commands(page)} == set(main.commands)


def test_the_columns_of_layers_on_the_page_are_those_of_the_code() -> None:
    text = (DOCS / "profiling.md").read_text(encoding="utf-8")
    _, _, below = text.partition("| columns | what they say of a layer |\n| --- | --- |\n")
    rows = below.partition("\n\n")[0].splitlines()
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert sorted(named) == sorted(ALL_COLUMNS)


@pytest.mark.slow
def test_the_sweep_that_the_page_shows_is_laid_out_as_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small model in place of the page's: its rounds are short, and the tables are the same.

    It has time enough for the medians, without which there is no best configuration.
    """
    model = parse(
        "g (float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }", weights={"w": ones(64, 64)}
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models/squeezenet.onnx").write_bytes(model.SerializeToString())
    monkeypatch.chdir(tmp_path)
    # Wide, because how many columns fit depends on the figures.
    monkeypatch.setenv("COLUMNS", "150")
    (call,) = (words for words in commands(SWEEP) if "models/squeezenet.onnx" in words)
    done = run(*call, "--max-seconds", "3")
    assert done.exit_code == 0, done.err
    shown = block(SWEEP.read_text(encoding="utf-8"), "measured", "a sweep")
    assert len(headings(shown)) == 3
    assert_laid_out(shown, done.out)


@pytest.mark.slow
def test_a_baseline_is_compared_as_the_page_says(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = parse(
        "g (float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }", weights={"w": ones(4, 4)}
    )
    (pytester.path / "encoder.onnx").write_bytes(model.SerializeToString())
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.chdir(pytester.path)
    recording = ("--modelperf", "--modelperf-update-baseline", "--modelperf-max-seconds=1")
    pytester.runpytest_inprocess(*recording, "-p", "pytest_modelperf.plugin", "encoder.onnx")
    ((name, *arguments),) = (words for words in commands(BASELINES) if words[0] == "compare")
    done = run(name, *arguments, "--json", os.devnull)
    assert done.exit_code == 0, done.err
    assert "b1-c1" in done.out
    assert re.search(r"^b8-c1 +new", done.out, re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchor of a heading: lower case, hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    found = 0
    for target, _, anchor in (link.partition("#") for link in links if "://" not in link):
        there = (page.parent / target).resolve() if target else page
        if there in PAGES:
            found += 1
            assert not anchor or anchor in anchors(there), f"{target}#{anchor}"
        else:
            assert there.parent != DOCS, f"{page.name} links to {target}, which is not there"
    assert found or page.name in LEAVES


# They link to no other page.
LEAVES = ("counting.md", "operators.md")


@pytest.mark.parametrize("page", ["README.md", "docs/install.md", "docs/versions.md"])
def test_the_versions_of_python_are_those_of_the_package(page: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = re.findall(r"Python :: (3\.\d+)\b", "\n".join(settings["project"]["classifiers"]))
    assert f"{named[0]} to {named[-1]}" in (ROOT / page).read_text(encoding="utf-8")


def contract_layers(container: str) -> list[str]:
    """The modules of an import contract, the top first."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    (layers,) = (
        contracts[name]["layers"]
        for name in contracts.sections()
        if contracts[name].get("containers", "").split() == [container]
    )
    return layers.split("\n")[1:]


@pytest.mark.parametrize(
    ("container", "before"),
    [("pytest_modelperf", "## Rooms\n"), ("pytest_modelperf.graph", "Inside `graph`")],
)
def test_the_architecture_has_the_layers_of_the_contracts(container: str, before: str) -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").partition(before)[2]
    rows = re.findall(
        r"^\| (`.+?`) \|", text.partition("\n\n|")[2].partition("\n\n")[0], re.MULTILINE
    )
    described = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    level = {
        name: index
        for index, layer in enumerate(contract_layers(container))
        for name in layer.split(" | ")
    }
    assert sorted(described) == sorted(level)
    assert described == sorted(described, key=level.__getitem__)


def test_the_arrows_of_the_architecture_are_those_of_the_contract() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    picture = text.partition("flowchart TD\n")[2].partition("```")[0]
    arrows = re.findall(r"^    (\w+) --> (\w+)$", picture.replace("graph_", "graph"), re.MULTILINE)
    level = {
        name: index
        for index, layer in enumerate(contract_layers("pytest_modelperf"))
        for name in layer.split(" | ")
    }
    assert len(arrows) > 10
    assert all(level[upper] < level[lower] for upper, lower in arrows)


def test_the_samples_that_percentiles_take_are_those_of_the_code() -> None:
    text = (DOCS / "measuring.md").read_text(encoding="utf-8")
    found = re.search(r"^\| percentile \| (.+) \|\n.+\n\| samples \| (.+) \|$", text, re.MULTILINE)
    assert found is not None
    names, samples = (cells.split(" | ") for cells in found.groups())
    assert names == [f"p{percent:g}" for percent in PERCENTS]
    assert samples == [f"{needed_samples(percent):,}" for percent in PERCENTS]


# Features that pages call missing, and whether they are.
MISSING: Sequence[tuple[str, str, Callable[[], bool]]] = (
    (
        "comparing.md",
        "only [tests](budgets.md) have budgets, so no command says it",
        lambda: (
            not any("budget" in (p.name or "") for c in main.commands.values() for p in c.params)
        ),
    ),
    (
        "profiling.md",
        "A sequence, an optional or a map cannot be sent to a worker.",
        lambda: _refuses("s (seq(float[2]) s, int64 i) => (float[2] y) { y = SequenceAt(s, i) }"),
    ),
)


def _refuses(text: str) -> bool:
    model = load_model(open_model(parse(text)))
    with pytest.raises(BindingError):
        make_inputs(model.graph, model.inputs)
    return True


@pytest.mark.parametrize(("page", "sentence", "is_so"), MISSING)
def test_features_that_a_page_calls_missing_are_missing(
    page: str, sentence: str, is_so: Callable[[], bool]
) -> None:
    assert sentence in " ".join((DOCS / page).read_text(encoding="utf-8").split())
    assert is_so()


def test_no_page_mentions_future_features() -> None:
    """A sentence that something is missing yet outlives what it says: `MISSING` has such."""
    known = ("nothing is written yet", "cannot be measured yet")
    for page in PAGES:
        text = " ".join(page.read_text(encoding="utf-8").split())
        for phrase in known:
            text = text.replace(phrase, "")
        assert re.findall(r"\b(?:no|not|nothing|cannot)\b[^.|;:,]*\byet\b", text) == [], page


def test_the_rules_of_sampling_are_those_of_the_code() -> None:
    pages = ("measuring", "layer-times", "noise", "reliability")
    text = " ".join(
        page for name in pages for page in (DOCS / f"{name}.md").read_text("utf-8").split()
    )
    policy = SamplingPolicy()
    for rule in (
        f"windows of at least {policy.min_window} inferences, longer for fast models",
        f"(some {1000 * policy.window_seconds:g} ms, at most {policy.max_block} inferences)",
        f"at most {100 * policy.steadiness:g} % below that of the window before",
        f"given up after {policy.max_windows} windows",
        f"The first three rounds take {1000 * policy.block_seconds:g} ms",
        f"A block has {policy.min_block} to {policy.max_block} inferences",
        f"after at least {policy.min_rounds} rounds and {policy.min_samples} samples",
        f"{100 * policy.confidence:g} % interval of the median is within",
        f"is within {100 * policy.precision:g} %, after {policy.max_rounds} rounds, or when",
        f"`--max-seconds` ({policy.max_seconds:g}) are over",
        f"Each kernel ran {SamplingPolicy().min_layer_runs} to {MAX_LAYER_RUNS} times",
        f"`--timeout` seconds ({DEFAULT_LIMIT_S:g})",
        f"a start or the load of an engine for {LEAST_START_LIMIT_S:g} at least",
        f"took time of its processors | {100 * MAX_STOLEN:g} % |",
        f"a CPU quota halted it | {100 * MAX_THROTTLED:g} % |",
        f"other processes took time of its processors | {100 * MAX_OTHERS:g} % |",
        f"it was interrupted | {MAX_SWITCHES_PER_SECOND} times a second |",
        f"a one-sided t test at level {100 * LEVEL:g} % finds with a power of {100 * POWER:g} %",
    ):
        assert rule in text


def test_the_levels_of_looks_are_those_of_the_code() -> None:
    text = STATISTICS.read_text(encoding="utf-8")
    found = re.search(
        r"^\| rounds \| (.+) \|\n.+\n\| level of the look \| (.+) \|$", text, re.MULTILINE
    )
    assert found is not None
    rounds, levels = (cells.split(" | ") for cells in found.groups())
    assert rounds == [str(look) for look in LOOKS]
    assert levels == [
        f"{100 * look.level:#.2g} %" for look in spend_level(LOOKS, LOOKS, share_level(2))
    ]


def test_the_rules_of_verdicts_and_twins_are_those_of_the_code() -> None:
    pages = {
        page.stem: " ".join(page.read_text(encoding="utf-8").split())
        for page in (STATISTICS, DOCS / "twins.md", DOCS / "comparing.md")
    }
    looks = ", ".join(map(str, LOOKS[:-1]))
    early = ", ".join(map(str, EARLY_LOOKS))
    assert (DUET_POLICY.min_rounds, DUET_POLICY.max_rounds) == (EARLY_LOOKS[0], LOOKS[-1])
    assert PROCESSES == FEWEST_PROCESSES == 5
    for page, rule in (
        ("statistics", f"After {looks} and {LOOKS[-1]} rounds"),
        ("statistics", f"for a pass after {early} rounds as well"),
        ("statistics", f"{100 * RUN_LEVEL:g} % for a run"),
        ("statistics", f"{100 * PASS_LEVEL:g} % for each case"),
        ("statistics", f"at least {FEWEST_PROCESSES} recorded processes"),
        ("statistics", f"({needed_samples(95)} for p95)"),
        ("comparing", f"{100 * DEFAULT_TOLERANCE:g} % unless `--tolerance` says otherwise"),
        ("comparing", f"`--max-seconds` ({DUET_POLICY.max_seconds:g}) are over"),
        ("comparing", f"p95 needs {needed_samples(95)} samples of each side"),
        ("twins", f"must be shown to run within {100 * FIDELITY:g} % of the model"),
        ("twins", f"DequantizeLinear: above {KEEP_WEIGHT_BYTES} bytes"),
        ("twins", f"every other number, above {KEEP_BYTES // 1024} KiB"),
        ("twins", f"integers of 16 to 64 bits, up to {KEEP_INTEGER_BYTES // 1024} KiB"),
        ("twins", f"size ({MAX_TWIN_BYTES >> 20} MiB)"),
        ("twins", f"claim at most {MAX_MODEL_BYTES >> 30} GiB together"),
    ):
        assert rule in pages[page], rule
