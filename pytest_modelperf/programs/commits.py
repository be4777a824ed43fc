"""Find the repository of a program, and the commit of this history that it is judged against.

A stored file can name any commit, so the named one is used only if HEAD contains it. A squashed
merge drops that commit. Then a commit of this history with the same content is used.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile

from pytest_modelperf.baselines.program import ProgramSources, StoredProgram
from pytest_modelperf.errors import BaselineError, UsageError
from pytest_modelperf.files.git import GitAnswer, ask_git
from pytest_modelperf.programs.changes import has_digest
from pytest_modelperf.revisions.commits import LFS_POINTER, Commit, RefOption, find_commit
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list


def top_of(folder: Path) -> Path:
    """Return the top folder of the work tree, or raise UsageError if there is none."""
    answer = ask_git(folder, "rev-parse", "--show-toplevel")
    if answer.code == 0 and answer.output.strip():
        return Path(os.fsdecode(answer.output.removesuffix(b"\n")))
    shown = printable(str(folder))
    if "dubious ownership" in answer.words:
        # git prints the exact command.
        found = re.search(r"git config --global --add safe\.directory .*", answer.words)
        step = printable(found[0].strip()) if found else "git config --global safe.directory FOLDER"
        raise UsageError(
            f"git does not trust the repository of {shown}, because another user owns it. "
            f"Run `{step}`."
        )
    if "not a git repository" in answer.words:
        raise UsageError(
            f"{shown} is not in a git repository, so there is no older version of a program. "
            "Run `git init` there, and commit the program."
        )
    raise UsageError(f"git does not find the work tree of {shown}: {answer.reason}.")


def head_commit(top: Path) -> str:
    """Return the id of the commit that is checked out, or raise UsageError if there is none yet."""
    answer = ask_git(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if answer.code != 0:
        raise UsageError(
            f"the git repository of {printable(str(top))} has no commit yet: commit the program "
            "first."
        )
    return answer.output.decode("ascii").strip()


# The ref that a user gives as `against=`.
AGAINST = RefOption("against", "a branch, a tag or a commit", takes_paths=False)
_FULL_ID = re.compile(r"[0-9a-f]{40,64}")
# Few commits are needed, because a baseline file is seldom written again without a change of its
# program.
_MOST_TRIED = 20
_MOST_NAMED = 3
_RECORD = "`pytest --modelperf --modelperf-update-baseline`"
_UNSHALLOW = (
    "Run `git fetch --unshallow`; in GitHub Actions give actions/checkout `fetch-depth: 0`."
)


def find_against(text: str, top: Path) -> Commit:
    """Return the commit of a ref that the user gave, or raise UsageError if there is none."""
    return find_commit(text, top, AGAINST)


def accepted_commit(stored: StoredProgram, file: Path, top: Path) -> str:
    """Return a commit in HEAD's history that holds the recorded program, or raise BaselineError."""
    if stored.commit is not None and _is_in_history(stored.commit, top):
        return stored.commit
    tried = _commits_of_file(file, top)
    differences = []
    for commit in tried:
        differing = _differing(commit, stored.seen, top)
        if not differing:
            return commit
        differences.append(differing)
    raise _no_commit(stored, file, top, differences[0] if differences else ())


def uncommitted(seen: ProgramSources, top: Path) -> tuple[str, ...]:
    """Return the files that the program read and no commit has, except ignored files."""
    changed = _listed(top, "diff", "--name-only", "--no-renames", "-z", "HEAD")
    untracked = _listed(top, "ls-files", "--others", "--exclude-standard", "-z")
    found = {*changed, *untracked}
    # A submodule or a nested repository is listed by its folder.
    folders = tuple(f"{place.rstrip('/')}/" for place in found)
    return tuple(p for p in _places(seen) if p in found or p.startswith(folders))


def require_committed(seen: ProgramSources, top: Path) -> None:
    """Raise UsageError if no commit could bring back what was measured."""
    head_commit(top)
    files = uncommitted(seen, top)
    if files:
        named = shorten_list([*map(printable, files)], _MOST_NAMED)
        raise UsageError(
            f"the program read files that are not committed: {named}. Commit them first; "
            "--modelperf-uncommitted records it now, and the commit that brings the baseline must "
            "have them."
        )


def ignored_files(seen: ProgramSources, top: Path) -> tuple[str, ...]:
    """Return the files that the program read and git ignores, such as a downloaded model."""
    submodules = tuple(f"{place}/" for place in _gitlinks(top))
    places = [place for place in _places(seen) if not place.startswith(submodules)]
    if not places:
        return ()
    # This command refuses literal paths. A path that starts with `./` has no other meaning.
    given = b"".join(b"./" + os.fsencode(place) + b"\0" for place in places)
    answer = _given_to_git(top, given, "--no-literal-pathspecs", "check-ignore", "-z", "--stdin")
    # Exit code 1 means that none is ignored.
    if answer.code not in (0, 1):
        raise _failed("which files are ignored", answer)
    return tuple(sorted(place.removeprefix("./") for place in _names(answer.output)))


def _places(seen: ProgramSources) -> tuple[str, ...]:
    """Return the files and the models that a program read."""
    models = (model.path for model in seen.models if model.path is not None)
    return tuple(sorted({*seen.files, *models}))


def _is_in_history(commit: str, top: Path) -> bool:
    if not _FULL_ID.fullmatch(commit):
        return False
    # If the commit does not exist, git fails. Then the commit is not contained either.
    return ask_git(top, "merge-base", "--is-ancestor", commit, "HEAD").code == 0


