"""The report, the README and the document of a reduction, made by hand."""

# ruff: noqa: E501  # lines of a report are wide

from __future__ import annotations

import json
import math

import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.reducing.records import REDUCTION, ReduceStep, Reduction, StepAnswer
from pytest_modelperf.reducing.report import reduction_report, write_readme
from pytest_modelperf.reducing.search import dump_reduction
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.text.words import display_width
from tests.support.known import known
from tests.support.reductions import figure, make_reduction, nothing_slower

EVIL = "a\x1b[31mb\nc\u202ed"
MACHINE = MachineFacts(cpu="Some CPU", system="Linux", architecture="x86_64", usable_cores=2)


def shown(found: Reduction, width: int | None = None) -> str:
    report = reduction_report(found, COMMAND_WORDING, "reduced")
    return render_report(report, TextStyle(width))


def test_the_report_says_what_is_slower_and_where_the_files_are() -> None:
    assert shown(make_reduction()) == snapshot("""\
old.onnx → new.onnx b8-c1: slower: +4.0 % (99.91 % interval +2.0 … +6.0 %), allowed +3 %; reduced to 1 kernel before and 3 after: 1 Relu became 3 kernels (Abs, Add, Mul)
with drawn weights: 0.5500 ms before, 1.200 ms after, 2.18 times as long
written: reduced, with models of 733 B and 1.688 KiB; its README.md says what to type

step  shown   kernels     before      after    change           interval   limit  time  what
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
   1  open      1 → 2  0.1000 ms  0.1000 ms       0 %      −2.0 … +2.0 %  +2.0 %   0 s  1 Relu became 2 kernels (Abs, Mul)
   2  slower    1 → 3  0.5600 ms   1.150 ms  +105.4 %  +103.4 … +107.4 %  +2.0 %   4 s  1 Relu became 3 kernels (Abs, Add, Mul)
open: not decided whether they are slower by more than the limit

note: weights with many zeros are drawn with the same share of them
note: 3 duets in 21.0 s; the chance of any wrong answer is at most 1 %
""")


def test_rounds_that_vary_wildly_see_no_slowdown() -> None:
    found = nothing_slower()
    (whole,) = found.comparison.metrics
    blind = replace(whole, detectable=math.inf)
    text = shown(replace(found, comparison=replace(found.comparison, metrics=(blind,))))
    assert "would have been seen" not in text


def test_without_a_slowdown_the_answer_has_the_smallest_one_it_would_have_seen() -> None:
    assert shown(nothing_slower()) == snapshot("""\
old.onnx → new.onnx b8-c1: not slower: +0.3 % (99.91 % interval −1.7 … +2.3 %), allowed +3 %
a slowdown of 1.2 % or more would have been seen
no file was written
""")


def test_the_same_models_have_no_figures() -> None:
    found = nothing_slower()
    found = replace(found, comparison=replace(found.comparison, metrics=()))
    assert shown(found).splitlines() == snapshot(
        [
            "old.onnx → new.onnx b8-c1: both sides are the same model on the same engine, so neither is slower",
            "no file was written",
        ]
    )


def test_a_reason_of_several_steps_is_shown_once() -> None:
    found = make_reduction()
    steps = tuple(
        ReduceStep(units=units, shown=StepAnswer.FAILED, allowed=0.02, reason="no kernel for Tan")
        for units in ((1,), (1, 2))
    )
    search = replace(known(found.search), steps=steps, kept=(), is_smallest=False)
    text = shown(replace(found, search=search, written=None))
    assert text.count("no kernel for Tan") == 1


def test_a_slowdown_that_no_part_shows_says_what_to_try() -> None:
    found = make_reduction()
    failed = ReduceStep(
        units=(1,), shown=StepAnswer.FAILED, allowed=0.02, reason="no kernel for Tan"
    )
    search = replace(known(found.search), steps=(failed,), kept=(), is_smallest=False)
    assert shown(replace(found, search=search, written=None)) == snapshot("""\
old.onnx → new.onnx b8-c1: slower, but no part of it by itself: +4.0 % (99.91 % interval +2.0 … +6.0 %), allowed +3 %
no file was written: give it more time with --max-seconds, or see modelperf compare --html

step  shown   kernels  before  after  change  interval   limit  time  what
─────────────────────────────────────────────────────────────────────────────────────────────────────────────
   1  failed    1 → 3                                   +2.0 %   0 s  1 Relu became 3 kernels (Abs, Add, Mul)

kernels that did not run by themselves: no kernel for Tan

note: 2 duets in 21.0 s; the chance of any wrong answer is at most 1 %
""")


