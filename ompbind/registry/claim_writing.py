"""Write claims: a locked file for each, which other runs find complete or not at all."""

import fcntl
import os

from ompbind.planning.occupancy import LiveRun
from ompbind.registry.claim_format import (
    CLAIM_SUFFIX,
    NEW_SUFFIX,
    PREFIX,
    TEXT_LIMIT,
    find_restarts,
    make_text,
    remove_claim,
    render_restarts,
)

_DESCRIPTORS = (700, 240, 60, 20)
"""Preferred descriptors for the claim, or the next free ones: scripts use low numbers (`exec 3>log`)."""


class Claim:
    """A registered claim: the open, locked file, and its path."""

    def __init__(self, file: int, path: str) -> None:
        self._file = file
        self._path = path

    @property
    def name(self) -> str:
        """The name of its file."""
        return os.path.basename(self._path)

    @property
    def directory(self) -> str:
        """The path of the directory of its file."""
        return os.path.dirname(self._path)

    def keep_across_exec(self) -> None:
        """Keep the claim across exec, so that the command holds it for as long as it lives."""
        os.set_inheritable(self._file, True)

    def publish_restarts(self, count: int) -> None:
        """Publish how often ranks of the run were restarted; does nothing on an error, as on a full disk."""
        try:
            text = os.pread(self._file, TEXT_LIMIT, 0).decode()
            os.pwrite(self._file, render_restarts(count).encode(), find_restarts(text))
        except OSError:
            pass

    def release(self) -> None:
        """Remove the claim."""
        remove_claim(self._path)
        try:
            os.close(self._file)
        except OSError:  # already closed
            pass


def write_claim(run: LiveRun, handle: int, directory: str, suffix: str = CLAIM_SUFFIX) -> Claim:
    """Lock and write the claim of a run in an open directory, then give it its final name; raises OSError."""
    stem = f"{PREFIX}{run.uid}-{run.pid}-{os.urandom(4).hex()}"
    file = os.open(stem + NEW_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=handle)
    try:
        _write_locked(file, make_text(run).encode())
        os.rename(stem + NEW_SUFFIX, stem + suffix, src_dir_fd=handle, dst_dir_fd=handle)
        return Claim(_move_descriptor(file), os.path.join(directory, stem + suffix))
    except OSError:
        remove_claim(stem + NEW_SUFFIX, handle)
        raise
    finally:
        os.close(file)


def _write_locked(file: int, data: bytes) -> None:
    """Lock a new file before other users can open it, write it, and make it readable for all users."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    while data:
        data = data[os.write(file, data) :]
    os.fchmod(file, 0o644)


def _move_descriptor(file: int) -> int:
    """Return a duplicate of a descriptor with a high number, which scripts do not use; closed on exec."""
    for lowest in _DESCRIPTORS:
        try:
            return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            pass  # above the limit of open files
    return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)
