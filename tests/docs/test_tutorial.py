"""docs/tutorial.md runs from its first command to its last, and ends red and then green."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import ROOT
from tests.support.repository import git, needs_git
from tests.support.shell import make_shell
from tests.support.shown import assert_laid_out, block

pytestmark = [needs_git, pytest.mark.slow]

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
REMOTE = "https://github.com/YOU/shop.git"
CHECK = "pytest --modelperf --modelperf-strict"
_BLOCK = re.compile(
    r"^```(?P<language>console|python|toml|yaml)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Typed:
    """A command of the page, its exit code, and what it printed."""

    command: str
    code: int
    printed: str


@dataclass(frozen=True, slots=True)
class Walk:
    """All commands of the page in their order, in a folder, with a repository to push to."""

    typed: list[Typed]
    project: Path
    remote: Path

    def checks(self) -> list[Typed]:
        return [each for each in self.typed if each.command == CHECK]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    place = tmp_path_factory.mktemp("tutorial")
    type_in = make_shell(place)
    remote, project = place / "remote.git", place / "shop"
    remote.mkdir()
    git(remote, "init", "--quiet", "--bare")
    settings = git_settings(place, remote)
    typed = []
    for found in _BLOCK.finditer(PAGE):
        if found["language"] == "console":
            for command in commands(found["text"]):
                folder = project if project.exists() else place
                done = type_in(command, folder, **settings)
                typed.append(Typed(command, done.returncode, done.stdout + done.stderr))
        else:
            write(project, found["text"])
    return Walk(typed, project, remote)


def commands(console: str) -> list[str]:
    lines = console.splitlines()
    assert all(line.startswith("$ ") for line in lines)
    return [line[2:] for line in lines]


def write(project: Path, text: str) -> None:
    """The file that a block begins with the name of."""
    title, _, _ = text.partition("\n")
    path = project / title.removeprefix("# ")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def git_settings(place: Path, remote: Path) -> dict[str, str]:
    """The environment of a user of git for whom the address of the page is a folder."""
    settings = place / "gitconfig"
    settings.write_text(
        f'[user]\nname = A\nemail = a@example.org\n[url "{remote}"]\ninsteadOf = {REMOTE}\n'
    )
    return {"GIT_CONFIG_GLOBAL": str(settings), "GIT_CONFIG_NOSYSTEM": "1", "COLUMNS": "150"}


def test_every_command_succeeds_but_the_red_check(walk: Walk) -> None:
    red, green = walk.checks()
    assert (red.code, green.code) == (1, 0), red.printed + green.printed
    failed = [each for each in walk.typed if each.code != 0]
    assert failed == [red]


def test_the_first_run_finds_the_model_and_it_is_new(walk: Walk) -> None:
    (first,) = (each for each in walk.typed if each.command == "pytest --modelperf")
    assert_laid_out(block(PAGE, "measured", "new"), first.printed)
    assert "squeezenet.onnx::b1-c1  new " in first.printed


def test_the_red_check_says_why_and_how_to_accept(walk: Walk) -> None:
    """A busy machine may leave the case open; strict fails it then, too, with the same reason."""
    red, _ = walk.checks()
    answer = (
        r"^(?:inconclusive: |regressed: (?s:.*?)^accept: pytest --modelperf --modelperf-update)"
    )
    assert re.search(answer, red.printed, re.MULTILINE)
    for text in (red.printed, block(PAGE, "measured", "red")):
        assert re.search(r"^why: (?s:.)*8 Relu became Elu", text, re.MULTILINE)


def test_the_green_check_is_that_of_the_accepted_model(walk: Walk) -> None:
    _, green = walk.checks()
    assert_laid_out(block(PAGE, "measured", "green"), green.printed)
    assert "1 unchanged." in green.printed


def test_the_reviewer_sees_what_was_accepted(walk: Walk) -> None:
    (diff,) = (each for each in walk.typed if each.command == "modelperf baselines --diff main")
    assert "changed models--squeezenet: new model" in diff.printed


def test_what_is_pushed_is_what_github_checks(walk: Walk) -> None:
    pushed = git(walk.remote, "log", "--format=%s", "elus").splitlines()
    assert pushed == [
        "Accept the cost of Elu",
        "Use Elu in the last layers",
        "Check the cost of the models on pull requests",
        "Test the cost of the models",
    ]
    workflow = git(walk.remote, "show", "main:.github/workflows/model-performance.yml")
    steps = yaml.safe_load(workflow)["jobs"]["modelperf"]["steps"]
    assert steps[-1] == {"run": CHECK}
    assert set(git(walk.remote, "ls-tree", "-r", "--name-only", "main").splitlines()) > {
        "models/squeezenet.onnx",
        "pyproject.toml",
    }
