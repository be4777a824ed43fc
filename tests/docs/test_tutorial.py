"""The tutorials run from their first command to their last; that of CI ends red and then green."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import ROOT
from tests.support.repository import git, needs_git
from tests.support.shell import Type, make_shell
from tests.support.shown import assert_laid_out, block

pytestmark = [needs_git, pytest.mark.slow]

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
CLI_PAGE = (ROOT / "docs" / "tutorial-cli.md").read_text(encoding="utf-8")
REMOTE = "https://github.com/YOU/shop.git"
CHECK = "pytest --modelperf --modelperf-strict"
RECORD = "pytest --modelperf --modelperf-update-baseline"
WORKFLOW = ".github/workflows/model-performance.yml"
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
    typed = type_page(PAGE, type_in, lambda: project if project.exists() else place, settings)
    return Walk(typed, project, remote)


def type_page(
    page: str, type_in: Type, find_folder: Callable[[], Path], settings: Mapping[str, str]
) -> list[Typed]:
    """Write the files of a page and type its commands, in the folder that is found each time."""
    typed = []
    for found in _BLOCK.finditer(page):
        if found["language"] == "console":
            for command in commands(found["text"]):
                done = type_in(command, find_folder(), **settings)
                typed.append(Typed(command, done.returncode, done.stdout + done.stderr))
        else:
            write(find_folder(), found["text"])
    return typed


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
    assert [each for each in walk.typed if each.code != 0] == [red]


def test_init_writes_what_the_page_says(walk: Walk) -> None:
    (first,) = (each for each in walk.typed if each.command.startswith("modelperf init"))
    for text in (first.printed, block(PAGE, "measured", "init")):
        assert re.search(r"^models/squeezenet.onnx  new", text, re.MULTILINE)
        for name in ("pyproject.toml", WORKFLOW, ".gitattributes"):
            assert f"wrote {name}\n" in text
        assert "record: pytest --modelperf --modelperf-update-baseline" in text


def test_the_baseline_is_recorded_as_the_page_shows(walk: Walk) -> None:
    recorded, _ = (each for each in walk.typed if each.command == RECORD)
    assert_laid_out(block(PAGE, "measured", "recorded"), recorded.printed)
    assert "wrote the baselines of models/squeezenet.onnx" in recorded.printed


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
    for text in (diff.printed, block(PAGE, "measured", "diff")):
        assert "changed models--squeezenet: new model" in text


def test_github_checks_the_pushed_commits(walk: Walk) -> None:
    pushed = git(walk.remote, "log", "--format=%s", "elus").splitlines()
    assert pushed == [
        "Accept the cost of Elu",
        "Use Elu in the last layers",
        "Test the performance of models",
    ]
    workflow = git(walk.remote, "show", f"main:{WORKFLOW}")
    *_, last = yaml.safe_load(workflow)["jobs"]["modelperf"]["steps"]
    assert last["with"] == {"strict": "true", "packages": f"onnxruntime=={version('onnxruntime')}"}
    assert set(git(walk.remote, "ls-tree", "-r", "--name-only", "main").splitlines()) > {
        "models/squeezenet.onnx",
        "pyproject.toml",
    }


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Typed]:
    """The commands of the second tutorial by their first words."""
    place = tmp_path_factory.mktemp("command_line")
    type_in, folder = make_shell(place), place / "here"
    folder.mkdir()
    page = re.sub(r"^\$ modelperf .*", r"\g<0> --max-seconds 2", CLI_PAGE, flags=re.MULTILINE)
    found = type_page(page, type_in, lambda: folder, {"COLUMNS": "150"})
    return {" ".join(each.command.split()[:2]): each for each in found}


def test_every_command_of_the_second_tutorial_gives_its_answer(typed: Mapping[str, Typed]) -> None:
    """A comparison ends with 1 if a model is shown to be slower, and a busy machine shows less."""
    codes = {command: each.code for command, each in typed.items()}
    assert codes.pop("modelperf compare") in {0, 1}
    assert set(codes.values()) == {0}, {c: e.printed for c, e in typed.items() if e.code}


def test_the_outputs_of_the_second_tutorial_are_those_of_its_commands(
    typed: Mapping[str, Typed],
) -> None:
    for name, line in (
        ("profile", r"^by layer type"),
        ("compare", r"^why: (?s:.)*8 Relu became Elu"),
        ("whatif", r"^.*Channels 0\.5"),
        ("tune", r"^.*graph_optimization_level"),
    ):
        shown = block(CLI_PAGE, "measured", name)
        for text in (shown, typed[f"modelperf {name}"].printed):
            assert re.search(line, text, re.MULTILINE), f"{name}: {line}\n{text}"
