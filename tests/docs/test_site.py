"""The site of the docs has every page, its links hold, and the help texts lead to it."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
import yaml
from check_site import compare
from hooks import OUTSIDE, rewrite_links

from pytest_modelperf.cli import main
from pytest_modelperf.text.site import SITE
from tests.support.checkout import ROOT
from tests.support.command import run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = {path.name for path in (ROOT / "docs").glob("*.md")} | set(OUTSIDE.values())
REPOSITORY = "https://github.com/owner/project"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    """Reads settings without the functions of Python that they name."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def read_settings() -> dict[str, Any]:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    settings: dict[str, Any] = yaml.load(text, _Loader)  # noqa: S506  # a safe one
    return settings


def names(navigation: object) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(navigation, str):
        return [navigation]
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    assert not isinstance(parts, (int, float, bool, type(None)))
    return [name for part in parts for name in names(part)]  # type: ignore[attr-defined]


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(names(read_settings()["nav"])) == sorted(PAGES)


def test_the_site_and_the_repository_have_one_address_everywhere() -> None:
    settings = read_settings()
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert settings["site_url"] == urls["Documentation"] == SITE
    assert settings["repo_url"] == urls["Source"] == f"https://github.com/{settings['repo_name']}"
    assert urls["Changelog"] == f"{SITE}changelog/"
    used = re.findall(r"uses: (pytest-modelperf/\S+?)(?:/comment)?@v1", page_of("ci"))
    assert set(used) == {settings["repo_name"]}


def page_of(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("page", "link", "rewritten"),
    [
        ("ci.md", "budgets.md#a-budget", "budgets.md#a-budget"),
        ("ci.md", "schemas/run.json", "schemas/run.json"),
        ("ci.md", "../README.md", "index.md"),
        ("ci.md", "../CONTRIBUTING.md#an-operator", "contributing.md#an-operator"),
        ("ci.md", "../benchmarks/README.md", "benchmarks.md"),
        ("ci.md", "../benchmarks/real.py", f"{REPOSITORY}/blob/main/benchmarks/real.py"),
        (
            "ci.md",
            "schemas/write_schemas.py",
            f"{REPOSITORY}/blob/main/docs/schemas/write_schemas.py",
        ),
        ("ci.md", "#strict", "#strict"),
        ("ci.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("index.md", "docs/ci.md#strict", "ci.md#strict"),
        ("index.md", "LICENSE", f"{REPOSITORY}/blob/main/LICENSE"),
        ("benchmarks.md", "../docs/evidence.md", "evidence.md"),
        ("benchmarks.md", "real.py", f"{REPOSITORY}/blob/main/benchmarks/real.py"),
    ],
)
def test_a_link_of_the_repository_holds_on_the_site(page: str, link: str, rewritten: str) -> None:
    assert rewrite_links(f"See [it]({link}).", page, REPOSITORY) == f"See [it]({rewritten})."


def test_a_link_in_a_block_of_code_is_code() -> None:
    text = "[a](../x.py)\n\n```text\n[a](../x.py)\n```\n"
    shown = rewrite_links(text, "ci.md", REPOSITORY)
    assert shown == text.replace("../x.py", f"{REPOSITORY}/blob/main/x.py", 1)


def test_the_check_of_the_site_tells_a_list_that_became_a_paragraph() -> None:
    markdown = "Text\n- one\n- two\n"
    assert compare(markdown, "<nav><li></nav><article><ul><li><li></ul></article>") == ""
    assert compare(markdown, "<article><p></article>") == (
        "li: 2 on GitHub, 0 on the site; ul: 1 on GitHub, 0 on the site"
    )


@pytest.mark.parametrize("command", [[], *([name] for name in main.commands)], ids=str)
def test_the_help_of_a_command_leads_to_a_page(command: list[str]) -> None:
    (url,) = re.findall(r"Guide: (\S+)", run(*command, "--help").out)
    assert url.startswith(SITE)
    name = url.removeprefix(SITE).removesuffix("/")
    if command:
        assert name, f"{command[0]} has no page in _PAGES of cli/main.py"
        assert f"modelperf {command[0]}" in page_of(name)


def test_the_help_of_pytest_has_the_address_in_one_piece(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = pytester.runpytest_inprocess("--help", "-p", "pytest_modelperf.plugin").outlines
    assert SITE in [line.strip() for line in lines]
