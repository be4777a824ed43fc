"""One report on each face: the same lines, tables and code, and no name that steers a reader."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot
from markdown_it import MarkdownIt

from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import render_page, spans
from pytest_modelperf.report.markdown import MarkdownStyle
from pytest_modelperf.report.model import (
    Code,
    Failure,
    Line,
    On,
    Paragraph,
    Report,
    Rows,
    Section,
    Sheet,
    Tone,
)
from pytest_modelperf.report.page import MarkupStyle, TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.report.tables import Column, Table

EVIL = "a\x1b[31mb\u202ec<script>`*"
FENCES = "```\ncode with fences\n```"


def make_report(name: str = "net", code: str = "x = 1") -> Report:
    table = Table(
        "sizes",
        (Column("layer", is_name=True), Column("ms"), Column("spare", rank=1)),
        ((name, "1.20", "a long cell that gives way"), ("other", "0.10", "")),
        caption="ms: of a batch\nspare: left over",
    )
    section = Section(
        title=name,
        is_titled=False,
        tone=Tone.GOOD,
        blocks=(
            Rows(table, (Tone.BAD, Tone.PLAIN)),
            Paragraph((Line(text=f"why {name}", tone=Tone.UNSURE), Line(word="how", text="so"))),
            Code("in Python", code),
            Code(f"run {name}", "pytest", is_command=True),
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
ms: of a batch
spare: left over

why net
how: so

in Python
x = 1
run net: pytest

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

ms: of a batch\\
spare: left over

- why net
- how: so

**in Python**

```
x = 1
```

run net:

```console
pytest
```

- note: net
""")


def test_code_with_fences_of_its_own_is_one_block() -> None:
    tokens = MarkdownIt().parse(render_report(make_report(code=FENCES), MarkdownStyle()))
    fences = [token.content for token in tokens if token.type == "fence"]
    assert fences == [f"{FENCES}\n", "pytest\n"]


def test_a_report_of_several_sections_names_each() -> None:
    report = make_report()
    cases = tuple(
        Section(title=name, blocks=(Paragraph((Line(text="passed"),)),))
        for name in ("b1-c1", "b8-c1")
    )
    both = Report(title=report.title, subject="net", blocks=cases)
    assert render_report(both, TextStyle(40)) == "net\n\nb1-c1\npassed\n\nb8-c1\npassed\n"


def test_an_empty_block_is_not_shown() -> None:
    empty = (Paragraph(()), Section(title="steps", blocks=(Paragraph(()),)))
    report = Report(title="net", subject="net", blocks=empty)
    assert render_report(report, TextStyle(40)) == "net\n"
    assert "steps" not in render_page(report)
    new = Section(title="b1-c1", word="new", sentence="there is no baseline")
    assert "there is no baseline" in render_page(Report(title="net", blocks=(new,)))


def test_a_section_below_a_table_has_its_title() -> None:
    rows = Rows(Table("", (Column("ms"),), (("1.20",),), caption="of one\ninference"))
    lines = Paragraph((Line(text="run it again"),))
    advice = Section(title="what to do", blocks=(lines, Code("check", "pytest", is_command=True)))
    report = Report(title="net", blocks=(rows, advice))
    assert render_report(report, TextStyle(40)) == snapshot("""\

  ms
────
1.20
of one
inference

what to do
run it again
check: pytest
""")


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


def test_a_page_has_the_tone_of_an_opening_line() -> None:
    line = Line(word="drift", text="+5 %", tone=Tone.BAD)
    page = render_page(Report(title="net", opening=(line,)))
    assert '<p class="line sentence tone-bad">drift: +5 %</p>' in page


def test_a_sheet_is_the_csv_of_a_report() -> None:
    sheet = Sheet(("layer", "ms"), (("=net", 1.25), ("other", None)))
    report = Report(title="net", blocks=make_report().blocks, sheet=sheet)
    assert render_csv(report) == "layer,ms\n'=net,1.25\nother,\n"


def test_the_first_table_is_the_csv_of_a_report_without_a_sheet() -> None:
    assert render_csv(make_report()) == (
        "layer,ms,spare\nnet,1.20,a long cell that gives way\nother,0.10,\n"
    )
    assert render_csv(Report(title="net")) == "\n"


