"""The site of the docs has every page, its links hold, and the help texts lead to it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from check_site import check_links, compare
from llms_text import render_llms_text
from prepare_pages import MOVED, gallery, prepare_page, redirect, rewrite_links, sources
from site_settings import Section, SiteSettings, read_settings
from stored_pages import with_shared, without_shared

from pytest_modelperf.cli import main
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.model import Drawings, Drawn, Report
from pytest_modelperf.text.version import SITE
from tests.support.checkout import ROOT
from tests.support.command import run
from tests.support.known import known

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETTINGS = read_settings(ROOT / "mkdocs.yml")
PAGES = set(sources().values())
REPOSITORY = "https://github.com/owner/project"
SMALL = SiteSettings(
    name="A site",
    description="What it is about.",
    address="https://example.org/site/",
    repository=REPOSITORY,
    sections=(Section("Use", ("index.md", "ci.md")), Section("The project", ("changelog.md",))),
)


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(page for each in SETTINGS.sections for page in each.pages) == sorted(PAGES)


def test_the_site_and_the_repository_have_one_address_everywhere() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert SETTINGS.address == urls["Documentation"] == SITE
    assert SETTINGS.repository == urls["Source"]
    assert urls["Changelog"] == f"{SITE}changelog/"
    used = re.findall(r"uses: (pytest-modelperf/\S+?)(?:/comment)?@v1", page_of("ci"))
    assert [f"https://github.com/{name}" for name in dict.fromkeys(used)] == [SETTINGS.repository]


def page_of(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("page", "link", "rewritten"),
    [
        ("ci.md", "budgets.md#a-budget", "budgets.md#a-budget"),
        ("ci.md", "schemas/run.json", "schemas/run.json"),
        ("ci.md", "../README.md", "index.md"),
        ("ci.md", "../CONTRIBUTING.md#an-operator", "contributing.md#an-operator"),
        ("ci.md", "../benchmarks/README.md", f"{REPOSITORY}/blob/main/benchmarks/README.md"),
        ("ci.md", "../benchmarks/real.py", f"{REPOSITORY}/blob/main/benchmarks/real.py"),
        (
            "ci.md",
            "schemas/write_schemas.py",
            f"{REPOSITORY}/blob/main/docs/schemas/write_schemas.py",
        ),
        ("ci.md", "#strict", "#strict"),
        ("ci.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("ci.md", "https://example.org/site/gallery/run.html#types", "gallery/run.html#types"),
        ("index.md", "docs/pictures/a.svg", "pictures/a.svg"),
        ("index.md", "docs/ci.md#strict", "ci.md#strict"),
        ("index.md", "LICENSE", f"{REPOSITORY}/blob/main/LICENSE"),
        ("contributing.md", "docs/evidence.md", "evidence.md"),
    ],
)
def test_a_link_of_the_repository_holds_on_the_site(page: str, link: str, rewritten: str) -> None:
    assert rewrite_links(f"See [it]({link}).", page, SMALL) == f"See [it]({rewritten})."


def test_a_link_in_a_block_of_code_is_code() -> None:
    text = "[a](../x.py)\n\n```text\n[a](../x.py)\n```\n"
    shown = rewrite_links(text, "ci.md", SMALL)
    assert shown == text.replace("../x.py", f"{REPOSITORY}/blob/main/x.py", 1)


def test_a_page_of_the_site_has_no_badges_but_its_pictures() -> None:
    badge = "[![CI](https://example.org/ci.svg)](https://example.org/ci)\n"
    text = f"# A\n\n{badge}{badge}\n[![b](docs/b.svg)](docs/ci.md)\n"
    assert prepare_page(text, "index.md", SMALL) == "# A\n\n\n[![b](b.svg)](ci.md)\n"


@pytest.mark.parametrize("name", MOVED)
def test_a_page_that_moved_leads_to_a_place_that_exists(name: str) -> None:
    assert f"{name}.md" not in PAGES
    path, _, anchor = MOVED[name].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / path).read_text("utf-8"), re.MULTILINE)
    assert not anchor or anchor in [each.lower().replace(" ", "-") for each in headings]
    target = known(re.search(r'url=([^"]+)"', redirect(name, SMALL)))
    place = f"{Path(path).stem}/#{anchor}" if anchor else f"{REPOSITORY}/blob/main/{path[3:]}"
    assert target[1] == (f"../{place}" if anchor else place)


def test_a_navigation_is_read_with_titles_and_sections_of_sections(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: a\nsite_description: b\nsite_url: c\nrepo_url: d\n"
        "theme: !!python/name:a.b\n"
        "nav: [{Home: index.md}, {Use: [ci.md, {Deep: [a.md, {Title: b.md}]}]}, {Last: z.md}]\n"
    )
    assert read_settings(tmp_path / "mkdocs.yml").sections == (
        Section("Overview", ("index.md", "z.md")),
        Section("Use", ("ci.md", "a.md", "b.md")),
    )


FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_of_an_issue_has_a_title_and_fields_of_their_own(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    assert form.keys() == {"name", "description", "labels", "body"}
    ids = [field["id"] for field in form["body"]]
    assert ids
    assert len(set(ids)) == len(ids)
    for field in form["body"]:
        assert field["type"] in {"input", "textarea"}
        assert field["attributes"]["label"]


@pytest.mark.parametrize("name", ["SECURITY.md", "examples/README.md", "baselines/README.md"])
def test_a_page_of_the_repository_links_to_files_that_are_there(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\(([^)\s:]+)\)", page.read_text("utf-8"))
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_links_of_an_issue_lead_to_the_site_and_the_page_on_security() -> None:
    config = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text("utf-8"))
    urls = [link["url"] for link in config["contact_links"]]
    assert f"{SITE}troubleshooting/" in urls
    (advisory,) = set(urls) - {f"{SITE}troubleshooting/"}
    assert advisory in (ROOT / "SECURITY.md").read_text("utf-8")


def test_the_list_of_pages_has_their_titles_and_first_sentences() -> None:
    pages = {
        "index.md": "# Home of `it`\n\n![a](a.svg)\n\nSee [this\npage](ci.md) first. Then go.\n",
        "ci.md": "# In CI\n\n```text\na\n\nb.\n```\n\n<!-- c. -->\n\n- d\n\n`x` runs 1.5 times:\n",
        "changelog.md": "# Changes\n",
    }
    assert render_llms_text(SMALL, pages) == (
        "# A site\n\n> What it is about.\n\n## Use\n\n"
        "- [Home of it](https://example.org/site/index.md): See this page first.\n"
        "- [In CI](https://example.org/site/ci.md): `x` runs 1.5 times\n\n"
        "## Optional\n\n- [Changes](https://example.org/site/changelog.md)\n"
    )


def test_every_page_is_listed_and_described_by_prose_alone() -> None:
    texts = {page: (ROOT / source).read_text("utf-8") for source, page in sources().items()}
    lines = [line for line in render_llms_text(SETTINGS, texts).splitlines() if line[:1] == "-"]
    found = [re.fullmatch(r"- \[(.+?)\]\((\S+?)\)(?:: (.+))?", line) for line in lines]
    listed = {each[2].removeprefix(SITE): each[3] or "" for each in found if each is not None}
    assert listed.keys() == PAGES
    assert [about for about in listed.values() if re.search(r"\]\(|^[#|!<-]|```", about)] == []
    assert sum(len(about) > 20 for about in listed.values()) >= 0.9 * len(PAGES)


def test_a_page_is_stored_without_its_scripts_and_gets_them_back() -> None:
    drawn = Drawn(Drawings(), lambda: {"models": []})
    page = render_page(Report(title="A page", drawn=drawn))
    stored = without_shared(page)
    assert with_shared(stored) == page
    assert len(page) > 1_000_000
    assert len(stored) < 5_000


def test_a_stored_page_whose_script_is_gone_is_refused() -> None:
    with pytest.raises(KeyError, match=r"report/html/gone\.js"):
        with_shared("<script>@@report/html/gone.js@@</script>")


def test_the_gallery_links_to_every_page_of_it() -> None:
    made = gallery()
    assert sorted(re.findall(rf"\]\({SITE}(gallery/[\w.]+)\)", page_of("gallery"))) == sorted(made)
    assert f"{SITE}gallery/run.html" in made["gallery/comment.html"]
    # A run of today would write these, too.
    assert "<td>regressed</td>" in made["gallery/comment.html"]
    assert "regressed" in made["gallery/run.html"]


def test_the_check_of_the_site_reports_a_list_that_became_a_paragraph() -> None:
    markdown = "Text\n- one\n- two\n"
    assert compare(markdown, "<nav><li></nav><article><ul><li><li></ul></article>") == ""
    assert compare(markdown, "<article><p></article>") == (
        "li: 2 on GitHub, 0 on the site; ul: 1 on GitHub, 0 on the site"
    )


def test_the_check_of_the_site_reports_a_page_that_is_listed_and_missing(tmp_path: Path) -> None:
    (tmp_path / "ci.md").touch()
    (tmp_path / "llms.txt").write_text(f"- [a]({SITE}ci.md): b\n- [c]({SITE}d.md)\n")
    assert list(check_links(tmp_path)) == [
        f"llms.txt leads to {SITE}d.md, which is no file of the site"
    ]


@pytest.mark.parametrize("command", [[], *([name] for name in main.commands)], ids=str)
def test_the_help_of_a_command_leads_to_a_page(command: list[str]) -> None:
    (url,) = re.findall(r"Guide: (\S+)", run(*command, "--help").out)
    assert url.startswith(SITE)
    name = url.removeprefix(SITE).removesuffix("/")
    if command:
        assert f"modelperf {command[0]}" in page_of(name)


def test_the_help_of_pytest_has_the_address_in_one_piece(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = pytester.runpytest_inprocess("--help", "-p", "pytest_modelperf.plugin").outlines
    assert SITE in [line.strip() for line in lines]
