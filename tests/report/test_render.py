"""One report on each face: the same lines, tables and code, and no name that steers a reader."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot
from markdown_it import MarkdownIt

from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.markdown_page import MarkdownStyle
from pytest_modelperf.report.markup_page import MarkupStyle
from pytest_modelperf.report.model import Code, Line, Paragraph, Report, Rows, Section, Tone
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.report.tables import Column, Table

EVIL = "a\x1b[31mb\u202ec<script>`*"
FENCES = "```\ncode with fences\n```"


def make_report(name: str = "net", code: str = "x = 1") -> Report:
    table = Table(
        "sizes",
        (Column("layer", is_name=True), Column("ms"), Column("spare", rank=1)),
        ((name, "1.20", "a long cell that gives way"), ("other", "0.10", "")),
    )
    section = Section(
        title=name,
        tone=Tone.GOOD,
        blocks=(
            Rows(table, (Tone.BAD, Tone.PLAIN)),
            Paragraph((Line(text=f"why {name}", tone=Tone.UNSURE), Line(word="how", text="so"))),
            Code("in Python", code),
        ),
    )
    return Report(
        title=f"{name}: sizes",
        subject=name,
        opening=(Line(text="on a machine"),),
        blocks=(section,),
        closing=(Line(word="note", text=name),),
    )


def test_a_terminal_shows_each_block_in_its_place() -> None:
    assert render_report(make_report(), TextStyle(40)) == snapshot("""\
net
on a machine

sizes
layer    ms                       spare
───────────────────────────────────────
net    1.20  a long cell that gives way
other  0.10

why net
how: so

in Python
x = 1

note: net
""")


def test_markdown_has_a_table_and_a_block_of_code() -> None:
    assert render_report(make_report(), MarkdownStyle()) == snapshot("""\
### net

- on a machine

**sizes**

| layer | ms | spare |
| --- | ---: | ---: |
| <code>net</code> | 1.20 | a long cell that gives way |
| <code>other</code> | 0.10 |  |

- why net
- how: so

**in Python**

```
x = 1
```

- note: net
""")


def test_code_with_fences_of_its_own_is_one_block() -> None:
    tokens = MarkdownIt().parse(render_report(make_report(code=FENCES), MarkdownStyle()))
    assert [token.content for token in tokens if token.type == "fence"] == [f"{FENCES}\n"]


def test_a_report_of_several_sections_names_each() -> None:
    report = make_report()
    first, second = (Section(title=name) for name in ("b1-c1", "b8-c1"))
    both = Report(title=report.title, subject="net", blocks=(first, second))
    assert render_report(both, TextStyle(40)) == "net\n\nb1-c1\n\nb8-c1\n"


@pytest.mark.parametrize("style", [TextStyle(40), MarkdownStyle(), MarkupStyle()])
def test_no_name_steers_a_reader(style: TextStyle | MarkdownStyle | MarkupStyle) -> None:
    shown = render_report(make_report(EVIL, EVIL), style)
    assert all(char.isprintable() or char == "\n" for char in shown)
    if not isinstance(style, TextStyle):
        assert "<script>" not in shown.replace("```\na\\x1b[31mb\\u202ec<script>", "")


def test_a_page_has_every_block_without_a_script() -> None:
    page = render_page(make_report(EVIL, "x = 1\ny = 2"))
    body = page[page.index("<main>") : page.index("</main>")]
    assert "<script>" not in body
    for text in (
        "x = 1\ny = 2\n</pre>",
        "in Python",
        "how: so",
        "1.20",
        "a long cell that gives way",
    ):
        assert text in body
    assert 'class="sentence tone-unsure"' in body