def test_each_face_shows_its_own_blocks() -> None:
    line = Line(text="of a text", on=On.TEXT)
    rows = Rows(Table("drawn", (Column("layer"),), (("net",),)), on=On.PAGE)
    detail = Paragraph((Line(text="how it was measured"),), is_detail=True)
    report = Report(title="net", subject="net", opening=(line,), blocks=(rows, detail))
    assert render_report(report, TextStyle(40), has_details=False) == "net\nof a text\n"
    assert "how it was measured" in render_report(report, TextStyle(40))
    page = render_page(report)
    assert "drawn" in page
    assert "of a text" not in page


def test_a_line_goes_on_below_its_text_unless_its_word_is_long() -> None:
    lines = (Line(word="why", text="one " * 12), Line(word="models/net.onnx b1-c1", text="1 " * 20))
    assert render_report(Report(title="", opening=lines), TextStyle(40)) == snapshot("""\
why: one one one one one one one one one
     one one one
models/net.onnx b1-c1: 1 1 1 1 1 1 1 1 1
  1 1 1 1 1 1 1 1 1 1 1
""")


def test_a_command_is_folded_and_a_failure_keeps_its_lines() -> None:
    blocks = (Failure("no kernel\nof this type"), Code("accept", "pytest " * 8, is_command=True))
    assert render_report(Report(title="", blocks=blocks), TextStyle(40)) == snapshot("""\
no kernel
  of this type
accept: \\
pytest pytest pytest pytest pytest p\\
ytest pytest pytest
""")


def test_markdown_folds_details_and_closed_sections() -> None:
    rows = Rows(Table("", (Column("layer"),), (("net",),)), is_detail=True)
    blocks = (Paragraph((Line(word="why", text="no fusion"),)), rows)
    closed = Section(
        title="b1", word="passed", sentence="+0.1 %", blocks=blocks[:1], is_detail=True
    )
    opened = Section(title="b8", word="regressed", tone=Tone.BAD, blocks=blocks)
    report = Report(title="", subject="net", blocks=(opened, closed))
    assert render_report(report, MarkdownStyle()) == snapshot("""\
### net

**b8 regressed**

- why: no fusion

<details><summary>Details</summary>

| layer |
| ---: |
| net |

</details>

<details><summary>b1 passed: +0.1 %</summary>

- why: no fusion

</details>
""")
    assert render_report(report, TextStyle(40), has_details=False) == snapshot("""\
net

b8 regressed
why: no fusion
""")


def test_markdown_that_is_too_long_says_what_it_leaves_out() -> None:
    table = Table("", (Column("layer"),), tuple((f"layer{n}",) for n in range(100)))
    report = Report(title="", subject="net", blocks=(Rows(table), Code("x", "y" * 2_000)))
    shown = render_report(report, MarkdownStyle(most_bytes=2_000))
    assert "more rows are not shown." in shown
    assert shown.endswith("The JSON of the run has everything._\n")
    assert len(shown.encode()) <= 2_000


def test_a_table_is_transposed_if_its_columns_do_not_fit() -> None:
    table = Table(
        "", (Column("case"), Column("first token"), Column("tokens/s")), (("b1", "1", "2"),)
    )
    report = Report(title="", subject="net", blocks=(Rows(table, may_turn=True),))
    assert render_report(report, TextStyle(16)) == snapshot("""\
net

case         b1
───────────────
first token   1
tokens/s      2
""")


def test_brief_blocks_replace_the_details_on_a_terminal_without_them() -> None:
    brief = Paragraph((Line(text="in short"),), is_brief=True)
    detail = Paragraph((Line(text="at length"),), is_detail=True)
    report = Report(title="", subject="net", blocks=(brief, detail))
    assert render_report(report, TextStyle(40), has_details=False) == "net\nin short\n"
    assert render_report(report, TextStyle(40)) == "net\nat length\n"
    for shown in (render_report(report, MarkdownStyle()), render_page(report)):
        assert "at length" in shown
        assert "in short" not in shown


def test_a_reason_takes_the_room_of_the_empty_cells_after_it() -> None:
    columns = (
        Column("case", is_name=True),
        Column("verdict", is_verdict=True),
        Column("decided by", is_text=True),
        *(Column("before"), Column("now"), Column("MACs")),
    )
    table = Table("", columns, ())
    assert spans(("a", "failed", "cut short", "", "", ""), table) == [1, 1, 4, 0, 0, 0]
    assert spans(("a", "failed", "cut short", "", "", "1 G"), table) == [1, 1, 3, 0, 0, 1]
    assert spans(("a", "regressed", "load +3 %", "1 ms", "", ""), table) == [1] * 6
    assert spans(("a", "new", "", "", "1 ms", ""), table) == [1] * 6
