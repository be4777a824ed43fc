"""What is said when something is wrong: all of it is in one list, and has one form."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pytest_modelperf.cli.wording import COMMAND_WORDING
from pytest_modelperf.errors import PLAIN, ModelPerfError, Remedy
from pytest_modelperf.testing.wording import PYTHON_WORDING, TABLE_WORDING
from tests.messages import PACKAGE, Message, Source, dump, render, select

# What only they raise who have taken a message up, or what has no words.
_WORDLESS = frozenset({"SystemExit"})


@pytest.fixture(scope="module")
def source() -> Source:
    return Source()


@pytest.fixture(scope="module")
def messages(source: Source) -> tuple[Message, ...]:
    return source.messages()


@pytest.fixture(scope="module")
def errors(source: Source, messages: tuple[Message, ...]) -> list[Message]:
    """Those that a user reads as they are, of which the source tells the words."""
    own = {kind for kind, code in source.exit_codes.items() if code is not None}
    return [each for each in messages if each.kind in own and each.text is not None]


def found_in(tmp_path: Path, text: str) -> list[Message]:
    """The messages of a package of one module, which has errors of its own."""
    folder = tmp_path / "package"
    folder.mkdir()
    errors = "class ModelPerfError(Exception):\n    exit_code = 2\n"
    (folder / "errors.py").write_text(errors + "class UsageError(ModelPerfError):\n    pass\n")
    (folder / "module.py").write_text(text)
    return list(Source(folder).messages())


# -- nothing is left out


def test_every_error_that_is_raised_is_in_the_list(
    source: Source, messages: tuple[Message, ...]
) -> None:
    listed = {(each.file, each.line) for each in messages}
    assert len(source.modules) == len(list(PACKAGE.rglob("*.py")))
    missing = [
        f"{module.file}:{node.lineno}"
        for module in source.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Raise) and node.exc is not None
        if ast.unparse(node.exc).split("(")[0] not in _WORDLESS
        if (module.file, node.exc.lineno) not in listed
    ]
    assert missing == []


def test_every_class_of_error_ends_a_command_with_its_own_code(source: Source) -> None:
    classes = [ModelPerfError]
    for each in classes:
        classes += each.__subclasses__()
    told = {name: source.exit_codes[name] for name in (each.__name__ for each in classes)}
    assert told == {each.__name__: each.exit_code for each in classes}


def test_the_words_are_found_wherever_they_stand(tmp_path: Path) -> None:
    (found,) = found_in(
        tmp_path,
        """\
from package.errors import UsageError
_ADVICE = "Give another."
def _hint(near):
    if near is None:
        return ""
    return f" Did you mean {near}?"
def _wrong(where, expected, advice=_ADVICE) -> UsageError:
    shown = printable(where)
    return UsageError(f"{shown} takes {expected}." + _hint(where) + " " + advice)
def read(path):
    raise _wrong(path, "a number" if path else "nothing")
""",
    )
    assert found.text == ("{shown} takes [a number|nothing].[ Did you mean {path}?] Give another.")
    assert (found.line, found.kind, found.exit_code) == (11, "UsageError", 2)


def test_what_the_source_does_not_tell_is_listed_as_it_stands(tmp_path: Path) -> None:
    found = found_in(
        tmp_path,
        """\
from package.errors import UsageError
def read(path):
    try:
        open(path)
    except OSError as error:
        raise UsageError(str(error))
    raise made_elsewhere(path)
""",
    )
    assert [(each.text, each.expression) for each in found] == [
        (None, "UsageError(str(error))"),
        (None, "made_elsewhere(path)"),
    ]
    assert "(not told) made_elsewhere(path)" in render(found, 80)


def test_a_name_that_nothing_made_safe_is_told_from_one_that_is(tmp_path: Path) -> None:
    found = found_in(
        tmp_path,
        """\
from package.errors import UsageError
def read(node, other, count):
    shown = printable(other.name)
    raise UsageError(f"{node.name} is {shown}, {other.name!r}, {count:,}: {printable(node.id)}.")
""",
    )
    assert [each.raw for each in found] == [("node.name",)]


def test_it_shows_what_has_a_word_as_text_and_as_json(messages: tuple[Message, ...]) -> None:
    (found,) = select(messages, ["names no percentile"])
    assert render([replace(found, line=12)], 60) == snapshot("""\
pytest_modelperf/comparing/limits.py
  12 UsageError, exit 2
    {where} names no percentile: give a share such as 0.03,
    which is 3 %.

