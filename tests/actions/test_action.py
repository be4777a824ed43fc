"""`action.yml` runs the tests of a project, and its outputs are those of the report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from install_release import read_version
from sync_history import git_settings

from pytest_modelperf.text.version import __version__
from tests.actions.runner import Ran, Runner, read_action
from tests.support.checkout import ROOT
from tests.support.project import write_dense
from tests.support.repository import git, needs_git

pytestmark = pytest.mark.slow

MAIN = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main"}
PULL_REQUEST = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/5/merge"}
# Only our plugin, and no lock file next to the settings.
PLUGIN = "-p pytest_modelperf.plugin -p no:cacheprovider"
STATIC = f"{PLUGIN} --modelperf-static-only model.onnx"


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner whose project has a model of 15 weights without a baseline."""
    for name in ("runner", "project"):
        (tmp_path / name).mkdir()
    made = Runner(tmp_path / "runner", tmp_path / "project")
    made.variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    made.variables |= PULL_REQUEST
    made.event = {"pull_request": {"number": 5}, "repository": {"default_branch": "main"}}
    write_dense(made.project / "model.onnx")
    return made


def pytest_call(ran: Ran) -> str:
    (call,) = (call for call in ran.calls if call.startswith("-m pytest "))
    return call


def record(runner: Runner) -> None:
    """Makes the present model the baseline."""
    done = runner.run("action.yml", arguments=f"{STATIC} --modelperf-update-baseline", page="false")
    assert not done.has_failed, done.log


def test_a_new_model_passes_and_its_reports_are_uploaded(runner: Runner) -> None:
    ran = runner.run("action.yml", arguments=STATIC)
    assert not ran.has_failed, ran.log
    assert (ran.outputs["verdict"], ran.outputs["regressed"]) == ("new", "0")
    python, report, page = ran.used
    assert python.inputs == {"python-version": "3.13"}
    folder = Path(ran.outputs["report"])
    assert report.inputs["name"] == "modelperf"
    assert report.inputs["path"] == str(folder)
    assert {path.name for path in folder.iterdir()} == {
        "modelperf.json",
        "modelperf.md",
        "pull-request.json",
    }
    assert json.loads((folder / "pull-request.json").read_text()) == {"number": 5}
    assert page.inputs["name"] == "modelperf-page"
    assert Path(page.inputs["path"]).read_text("utf-8").startswith("<!doctype html>")


def test_a_model_that_got_worse_fails_the_step_and_is_uploaded(runner: Runner) -> None:
    record(runner)
    write_dense(runner.project / "model.onnx", width=6)
    ran = runner.run("action.yml", arguments=STATIC, page="false")
    assert ran.has_failed
    assert (ran.outputs["verdict"], ran.outputs["regressed"]) == ("regressed", "1")
    assert ran.used[-1].inputs["path"] == ran.outputs["report"] != ""
    assert "::error file=model.onnx" in ran.log


def test_strict_is_an_option_of_the_run(runner: Runner) -> None:
    ran = runner.run("action.yml", arguments=STATIC, page="false", strict="true")
    assert ran.has_failed
    assert ran.outputs["verdict"] == "new"
    assert " --modelperf-strict " in pytest_call(ran)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_only_a_strict_run_fails_if_it_judged_no_case(runner: Runner, strict: str) -> None:
    (runner.project / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.skip\ndef test_it(modelperf):\n    pass\n"
    )
    ran = runner.run("action.yml", arguments=f"{PLUGIN} test_it.py", page="false", strict=strict)
    assert ran.outputs["verdict"] == "no case", ran.log
    assert ran.has_failed is (strict == "true")
    is_annotated = "::error title=model performance::no model was judged" in ran.log
    assert is_annotated is ran.has_failed


def test_a_run_that_cannot_begin_has_no_report_and_uploads_nothing(runner: Runner) -> None:
    ran = runner.run("action.yml", arguments=f"{STATIC} --modelperf-tolerance=much", page="false")
    assert ran.has_failed
    assert set(ran.outputs.values()) == {""}
    assert len(ran.used) == 1


