"""All uses of pytest's internals, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from _pytest.junitxml import xml_key
from _pytest.skipping import evaluate_skip_marks

from pytest_modelperf.errors import ModelPerfError, find_lack_of_memory
from pytest_modelperf.text.escaping import encodable, encoding_of, printable_lines

# The options with which no test runs, by the names under which pytest stores them. If a plugin is
# off, its options do not exist.
_WITHOUT_TESTS = ("collectonly", "setuponly", "showfixtures", "show_fixtures_per_test", "cacheshow")


def ini_keys(config: pytest.Config) -> Mapping[str, Any]:
    """Return the keys of the ini file, including unknown ones, which `getini` does not list."""
    # pytest 9 has a new name for it, and warns about the old one.
    keys: Mapping[str, Any] = config._inicfg if hasattr(config, "_inicfg") else config.inicfg  # noqa: SLF001
    return keys


def ini_value(config: pytest.Config, key: str) -> object:
    """Return the value of an ini key, which can be any type in a TOML file of pytest 9.

    `getini` accepts only text for these keys.
    """
    written: Any = ini_keys(config).get(key)
    return written.value if getattr(written, "mode", "") == "toml" else config.getini(key)


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Return a context in which output reaches the terminal even if pytest captures it."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is None:
        return nullcontext()
    found: AbstractContextManager[None] = capture.global_and_fixture_disabled()
    return found


def write_unseen(config: pytest.Config, text: str) -> None:
    """Write a text to the terminal that will be erased later.

    The public `write` would count it as part of the line, which would then end too early.
    """
    writer = config.get_terminal_writer()
    file = writer._file  # noqa: SLF001
    file.write(encodable(text, encoding_of(file)))
    writer.flush()


def list_as_failed(config: pytest.Config, tests: Mapping[str, str]) -> None:
    """Move passed tests to the failed ones in pytest's summary, each with its reason.

    `stats` is public, but the function that makes the summary red is not.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    passed = reporter.stats.get("passed", [])
    failed = [each for each in passed if each.when == "call" and each.nodeid in tests]
    for report in failed:
        passed.remove(report)
        report.outcome, report.longrepr = "failed", printable_lines(tests[report.nodeid])
    if failed:
        reporter._add_stats("failed", failed)  # noqa: SLF001


def runs_tests(session: pytest.Session) -> bool:
    """Whether pytest will run any tests, as it decides at the beginning of its loop."""
    continues = session.config.option.continue_on_collection_errors
    is_broken = session.testsfailed and not continues
    return bool(session.items) and not is_broken and not leaves_tests_out(session.config)


def leaves_tests_out(config: pytest.Config) -> bool:
    """Whether an option makes pytest only collect, set up or show something."""
    return any(config.getoption(each, default=False) for each in _WITHOUT_TESTS)


def is_stop(error: BaseException) -> bool:
    """Whether an error stops a run between two tests, as `--stepwise` does after a failure.

    pytest-xdist has its own class for `-x`, which it also raises if an interrupt ended a worker.
    """
    return type(error).__name__ == "Interrupted" and "keyboard-interrupt" not in str(error)


def is_skipped(item: pytest.Item) -> bool:
    """Whether markers skip a test, as far as this is known before it runs."""
    try:
        return evaluate_skip_marks(item) is not None
    except pytest.fail.Exception:
        # An invalid condition fails the test itself.
        return True


def functions_of(test: pytest.Item) -> Iterator[Callable[..., object]]:
    """Yield the function of a test and those of its fixtures, if it is Python code."""
    if isinstance(test, pytest.Function):
        yield test.function
        for fixtures in test._fixtureinfo.name2fixturedefs.values():  # noqa: SLF001
            yield from (fixture.func for fixture in fixtures)


def parameters_of(item: pytest.Item, fixture: str) -> tuple[str, ...]:
    """Return the parameters of a fixture, and of those that it uses, in this test, as texts."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return ()
    known = item._fixtureinfo.name2fixturedefs  # noqa: SLF001
    used, open_names = set[str](), [fixture]
    while open_names:
        name = open_names.pop()
        if name not in used:
            used.add(name)
            open_names += [each for made in known.get(name, ())[-1:] for each in made.argnames]
    callspec = item.callspec
    return tuple(
        _parameter_text(known.get(name, ()), value, callspec.indices.get(name, 0))
        for name, value in callspec.params.items()
        if name in used
    )


def _parameter_text(definitions: Sequence[Any], value: object, index: int) -> str:
    ids = definitions[-1].ids if definitions else None
    if isinstance(ids, Sequence) and index < len(ids) and ids[index] is not None:
        return str(ids[index])
    is_short = value is None or isinstance(value, str | int | float | bool)
    return str(value) if is_short else str(index)


def distributes(config: pytest.Config) -> bool:
    """Whether pytest-xdist runs the tests in workers, or this is one of the workers."""
    is_worker = hasattr(config, "workerinput")
    return is_worker or bool(
        config.getoption("dist", "no") != "no" and config.getoption("tx", None)
    )


class JunitEntries:
    """The entries of tests in JUnit's XML, which hooks cannot change after a test has ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._entries: dict[str, Any] = {}

    def add(self, report: pytest.TestReport) -> None:
        """Keep the entry of a passed test. If a test runs several times, the last one counts."""
        if self._xml is not None and report.when == "call" and report.passed:
            self._entries[report.nodeid] = self._xml.node_reporter(report)

    @property
    def _xml(self) -> Any:  # noqa: ANN401  # not public
        return self._config.stash.get(xml_key, None)

    def fail(self, tests: Mapping[str, str], properties: Mapping[str, str]) -> None:
        """Turn tests into failures, each with its reason, and set these properties."""
        for test, reason in tests.items():
            if test in self._entries:
                self._fail_entry(self._entries[test].to_xml(), reason, properties)

    def _fail_entry(self, entry: ET.Element, reason: str, properties: Mapping[str, str]) -> None:
        for each in entry.iter("property"):
            name = each.get("name", "")
            each.set("value", properties.get(name, each.get("value", "")))
        shown = printable_lines(reason)
        failure = ET.SubElement(entry, "failure", message=shown)
        failure.text = shown
        self._xml.stats["passed"] -= 1
        self._xml.add_stats("failure")


# -- memory that ran out, as one line


@contextmanager
def lack_of_memory_told(
    show: Callable[[ModelPerfError], BaseException] = lambda error: error,
) -> Iterator[None]:
    """Raise the exception that `show` makes of the error if memory runs out in the context."""
    try:
        yield
    except (MemoryError, ImportError) as error:
        lack = find_lack_of_memory(error)
        if lack is None:
            raise
        raise show(lack) from None