def _commits_of_file(file: Path, top: Path) -> tuple[str, ...]:
    place = os.path.relpath(file.resolve(), top.resolve()).replace(os.sep, "/")
    if place.startswith("../"):
        return ()
    answer = ask_git(
        top, "log", f"--max-count={_MOST_TRIED}", "--no-show-signature", "--format=%H", "HEAD",
        "--", place,
    )  # fmt: skip
    found = answer.output.decode("ascii", "replace").split()
    return tuple(each for each in found if _FULL_ID.fullmatch(each))


def _differing(commit: str, seen: ProgramSources, top: Path) -> tuple[str, ...]:
    """Return the files that differ between a commit and what the program read.

    If a commit has none of the files, it does not have this program, so all files differ. The list
    may end early, because the first few files are enough.
    """
    blobs = _blobs(commit, top)
    known = {place: blobs[place] for place in seen.files if place in blobs}
    if not known:
        return tuple(sorted(seen.files))
    contents = _contents(known, top)
    differing = []
    for place, blob in sorted(known.items()):
        recorded = seen.files[place]
        if not _is_recorded(contents.get(place, b""), recorded):
            # A filter of the user may change the content when git writes the file to the work tree.
            answer = ask_git(top, "cat-file", "--filters", f"--path={place}", blob)
            if answer.code != 0 or not has_digest(answer.output, recorded):
                differing.append(place)
        if len(differing) > _MOST_NAMED:
            break
    return tuple(differing)


def _is_recorded(content: bytes, recorded: str) -> bool:
    """Whether this content in git is the recorded file, or the pointer of Git LFS to it."""
    return has_digest(content, recorded) or (
        content.startswith(LFS_POINTER) and f"\noid sha256:{recorded}\n".encode() in content
    )


def _blobs(commit: str, top: Path) -> Mapping[str, str]:
    answer = ask_git(top, "ls-tree", "-rz", "--full-tree", commit)
    if answer.code != 0:
        raise _failed(f"the files of the commit {commit[:10]}", answer)
    found = {}
    for entry in answer.output.split(b"\0"):
        facts, _, name = entry.partition(b"\t")
        mode, *rest = facts.split(b" ")
        if mode in (b"100644", b"100755"):
            found[os.fsdecode(name)] = rest[-1].decode("ascii")
    return found


def _contents(blobs: Mapping[str, str], top: Path) -> Mapping[str, bytes]:
    requests = "".join(f"{blob}\n" for blob in blobs.values()).encode("ascii")
    answer = _given_to_git(top, requests, "cat-file", "--batch")
    if answer.code != 0:
        raise _failed("the files of a commit", answer)
    return dict(zip(blobs, _batched(answer.output), strict=False))


def _batched(output: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(output):
        end = output.index(b"\n", start)
        words = output[start:end].split(b" ")
        start = end + 1
        if words[-1].isdigit():
            size = int(words[-1])
            yield output[start : start + size]
            start += size + 1
        else:
            # git prints `missing`, for example in a partial clone without a network.
            yield b""


def _no_commit(
    stored: StoredProgram, file: Path, top: Path, differing: tuple[str, ...]
) -> BaselineError:
    shown = printable(str(file))
    if ask_git(top, "rev-parse", "--is-shallow-repository").output.strip() == b"true":
        named = "" if stored.commit is None else f" {stored.commit}"
        return BaselineError(
            f"{shown}: this clone is shallow, so the commit{named} that holds the recorded program "
            f"was not fetched, or cannot be seen to belong to this history. {_UNSHALLOW}"
        )
    if stored.commit is None:
        reason = "it was recorded before its files were committed"
    elif ask_git(top, "cat-file", "-e", f"{stored.commit}^{{commit}}").code == 0:
        reason = f"it names the commit {stored.commit[:10]}, which HEAD does not contain"
    else:
        reason = f"it names the commit {stored.commit[:10]}, which this repository does not have"
    if differing:
        named = shorten_list([*map(printable, differing)], _MOST_NAMED)
        found = f"the commit that added this file has another {named}"
    else:
        found = "no commit in this history added this file"
    return BaselineError(
        f"{shown}: {reason}, and {found}. If it was recorded just now, commit it with the files "
        f"that it lists. Otherwise check out the commit to accept, and record it again with "
        f"{_RECORD}."
    )


def _gitlinks(top: Path) -> tuple[str, ...]:
    entries = ask_git(top, "ls-files", "--stage", "-z").output.split(b"\0")
    links = (entry for entry in entries if entry.startswith(b"160000 "))
    return tuple(os.fsdecode(entry.partition(b"\t")[2]) for entry in links)


def _given_to_git(top: Path, given: bytes, *arguments: str) -> GitAnswer:
    with TemporaryFile() as source:
        source.write(given)
        source.seek(0)
        return ask_git(top, *arguments, source=source)


def _listed(top: Path, *arguments: str) -> tuple[str, ...]:
    answer = ask_git(top, *arguments)
    if answer.code != 0:
        raise _failed(f"`git {shlex.join(arguments)}`", answer)
    return _names(answer.output)


def _names(output: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(name) for name in output.split(b"\0") if name)


def _failed(subject: str, answer: GitAnswer) -> UsageError:
    return UsageError(f"git cannot say {subject}: {answer.reason}.")