messages: 1; not told by the source: 0\
""")
    assert [each["kind"] for each in json.loads(dump([found]))] == ["UsageError"]
    assert select(messages, []) == list(messages)


# -- one form


def words_of(message: Message) -> str:
    """Its text without what is filled in."""
    return re.sub(r"\{[^{}]*\}", "", message.text or "")


# Whoever reads a message wants to know what to do, not to be scolded or begged.
_SCOLDING = re.compile(
    r"!|\b(please|sorry|oops|invalid|illegal|bad|unable)\b|\berror:", re.IGNORECASE
)


def test_no_message_scolds_or_begs(messages: tuple[Message, ...]) -> None:
    assert [each.text for each in messages if _SCOLDING.search(words_of(each))] == []


# It stands behind `Error: ` or the name of a test, so it begins small. What is to be typed comes
# last without a full stop, so that it can be copied; so do the words of others.
_ENDING = re.compile(r"[.?}\]]$|: (modelperf|pytest|pip install) [^.]*$|--show \S*$|`$")


def test_a_message_is_a_sentence_after_the_name_of_what_it_is_about(errors: list[Message]) -> None:
    capital = [each.text for each in errors if re.match(r"[A-Z]", each.text or "")]
    assert capital == []
    # A reason why a test is skipped stands in brackets or in a list.
    sentences = [each for each in errors if each.kind != "TooFewCoresError"]
    assert [e.text for e in sentences if not _ENDING.search(e.text or "")] == []


_VERBS = (
    "add|ask|begin|call|check|choose|convert|copy|define|end|export|free|give|install|keep|leave"
    "|make|mark|measure|move|name|pip install|put|record|remove|rename|report|restore|run|save|see"
    "|set|start|store|take|try|type|update|use|write"
)
_ORDER = re.compile(rf"([.:;?,] |, or |`)({_VERBS}|modelperf|pytest)\b", re.IGNORECASE)
_EXPECTED = re.compile(
    r"\b(takes|takes no|must|has to|expected|such as|as in|there (is|are|were)|did you mean|at most"
    r"|up to|limit|more than|deeper than|allowed|can be|reads like|needs|is for"
    r"|(is|are) (free|given as|named by)|functions there|not an? (complete )?ONNX model"
    r"|is the path right|to (replace|see) it)\b",
    re.IGNORECASE,
)
# The words of a system, an engine or a file's reader, which say it themselves, and the advice that
# the reader of a file is given.
_OTHERS_WORDS = re.compile(r"\{[^{}]*(error|reason|advice|told|message|parts|what|_OURS)[^{}]*\}")
# Of these nothing can be typed: it is how a model or an engine is, and said as the reason why
# something else is not there.
_FACTS = (
    "has no weight that can be pruned",
    "nothing is left to quantize",
    "leaves all products of the model in floats",
    "does not tell what the bandwidth of memory follows from",
    "tells no times of its kernels",
    "the worker was no longer there",
    "only its latency is known",
    "cores are wanted",
    "has not ended: what was recorded is read after its with statement",
)


def test_a_message_says_what_to_do_or_what_was_expected_or_passes_on_who_does(
    errors: list[Message],
) -> None:
    silent = [
        f"{each.file}:{each.line} {each.text}"
        for each in errors
        if not _ORDER.search(text := each.text or "")
        if not _EXPECTED.search(text)
        if not _OTHERS_WORDS.search(text)
        if not any(fact in text for fact in _FACTS)
    ]
    assert silent == []


def test_each_fact_of_which_nothing_can_be_typed_is_still_said(errors: list[Message]) -> None:
    assert [fact for fact in _FACTS if not any(fact in (e.text or "") for e in errors)] == []


# What names come by: from models, from files, from what was typed.
_NAME = re.compile(r"\.(name|op_type|domain|doc_string|id|nodeid|path|text|word|key)$")
# Names that were made safe where they were read, or that only come in one form.
_SAFE_NAMES = (
    # `graph.model_file.open_model` and `graph.twin.read_twin` make them printable.
    "file.name", "self.name", "twin.name",
    # `hookspecs` takes letters, digits, `_` and `.` for the name of an engine, and pluggy the name
    # of a module for that of a hook's plugin.
    "engine.name", "hook.name",
    # `profiles.place.check_name` has seen the name of every profile that is kept,
    "after.name", "before.name", "kept.name", "named.name",
    # `baselines.store` that of a baseline's file, and a budget is one of ours.
    "budget.word", "path.name",
)  # fmt: skip


def test_a_name_is_made_printable_before_it_is_shown(errors: list[Message]) -> None:
    raw = {
        f"{each.file}:{each.line} {expression}"
        for each in errors
        for expression in each.raw
        if _NAME.search(expression) and not expression.endswith(_SAFE_NAMES)
    }
    assert raw == set()


def test_what_is_passed_on_was_told_where_it_was_made(
    source: Source, messages: Sequence[Message]
) -> None:
    own = {kind for kind, code in source.exit_codes.items() if code is not None}
    passed_on = {each.expression for each in messages if each.kind in own and each.text is None}
    assert passed_on == snapshot(
        {
            "MeasureError(now.reason)",
            "MeasureError(profile.reason)",
            "ModelError(str(error).replace(printable(str(path)), shown))",
            "OutputError(f'{option}: {error}')",
            "PerfFailure(run.failure_text(checked.outcome))",
            "PerfFailure(run.failure_text(checked.outcome, margin=_MARGIN))",
            "UsageError(f'{engine}: {error}')",
            "UsageError(str(error))",
            "pytest.Collector.CollectError(message)",
            "pytest.UsageError(message)",
            "pytest.UsageError(str(error))",
            "self.CollectError(message)",
        }
    )


def test_a_remedy_names_only_settings_that_every_face_knows() -> None:
    faces = (PLAIN, COMMAND_WORDING, PYTHON_WORDING, TABLE_WORDING)
    assert {frozenset(face.names) for face in faces} == {frozenset(PLAIN.names)}
    remedies = [
        node.args[0].value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "Remedy"
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    ]
    assert len(remedies) > 10
    for remedy in remedies:
        Remedy(remedy).worded(PLAIN)
