"""One hostile name in every place of a model, through every command and every format of a report.

Whatever would obey a name is looked at as its reader would see it: a terminal, the log of a CI job,
a spreadsheet, a page, a pull request. A report is also the one of a plain name but for the texts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.hostile import reports
from tests.hostile.named_models import EVERYTHING, NAMES, PLAIN, named_model
from tests.support.command import Result, run
from tests.support.runtimes import unless_1_23

STATIC = ("--static", "--top", "0")
TIMED = ("--plugin", "tests.support.faulty_plugin", "--engine", "timed", "--max-seconds", "0.05")
QUICK = ("--max-seconds", "0.05")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A terminal of 60 columns, for names must be safe even if a line ends within them."""
    path = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setenv("COLUMNS", "60")
        yield path


def as_file(name: str) -> str:
    """As much of a name as a file can have."""
    return name.replace("/", "\u2215").replace("\0", "").encode()[:200].decode("utf-8", "ignore")


def save(name: str, *, runs: bool = False, width: int = 5) -> str:
    path = Path(f"{'runs' if runs else 'static'}-{width}") / f"{as_file(name)}.onnx"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(named_model(name, runs=runs, width=width).SerializeToString())
    return str(path)


def called(*arguments: str, exit_code: int = 0) -> Result:
    """A command that ended so, and wrote nothing that a terminal obeys."""
    result = run(*arguments)
    assert result.exit_code == exit_code, result.err
    reports.check_terminal(result.err)
    return result


@functools.cache
def written(arguments: tuple[str, ...], *suffixes: str) -> Mapping[str, str]:
    """Return what a command writes into a file of each format, and check what it prints.

    Once for a plain name, which every other is held against.
    """
    files = {suffix: f"out.{suffix}" for suffix in suffixes}
    options = [part for suffix, file in files.items() for part in (f"--{suffix}", file)]
    result = run(*arguments, *options)
    assert result.exit_code in {0, 1}, result.err
    reports.check_terminal(result.out + result.err)
    return {suffix: Path(file).read_text("utf-8") for suffix, file in files.items()}


# The check of each format.
CHECKS: Mapping[str, Callable[[str], object]] = {
    "csv": reports.check_csv,
    "html": reports.check_page,
    "markdown": reports.check_markdown,
    "trace": reports.check_trace,
}


def check_all(made: Mapping[str, str], name: str) -> dict[str, object]:
    """Return the elements of each file without its texts, which obey the rules of its format."""
    reports.check_json(made["json"], as_file(name))
    return {suffix: CHECKS[suffix](text) for suffix, text in made.items() if suffix != "json"}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_profile(name: str) -> None:
    def made_of(each: str) -> dict[str, object]:
        arguments = ("profile", save(each), *STATIC, "--sparsity", "--columns", "all")
        return check_all(written(arguments, "json", "csv", "html"), each)

    assert made_of(name) == made_of(PLAIN)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_comparison(name: str) -> None:
    def made_of(each: str) -> dict[str, object]:
        arguments = ("compare", save(each), save(each, width=6), "--static")
        return check_all(written(arguments, "json", "markdown", "html"), each)

    assert made_of(name) == made_of(PLAIN)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_documents_on_standard_output_are_safe(name: str) -> None:
    """Which may be the log of a CI job."""
    reports.check_json(called("profile", save(name), *STATIC, "--json", "-").out, name)
    reports.check_csv(called("profile", save(name), *STATIC, "--csv", "-").out)
    models = save(name), save(name, width=6)
    reports.check_markdown(
        called("compare", *models, "--static", "--markdown", "-", exit_code=1).out
    )
    reports.check_terminal(called("profiles", save(name)).out)
    reports.check_terminal(
        called("shapes", save(name), "-o", "out.onnx", "--names", f"{name}h").out
    )


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_messages_about_mistakes_are_safe(name: str) -> None:
    model = save(name)
    for options in (
        ["--dim", f"{name}=2"],
        ["--input", f"{name}x:f32:2x4"],
        ["--input", f"{name}x:i64:2x3"],
        ["--input", name],
        ["--columns", name],
        ["--sort", name],
        ["--plugin", name or "x"],
        ["--json", f"nowhere/{as_file(name)}"],
        ["--input-file", as_file(name)],
        ["--batch", name],
    ):
        result = called("profile", model, "--static", *options, exit_code=2)
        assert result.err.count("\n") == 1, result.err
    called("compare", model, f"{as_file(name)}.not", "--static", exit_code=2)
    called("shapes", model, "-o", "out.onnx", "--names", f"{name}nothing", exit_code=2)
    called("profiles", model, "--show", name, exit_code=2)
    called("trace", as_file(name), exit_code=2)
    called("history", "push", f"x{name}", exit_code=2)


# -- measured: all names at once, for a worker takes long to start


def test_a_measured_profile_and_what_is_made_of_it() -> None:
    """By the real runtime, whose plan and messages have the names in them, too."""
    model = save(EVERYTHING, runs=True)
    kept = ("--profile-dir", "kept")
    made = written(
        ("profile", model, *QUICK, "--top", "0", "--columns", "all", "--name", "kept", *kept),
        *("json", "csv", "html", "trace"),
    )
    check_all(made, EVERYTHING)
    for options in ([], ["--show", "kept"], ["--compare", "kept", "flops"]):
        reports.check_terminal(called("profiles", model, *kept, *options).out)
        reports.check_page(called("profiles", model, *kept, *options, "--html", "-").out)
    Path("stored.json").write_text(made["json"], "utf-8")
    for options in (["--csv", "-"], ["--json", "-"], []):
        reports.check_terminal(called("trace", "stored.json", *options).out)


@unless_1_23("does not refuse the model")
def test_an_engine_that_refuses_a_model_is_quoted_safely() -> None:
    result = called("profile", save(EVERYTHING), *QUICK, "--batch", "2", exit_code=3)
    assert "model was loaded" in result.out
    reports.check_terminal(result.out)


@pytest.mark.parametrize(
    ("command", "suffixes"),
    [
        (("sweep", "{0}", "--batch", "1"), ("json", "csv", "html")),
        (("whatif", "{0}", "--prune", "0.5"), ("json", "csv", "html")),
        (("compare", "{0}", "{1}"), ("json", "markdown", "html")),
    ],
    ids=["sweep", "whatif", "compare"],
)
def test_other_measured_reports(command: tuple[str, ...], suffixes: tuple[str, ...]) -> None:
    models = save(EVERYTHING, runs=True), save(EVERYTHING, runs=True, width=6)
    arguments = (models[int(p[1])] if p.startswith("{") else p for p in command)
    check_all(written((*arguments, *TIMED), *suffixes), EVERYTHING)