def test_a_run_without_the_plugin_says_so(runner: Runner) -> None:
    write = runner.project / "conftest.py"
    write.write_text(
        "def pytest_addoption(parser):\n"
        "    for name in ('', '-json=', '-markdown='):\n"
        "        parser.addoption('--modelperf' + name.rstrip('='), "
        "action='store' if name else 'store_true')\n"
        "def test_nothing():\n    pass\n"
    )
    (runner.project / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    ran = runner.run("action.yml", page="false")
    assert ran.has_failed
    assert (
        "::error title=modelperf::the run wrote no report: pytest ran without the plugin, or ran "
        "no test. Look"
    ) in ran.log


def test_a_run_without_a_test_says_so(runner: Runner) -> None:
    ran = runner.run("action.yml", arguments=f"{STATIC} --collect-only", page="false")
    assert ran.has_failed
    assert "options such as `--collect-only`.\n" in ran.log


def test_a_page_of_ones_own_takes_the_place_of_the_one_that_is_uploaded(runner: Runner) -> None:
    page = runner.project / "own.html"
    ran = runner.run("action.yml", arguments=f"{STATIC} --modelperf-html={page}", page="false")
    assert not ran.has_failed, ran.log
    assert page.exists()


def test_words_reach_pytest_and_no_shell(runner: Runner) -> None:
    """Text that a shell would run is an argument, and quotes hold words together."""
    hostile = f"{STATIC} -k 'model or $(touch harmed)' ; touch harmed"
    ran = runner.run("action.yml", arguments=hostile, page="false")
    assert ran.has_failed
    assert not (runner.project / "harmed").exists()
    assert pytest_call(ran).endswith(" -k model or $(touch harmed) ; touch harmed")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"arguments": "-k 'model"},
            (
                "the input arguments cannot be split into words: no closing quotation. Close each "
                "quote: -k 'model"
            ),
        ),
        (
            {"arguments": "--modelperf-json=x"},
            (
                "the input arguments has --modelperf-json, and the action gives this option "
                "itself, to upload the file: leave it out. The outputs say where the reports are."
            ),
        ),
        (
            {"arguments": "-q --modelperf-html x"},
            (
                "the input arguments has --modelperf-html, and the action gives this option "
                "itself, to upload the file: leave it out. The outputs say where the reports are."
            ),
        ),
        ({"strict": "yes"}, "the input strict is true or false, not 'yes'"),
        ({"page": ""}, "the input page is true or false, not ''"),
        (
            {"packages": "'"},
            (
                "the input packages cannot be split into words: no closing quotation. Close each "
                "quote: '"
            ),
        ),
    ],
)
def test_a_wrong_input_is_named(runner: Runner, inputs: dict[str, str], message: str) -> None:
    ran = runner.run("action.yml", **inputs)
    assert ran.has_failed
    assert f"::error title=modelperf::{message}\n" in ran.log


def test_the_release_of_the_action_is_installed(runner: Runner) -> None:
    ran = runner.run(
        "action.yml", arguments=STATIC, packages="onnxruntime==1.31.1 'a b'", page="false"
    )
    assert read_version() == __version__
    assert ran.calls[1] == (
        "-m pip --disable-pip-version-check install "
        f"pytest-modelperf=={__version__} onnxruntime==1.31.1 a b"
    )


def test_a_page_needs_its_extra(runner: Runner) -> None:
    ran = runner.run("action.yml", arguments="--modelperf-tolerance=much")
    assert f" install pytest-modelperf[report]=={__version__}" in ran.calls[1]


def test_another_package_and_python_can_be_named(runner: Runner) -> None:
    ran = runner.run("action.yml", arguments=STATIC, package=".[report]", python_version="")
    assert ran.calls[1].endswith(" install .[report]")
    assert not any("setup-python" in used.action for used in ran.used)


# -- history


def make_remote(runner: Runner) -> Path:
    """A remote of the project, which becomes a repository."""
    remote = runner.folder / "remote.git"
    git(runner.folder, "init", "-q", "--bare", str(remote))
    git(runner.project, "init", "-q")
    git(runner.project, "remote", "add", "origin", str(remote))
    git(runner.project, "commit", "-q", "--allow-empty", "-m", "first")
    return remote


def lines_of(remote: Path) -> list[str]:
    """The lines of the only file of the branch."""
    (path,) = git(remote, "ls-tree", "-r", "--name-only", "perf").splitlines()
    return git(remote, "show", f"perf:{path}").splitlines()


def pulled_into(ran: Ran) -> Path:
    (call,) = (call for call in ran.calls if " history pull --branch=perf " in call)
    return Path(call.partition("--dir=")[2])


@needs_git
def test_the_main_branch_pulls_the_history_and_pushes_its_lines(runner: Runner) -> None:
    runner.variables |= MAIN
    remote = make_remote(runner)
    record(runner)
    for run in (1, 2):
        ran = runner.run("action.yml", arguments=STATIC, page="false", history_branch="perf")
        assert not ran.has_failed, ran.log
        assert len(lines_of(remote)) == run
    folder = pulled_into(ran)
    assert f" --modelperf-history={folder} " in pytest_call(ran)
    assert ran.calls[-1] == f"-m pytest_modelperf history push --branch=perf --dir={folder}"
    (file,) = folder.glob("model/*.jsonl")
    assert len(file.read_text().splitlines()) == 2
    assert runner.token not in "".join(ran.calls)


