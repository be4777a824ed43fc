"""The folder of all baselines: listing and reading them, and writing an update.

    baselines/<model>/model.json      what holds on every machine
    baselines/<model>/twin.onnx       the model without its weights
    baselines/<model>/<machine>.json  what was measured on one kind of machine
    baselines/<test>/program.json     a program, which `program_store` reads and writes

A twin and the `model.json` that names it by its digest are two files, which cannot be replaced in
one step. So a new twin is first written as `twin.next.onnx`, and moved to its place after
`model.json`. A reader in between, or after a writer was killed, finds the twin that fits. Twins
named by their digest would need no second step, but `twin.onnx` is the documented name.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.baselines.changes import plan_removal, plan_update
from pytest_modelperf.baselines.document import (
    is_machine_key,
    read_machine,
    read_model,
    write_machine,
    write_model,
)
from pytest_modelperf.baselines.program import PROGRAM_FILE
from pytest_modelperf.baselines.records import Baseline, MachineBaseline, ModelBaseline, UpdatePlan
from pytest_modelperf.errors import BaselineError, OutputError
from pytest_modelperf.files.documents import DocumentFile
from pytest_modelperf.files.names import is_safe_name
from pytest_modelperf.files.store import (
    LOCK_NAME,
    find_closed,
    locked,
    remove_abandoned,
    unfinished_in,
    write_file,
)
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable

MODEL_FILE = "model.json"
TWIN_FILE = "twin.onnx"
_NEXT_TWIN = "twin.next.onnx"
_REMOVED = ".removed-"
_LFS_POINTER = b"version https://git-lfs"
# The largest files that are read. A machine's file has about 50 kB for each case.
_MAX_JSON_BYTES = 64 << 20
_MAX_TWIN_BYTES = 256 << 20


class BaselineStore(Struct, frozen=True):
    """The baselines in a folder, which need not exist yet.

    A reader that meets a writer starts over. After `attempts` tries, the files count as broken.
    """

    root: Path
    attempts: int = 20

    def names(self, file: str = MODEL_FILE) -> tuple[str, ...]:
        """Return the folders of all models with a baseline, or of all with another `file`."""
        try:
            found = sorted(path.name for path in self.root.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unreadable(error) from None
        return tuple(n for n in found if is_safe_name(n) and _is_there(self.root / n / file))

    def read(self, name: str, machines: Sequence[str] | None = None) -> Baseline | None:
        """Read the baseline of a model with its measurements on these machines, or on all if None.

        Returns None if the model has no baseline. Readers take no lock and block no other process.
        """
        folder = self.folder(name)
        for _ in range(self.attempts):
            data = _content(folder / MODEL_FILE)
            if data is None:
                if _is_incomplete(folder):
                    continue
                return None
            model = read_model(data, folder / MODEL_FILE)
            twin = _read_twin(folder, model)
            if twin is None and model.twin is not None:
                continue
            keys = machine_keys(folder) if machines is None else machines
            found = (_read_machine(folder, key) for key in keys)
            kept = tuple(machine for machine in found if machine is not None)
            return Baseline(name=name, model=model, twin=twin, machines=kept)
        if data is None:
            raise BaselineError(
                f"{printable(str(folder))} has no {MODEL_FILE}, which the other files "
                "need. Restore it from version control, or delete the folder."
            )
        raise _wrong_twin(folder)

    def check_writable(self) -> None:
        """Raise an OutputError if nothing can be stored, before minutes are spent on measuring."""
        closed = find_closed(self.root)
        if closed is not None:
            raise OutputError(
                f"no baseline can be stored in {printable(str(self.root))}: "
                f"{printable(str(closed))} is not a folder, or cannot be written. Make it one that "
                "can be, or give another with --modelperf-baseline-dir."
            )

    def apply(self, plan: UpdatePlan) -> UpdatePlan:
        """Write a plan, and return the changes that were made.

        The update is planned again from the content stored by then, so that concurrent writers of
        other cases lose nothing. Without a change no file is written.
        """
        folder = self.folder(plan.name)
        if plan.is_empty and not _has_leftovers(self.root, folder):
            return plan
        with self.changing(folder):
            return self._apply(plan, folder)

    @contextlib.contextmanager
    def changing(self, folder: Path) -> Iterator[None]:
        """Hold the lock to change the baseline in a folder, and turn OSErrors into OutputErrors."""
        try:
            with locked(self.root):
                yield
        except OSError as error:
            place = printable(str(error.filename or folder))
            reason = error.strerror or str(error)
            raise OutputError(
                f"the baseline in {printable(str(folder))} could not be written: {place}: "
                f"{reason}. No file was left half written. Make room, or make the folder "
                "writable, or give another with --modelperf-baseline-dir."
            ) from error

    def tidy(self) -> None:
        """Finish or revert the updates of killed writers, unless a writer is active.

        Files that cannot be written, such as those in another user's checkout, stay as they are.
        """
        with contextlib.suppress(OSError, BaselineError, OutputError):
            found = [*self.root.iterdir()]
            named = [path for path in found if is_safe_name(path.name)]
            folders = [path for path in named if path.is_dir() and not path.is_symlink()]
            is_unfinished = (_is_unfinished(self.root, folder) for folder in folders)
            if any(map(_is_removed, found)) or any(is_unfinished):
                with locked(self.root, seconds=0.0):
                    self._remove_remains()
                    for folder in folders:
                        _settle(folder)

    def _apply(self, plan: UpdatePlan, folder: Path) -> UpdatePlan:
        self._remove_remains()
        _settle(folder)
        recording = plan.recording
        if recording is not None:
            keys = () if recording.machine is None else (recording.machine.key,)
            now = plan_update(self.read(plan.name, keys), recording)
        elif (stored := self.read(plan.name)) is not None:
            ids = None if plan.after is None else plan.removed
            now = plan_removal(stored, ids)
        else:
            return plan
        if now.is_empty:
            return now
        if now.after is None:
            self._remove(folder)
        else:
            is_new = not folder.exists()
            try:
                _write(folder, now.before, now.after)
            except OSError:
                # If this fails, too, the next writer does it.
                with contextlib.suppress(OSError, BaselineError):
                    if is_new:
                        self._remove(folder)
                    else:
                        _settle(folder)
                raise
        return now

    def folder(self, name: str) -> Path:
        """Return the folder of a model or program, or raise BaselineError if it is outside."""
        if not is_safe_name(name):
            raise BaselineError(
                f'"{printable(name)}" is not a name for a baseline: it could lead out of '
                f"{printable(str(self.root))}. Rename the folder after its model or test."
            )
        folder = self.root / name
        try:
            is_link = folder.is_symlink()
        except OSError as error:
            raise self._unreadable(error) from None
        if is_link:
            raise BaselineError(
                f"{printable(str(folder))} is a link, which could lead anywhere. "
                "Put the folder itself there."
            )
        return folder

    def _unreadable(self, error: OSError) -> BaselineError:
        return BaselineError(
            f"{printable(str(self.root))} cannot be read as a folder of baselines: "
            f"{error.strerror}. Give another with --modelperf-baseline-dir."
        )

    def _remove(self, folder: Path) -> None:
        """Rename a folder in one step, and then delete it."""
        folder.rename(self.root / f"{_REMOVED}{secrets.token_hex(4)}")
        FILES.sync_folder(self.root)
        self._remove_remains()

    def _remove_remains(self) -> None:
        for path in list(self.root.iterdir()):
            if _is_removed(path):
                shutil.rmtree(path)


def machine_keys(folder: Path) -> tuple[str, ...]:
    names = sorted(name for name in _names_in(folder) if name.endswith(".json"))
    keys = [name.removesuffix(".json") for name in names if name != MODEL_FILE]
    for key in keys:
        if not is_machine_key(key):
            raise BaselineError(
                f"{printable(str(folder / key))}.json is not named after a machine. "
                "Remove it, or rename it as the key in it says."
            )
    return tuple(keys)


def _is_incomplete(folder: Path) -> bool:
    names = (name for name in _names_in(folder) if name != PROGRAM_FILE)
    return any(name == TWIN_FILE or name.endswith(".json") for name in names)


def _names_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BaselineError(
            f"{printable(str(folder))} cannot be read as a folder: {error.strerror}. "
            "Remove it, or give another with --modelperf-baseline-dir."
        ) from None


def _is_there(path: Path) -> bool:
    """Whether the path exists or cannot be read. Reading it reports the error."""
    try:
        return path.exists()
    except OSError:
        return True


def _read_machine(folder: Path, key: str) -> MachineBaseline | None:
    path = _machine_path(folder, key)
    data = _content(path)
    return None if data is None else read_machine(data, path)


def _content(path: Path, most_bytes: int = _MAX_JSON_BYTES) -> bytes | None:
    return DocumentFile(path).content(most_bytes)


def _machine_path(folder: Path, key: str) -> Path:
    if not is_machine_key(key):
        raise BaselineError(
            f'"{printable(key)}" is not the key of a machine: it cannot name a file in '
            f"{printable(str(folder))}. A key reads like linux-x86_64-icelake-2c."
        )
    return folder / f"{key}.json"


def _read_twin(folder: Path, model: ModelBaseline) -> bytes | None:
    """Return the twin that belongs to this `model.json`, or None without a fitting file."""
    if model.twin is None:
        return None
    for name in (TWIN_FILE, _NEXT_TWIN):
        data = _content(folder / name, _MAX_TWIN_BYTES)
        if data is not None and hashlib.sha256(data).hexdigest() == model.twin.sha256:
            return data
    return None


def _wrong_twin(folder: Path) -> BaselineError:
    path = folder / TWIN_FILE
    data = _content(path, _MAX_TWIN_BYTES)
    if data is not None and data.startswith(_LFS_POINTER):
        return BaselineError(
            f"{printable(str(path))} is a Git LFS pointer, not the twin: run `git lfs pull`. Twins "
            "are small: `modelperf init` writes the line that keeps them out of Git LFS."
        )
    found = "is missing," if data is None else "is not the one"
    return BaselineError(
        f"{printable(str(path))} {found} that {MODEL_FILE} names by its sha256. Take both files "
        "from the same commit (`git checkout COMMIT -- FOLDER`), or record the model again with "
        "`pytest --modelperf --modelperf-update-baseline` after deleting the folder."
    )


def _has_leftovers(root: Path, folder: Path) -> bool:
    is_removing = root.is_dir() and any(map(_is_removed, root.iterdir()))
    return is_removing or _is_unfinished(root, folder)


def _is_removed(path: Path) -> bool:
    """Whether a writer is removing this folder, or was when it was killed."""
    return path.name.startswith(_REMOVED)


def _is_unfinished(root: Path, folder: Path) -> bool:
    named = (folder / _NEXT_TWIN, root / LOCK_NAME)
    return any(path.exists() for path in named) or bool(unfinished_in(folder))


def _settle(folder: Path) -> None:
    """Finish or revert the update of a killed writer."""
    if not folder.exists():
        return
    remove_abandoned(folder)
    data = _content(folder / MODEL_FILE)
    model = None if data is None else read_model(data, folder / MODEL_FILE)
    coming = _content(folder / _NEXT_TWIN, _MAX_TWIN_BYTES)
    if coming is not None:
        digest = hashlib.sha256(coming).hexdigest()
        if model is not None and model.twin is not None and model.twin.sha256 == digest:
            (folder / _NEXT_TWIN).replace(folder / TWIN_FILE)
        else:
            (folder / _NEXT_TWIN).unlink()
        FILES.sync_folder(folder)
    elif model is not None and model.twin is None:
        (folder / TWIN_FILE).unlink(missing_ok=True)


def _write(folder: Path, before: Baseline | None, after: Baseline) -> None:
    """Write the files that differ. At any moment, every file is an old or a new one."""
    # Everything is encoded and read back before the first file is written.
    contents = _contents(folder, before, after)
    if not folder.exists():
        folder.mkdir()
        FILES.sync_folder(folder.parent)
    model_before = None if before is None else before.model
    twin_changed = model_before is None or model_before.twin != after.model.twin
    if twin_changed and after.twin is not None:
        write_file(folder / _NEXT_TWIN, after.twin)
    if after.model != model_before:
        write_file(folder / MODEL_FILE, contents[folder / MODEL_FILE])
    if twin_changed:
        if after.twin is not None:
            (folder / _NEXT_TWIN).replace(folder / TWIN_FILE)
        else:
            (folder / TWIN_FILE).unlink(missing_ok=True)
        FILES.sync_folder(folder)
    for path, content in contents.items():
        if path.name != MODEL_FILE:
            write_file(path, content)
    kept = {machine.key for machine in after.machines}
    for machine in before.machines if before is not None else ():
        if machine.key not in kept:
            _machine_path(folder, machine.key).unlink()


def _contents(folder: Path, before: Baseline | None, after: Baseline) -> dict[Path, bytes]:
    contents: dict[Path, bytes] = {}
    if before is None or before.model != after.model:
        path = folder / MODEL_FILE
        data = write_model(after.model)
        _check_again(read_model(data, path) == after.model, path)
        contents[path] = data
    for machine in after.machines:
        if before is None or before.machine(machine.key) != machine:
            path = _machine_path(folder, machine.key)
            data = write_machine(machine)
            _check_again(read_machine(data, path) == machine, path)
            contents[path] = data
    return contents


def _check_again(is_equal: bool, path: Path) -> None:  # noqa: FBT001  # what it checks
    if not is_equal:
        raise BaselineError(
            f"{printable(str(path))} would not be read as it was written, so it was not written. "
            "Report this with the plan that was shown."
        )