def test_report_and_readme_say_that_drawn_weights_do_not_show_the_slowdown() -> None:
    found = make_reduction()
    written = replace(known(found.written), metric=figure(0.5, 0.5, Verdict.INCONCLUSIVE))
    found = replace(found, written=written)
    assert "the slowdown was not shown with drawn weights" in shown(found)
    assert "with drawn weights the slowdown was not shown again" in write_readme(found, MACHINE)


@pytest.mark.parametrize("width", [80, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for found in (make_reduction(), nothing_slower()):
        assert max(map(display_width, shown(found, width).splitlines())) <= width


def test_names_of_files_are_escaped() -> None:
    found = replace(make_reduction(), before=EVIL, after=EVIL)
    text = render_report(reduction_report(found, COMMAND_WORDING, EVIL), TextStyle(None))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_readme_has_one_command_the_figures_and_the_machine() -> None:
    assert write_readme(make_reduction(), MACHINE) == snapshot("""\
# A slowdown: 1 Relu became 3 kernels (Abs, Add, Mul)

`after.onnx` takes 2.18 times as long as `before.onnx` where this was written. To see it, type

```
pip install numpy onnxruntime==1.31.1
python repro.py
```

The last line that is printed has both times, in milliseconds, and their ratio.

## The measurements

| what ran | before | after | change | interval | confidence |
| --- | ---: | ---: | ---: | ---: | ---: |
| these files, with drawn weights | 0.5500 ms | 1.200 ms | +118.2 % | +116.2 … +120.2 % | 99.91 % |
| the same kernels, with their weights | 0.5600 ms | 1.150 ms | +105.4 % | +103.4 … +107.4 % | 99.91 % |
| the whole models | 30.00 ms | 31.20 ms | +4.0 % | +2.0 … +6.0 % | 99.91 % |

Both sides ran in one process, one inference of each in turn, in fresh sessions for each round. The figures are medians of the rounds. The kernels were found in 2 such duets; the chance of any wrong answer is at most 1 %.

## Which kernels

1 kernel before and 3 after. The times are of short profiles of the whole models, which only chose what was tried first.

- 1 Relu became 3 kernels (Abs, Add, Mul): +0.590 ms

All places in which the two models differ, as they were timed in place:

- 1 Relu became 3 kernels (Abs, Add, Mul): +0.590 ms (+0.500 … +0.680 ms)

## The files

`before.onnx` and `after.onnx` (733 B and 1.688 KiB) are cut out of the optimized graphs that the engine made, so they hold its own kernels, which need not be operators of ONNX. They run with optimizations off, and some only on processors of this kind: the engine lays out tensors by the width of the vector instructions.

There are no trained weights in them. `run.py` draws others by the notes in `run.json`, the same ones for every user, and draws the inputs by what the kernels got in the whole model.

The time may differ from the one with the trained weights:

- weights with many zeros are drawn with the same share of them

## Versions and machine

- both: onnxruntime 1.31.1, Python ?
- machine linux-x86&#95;64-some-cpu-2c: Some CPU, 2 cores
""")


def test_the_readme_of_an_upgrade_makes_both_versions() -> None:
    text = write_readme(make_reduction(is_upgrade=True), MACHINE)
    assert text.split("```")[1] == snapshot("""\

python -m venv old && old/bin/pip install numpy onnxruntime==1.31.1
python -m venv new && new/bin/pip install numpy onnxruntime==2.0
new/bin/python repro.py old/bin/python
""")
    assert "Other kernels that took longer in the profiles:" in text


def test_the_readme_adds_up_kernels_that_differ_in_their_names_alone() -> None:
    found = make_reduction(is_upgrade=True)
    (unit, *_) = found.left_out
    text = write_readme(replace(found, units=(*found.units, unit, unit)), MACHINE)
    (line,) = [line for line in text.splitlines() if line.startswith(f"- {unit.text}")]
    assert " at 3 places: +" in line


@pytest.mark.parametrize("found", [make_reduction(), nothing_slower()])
def test_the_document_is_one_of_its_type(found: Reduction) -> None:
    text = dump_reduction(found, "reduced")
    document = msgspec.json.decode(text, type=REDUCTION.json_type)
    assert document.verdict is found.verdict
    assert (document.written is None) is (found.written is None)
    assert [unit["kept"] for unit in json.loads(text)["units"]] == [
        index == 1 for index in range(len(found.units))
    ]
