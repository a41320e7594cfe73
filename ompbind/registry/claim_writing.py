"""Write the open file of a claim: at the start, and the number of restarts later."""

import fcntl
import os

from ompbind.registry.claim_format import TEXT_LIMIT, find_restarts, render_restarts

_DESCRIPTORS = (700, 240, 60, 20)
"""Preferred descriptors for the claim, or the next free ones: scripts use low numbers (`exec 3>log`)."""


def write_locked(file: int, data: bytes) -> None:
    """Lock a new file before other users can open it, write it, and make it readable for all users."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    while data:
        data = data[os.write(file, data) :]
    os.fchmod(file, 0o644)


def move_descriptor(file: int) -> int:
    """Return a duplicate of a descriptor with a high number, which scripts do not use; closed on exec."""
    for lowest in _DESCRIPTORS:
        try:
            return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            pass  # above the limit of open files
    return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)


def write_restarts(file: int, count: int) -> None:
    """Write the number of restarts into an open claim; does nothing on an error, as on a full disk."""
    try:
        text = os.pread(file, TEXT_LIMIT, 0).decode()
        os.pwrite(file, render_restarts(count).encode(), find_restarts(text))
    except OSError:
        pass
