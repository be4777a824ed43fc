"""Code that the package never has: looked for in its syntax, with each exception named.

Models, baselines and profiles come with the changes of strangers. Nothing that they hold may become
code, a command, an object of a class that they name, or the name of a module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import pytest_modelperf

PACKAGE = Path(pytest_modelperf.__file__).parent

# Functions, and methods of any object, that run code or commands or import by a name, and
# `mktemp`, whose name another process can take first.
CALLS = frozenset({
    "CDLL", "Popen", "__import__", "compile", "eval", "exec", "execv", "execve", "execvp",
    "getoutput", "getstatusoutput", "import_module", "mktemp", "os.popen", "os.system",
    "resolve_name", "run_module", "run_path", "spawnv", "spec_from_file_location",
})  # fmt: skip
MODULES = frozenset({
    "cloudpickle", "code", "codeop", "ctypes", "dill", "joblib", "marshal", "pickle", "runpy",
    "shelve", "subprocess", "yaml",
})  # fmt: skip

# The exceptions: file, what it has, and why input from outside does not reach it.
ALLOWED: Mapping[tuple[str, str], str] = {
    ("__init__.py", "import_module"): "a public name of ours, when it is asked for",
    ("bisect/versions.py", "subprocess"): "pip, with a checked name and no shell",
    ("environments/installing.py", "subprocess"): "uv and pip, with requirements that were parsed",
    ("environments/installing.py", "Popen"): "the same",
    ("files/git.py", "subprocess"): "git, with a list of arguments and no shell",
    ("files/git.py", "Popen"): "the same",
    ("cluster/runner.py", "eval"): "a text of ours, which a machine runs to find our function",
    ("cluster/station.py", "resolve_name"): "what a client asks, whom Dask lets run anything",
    ("cluster/cluster.py", "resolve_name"): "the same",
    ("cli/main.py", "import_module"): "the module of a command of ours",
    ("profiler/hookspecs.py", "import_module"): "a plugin that the command line names",
    ("programs/callables.py", "import_module"): "the module of an engine, ours or a plugin's",
    ("programs/sides.py", "subprocess"): "this Python, with the test that the user runs",
    ("programs/sides.py", "Popen"): "the same",
    ("programs/trees.py", "spec_from_file_location"): "the user's own module, in an older commit",
    ("programs/station/served.py", "pickle"): "the result of the user's own function",
    ("profiler/measured_cases.py", "import_module"): "the module of a function that the test gave",
    ("profiler/engines/callable.py", "import_module"): "a function that the user names",
    ("profiler/engines/source.py", "marshal"): "the same, to be sent",
    ("profiler/machine/hardware.py", "subprocess"): "sysctl, with fixed arguments",
    ("profiler/worker/endings.py", "subprocess"): "the type of a process that was started",
    ("profiler/worker/endings.py", "Popen"): "the same",
    ("profiler/worker/gateway.py", "subprocess"): "the interpreter of a gateway",
    ("profiler/worker/gateway.py", "Popen"): "the same",
    ("profiler/worker/starter.py", "compile"): "our agent, and an engine, ours or a plugin's",
    ("profiler/worker/starter.py", "exec"): "the same",
    ("profiler/worker/starter.py", "marshal"): "the same, compiled by the process that starts this",
    ("profiler/worker/starter.py", "pickle"): "plain values: what would run anything is refused",
    ("testing/case_budgets.py", "import_module"): "the module of a function that a budget names",
    ("profiler/worker/inline.py", "import_module"): "the module of an engine, ours or a plugin's",
    ("obtaining/origins.py", "import_module"): "onnx_ir, by a fixed name",
    ("files/opened.py", "import_module"): "resource, which Windows lacks",
    ("systems/kernel32.py", "CDLL"): "a library of Windows by a fixed name",
    ("systems/kernel32.py", "ctypes"): "the same, for what Python lacks there",
    ("systems/process.py", "CDLL"): "the C library of this process, by no name",
    ("systems/process.py", "ctypes"): "the same, for prctl, and structures for Windows",
    ("systems/process.py", "import_module"): "resource, which Windows lacks",
    ("systems/files.py", "import_module"): "msvcrt, which only Windows has",
    ("systems/trees.py", "ctypes"): "structures of the library of Windows",
    ("systems/trees.py", "subprocess"): "a flag for those who start a program",
    ("tracing/autostart.py", "exec"): "a text of ours, for the exit status of an interrupt",
    ("tracing/program_trace.py", "import_module"): "the module of a built-in engine",
    ("tracing/launch.py", "subprocess"): "the program that the command line names",
    ("tracing/launch.py", "Popen"): "the same",
    ("tracing/spool.py", "marshal"): "records that this process wrote into its own folder",
}

# A file without any of these words needs not be parsed.
_MENTIONED = re.compile(
    rf"(?<!\bre\.)\b(?:{'|'.join(sorted(CALLS | MODULES)).replace('.', chr(92) + '.')}|"
    r"allow_pickle|shell|load)\b"
)


def test_files_that_are_read_never_run() -> None:
    sources = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    found = {
        (path.relative_to(PACKAGE).as_posix(), use)
        for path, source in sources.items()
        if _MENTIONED.search(source)
        for use in dangerous_uses(source)
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("import pickle", ["pickle"]),
        ("import os.path, yaml.loader", ["yaml"]),
        ("from subprocess import run", ["subprocess"]),
        ("def f():\n    import marshal as m", ["marshal"]),
        ("eval(x)", ["eval"]),
        ("importlib.import_module(x)", ["import_module"]),
        ("tempfile.mktemp()", ["mktemp"]),
        ("os.system(x)", ["os.system"]),
        ("f = exec", ["exec"]),
        ("getattr(builtins, 'eval')(x)", ["eval"]),
        ("f(x, shell=True)", ["shell=True"]),
        ("np.load(x, allow_pickle=True)", ["allow_pickle=True"]),
        ("np.load(x)", ["load without allow_pickle=False"]),
        ("np.load(x, allow_pickle=False)", []),
        ("re.compile(x)", []),
        ("platform.system()", []),
    ],
)
def test_the_search_finds_each_way(source: str, uses: list[str]) -> None:
    assert list(dangerous_uses(source)) == uses
    assert _MENTIONED.search(source) or not uses


def dangerous_uses(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name for a in node.names if (name := a.name.split(".")[0]) in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from {node.module.split(".")[0]} & MODULES
        elif isinstance(node, ast.Name):
            yield from {node.id} & CALLS
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            yield from {node.attr, f"{owner}.{node.attr}"} & CALLS if owner != "re" else ()
        elif isinstance(node, ast.Call):
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[str]:
    given = {word.arg: word.value for word in node.keywords}
    for name in ("allow_pickle", "shell"):
        value = given.get(name)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
            yield f"{name}={ast.unparse(value)}"
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == "load":
        if ast.unparse(function.value) in {"np", "numpy"} and "allow_pickle" not in given:
            yield "load without allow_pickle=False"
    elif isinstance(function, ast.Name) and function.id == "getattr" and len(node.args) > 1:
        name_of_it = node.args[1]
        if isinstance(name_of_it, ast.Constant) and name_of_it.value in CALLS:
            yield str(name_of_it.value)


# Functions that make markup or code of a text, in a page.
_IN_SCRIPTS = re.compile(
    r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|write(?:ln)?\(|eval\(|new Function|srcdoc|"
    r"createContextualFragment|setAttribute\(\"on|import\()"
)
_IN_TEMPLATES = re.compile(r"\|\s*safe\b|autoescape\s+false")


def test_a_page_makes_no_markup_of_a_text() -> None:
    found = [
        (path.name, match[0])
        for path in (*PACKAGE.rglob("*.js"), *PACKAGE.rglob("*.html"))
        for pattern in (_IN_SCRIPTS, _IN_TEMPLATES)
        for match in pattern.finditer(path.read_text("utf-8"))
    ]
    assert found == []
    assert _IN_SCRIPTS.search("body.innerHTML = name")
    assert _IN_TEMPLATES.search("{{ name | safe }}")