@needs_git
@pytest.mark.parametrize(
    "variables",
    [
        PULL_REQUEST,
        {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/other"},
        # Its ref is the branch that the pull request goes to.
        {"GITHUB_EVENT_NAME": "pull_request_target", "GITHUB_REF": "refs/heads/main"},
    ],
)
def test_any_other_run_reads_the_history_and_adds_nothing(
    runner: Runner, variables: dict[str, str]
) -> None:
    remote = make_remote(runner)
    record(runner)
    runner.variables |= MAIN
    runner.run("action.yml", arguments=STATIC, page="false", history_branch="perf")
    runner.variables |= variables
    ran = runner.run("action.yml", arguments=STATIC, page="false", history_branch="perf")
    assert not ran.has_failed, ran.log
    folder = pulled_into(ran)
    assert f" -o modelperf_history={folder} " in pytest_call(ran)
    (file,) = folder.glob("model/*.jsonl")
    assert len(file.read_text().splitlines()) == 2
    assert not any("history push" in call for call in ran.calls)
    assert len(lines_of(remote)) == 1
    assert (
        "::notice title=modelperf::the history is written by runs of the default branch" in ran.log
    )


@needs_git
def test_a_run_against_another_revision_may_have_a_branch_of_the_history(runner: Runner) -> None:
    make_remote(runner)
    git(runner.project, "add", ".")
    git(runner.project, "commit", "-q", "-m", "a model")
    arguments = f"{STATIC} --modelperf-against=HEAD"
    ran = runner.run("action.yml", arguments=arguments, page="false", history_branch="perf")
    assert not ran.has_failed, ran.log


@needs_git
def test_a_history_that_cannot_be_pulled_ends_the_job_before_the_run(runner: Runner) -> None:
    make_remote(runner)
    git(runner.project, "remote", "set-url", "origin", str(runner.folder / "gone.git"))
    ran = runner.run("action.yml", arguments=STATIC, page="false", history_branch="perf")
    assert ran.has_failed
    assert "origin cannot be read" in ran.log
    assert not any(call.startswith("-m pytest ") for call in ran.calls)


@needs_git
def test_git_sends_the_token_in_place_of_the_one_of_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git reads its settings so: an empty value drops the headers before it."""
    git(tmp_path, "init", "-q")
    key = "http.https://github.com/.extraheader"
    git(tmp_path, "config", key, "AUTHORIZATION: basic old")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "a")
    for name, value in git_settings("https://github.com", "new").items():
        monkeypatch.setenv(name, value)
    listed = subprocess.run(
        ["git", "config", "--get-all", key],  # noqa: S607  # git, wherever it lies
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert listed == [
        "AUTHORIZATION: basic old",
        "",
        "AUTHORIZATION: basic eC1hY2Nlc3MtdG9rZW46bmV3",
    ]


# -- the files themselves


@pytest.mark.parametrize(
    ("path", "first"), [("action.yml", "arguments"), ("comment/action.yml", "artifact")]
)
def test_the_page_lists_every_input_with_its_default(path: str, first: str) -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    _, _, below = page.partition(
        f"| input | default | meaning |\n| --- | --- | --- |\n| `{first}` "
    )
    rows = [row.split(" |") for row in f"| `{first}` {below}".partition("\n\n")[0].splitlines()]
    listed = {name.strip("| `"): default.strip(" `") for name, default, *_ in rows}
    inputs = {name: each["default"] for name, each in read_action(path)["inputs"].items()}
    assert listed == {**inputs, "token": "that of the job"}


def test_the_page_lists_every_output() -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    table = page.partition("| output | meaning |\n| --- | --- |\n")[2].partition("\n\n")[0]
    assert [row.split("`")[1] for row in table.splitlines()] == [
        *read_action("action.yml")["outputs"]
    ]
    assert "`comment-url`" in page


@pytest.mark.parametrize("path", ["action.yml", "comment/action.yml"])
def test_no_shell_line_contains_an_expression(path: str) -> None:
    scripts = [step["run"] for step in read_action(path)["runs"]["steps"] if "run" in step]
    assert scripts
    assert not any("${{" in script for script in scripts)


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize(
    "file",
    [*WORKFLOWS, ROOT / "action.yml", ROOT / "comment/action.yml"],
    ids=lambda file: file.name,
)
def test_actions_of_others_are_pinned_by_digest(file: Path) -> None:
    text = file.read_text("utf-8")
    assert yaml.safe_load(text)
    lines = [line.strip().removeprefix("- ") for line in text.splitlines() if "uses: " in line]
    for line in lines:
        name, _, version = line.removeprefix("uses: ").partition(" # ")
        if name != "./":
            digest = name.partition("@")[2]
            assert len(digest) == 40, line
            assert set(digest) <= set("0123456789abcdef"), line
            assert version.startswith("v"), line
