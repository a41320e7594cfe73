"""Read the claims in a directory that all users can write to: bounded work, and no file is trusted.

Only regular, locked files with a single name are read. The claims and bytes of each other user are limited,
so that no user can slow down the runs of others. Files that look like claims but do not count are named.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Collection, Sequence

from ompbind.cpuset import count
from ompbind.planning.occupancy import NAMED_RUNS, LiveRun
from ompbind.record import Record
from ompbind.registry.claim_format import NEW_SUFFIX, TEXT_LIMIT, parse_text, remove_claim
from ompbind.text import clean_name

NEW_FILE_LIMIT_S = 60.0  # seconds after which a .new file counts as old
USER_CLAIMS_LIMIT = 1024  # claims of another user that are read
USER_BYTES_LIMIT = 1 << 20  # bytes of these claims; a usual claim has a few hundred


class ClaimList(Record):
    """The live runs of a directory, oldest first, and the claims that do not count: (file name, why).

    `names` are the files of the runs, in the same order.
    """

    runs: tuple[LiveRun, ...] = ()
    names: tuple[str, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()


def read_claims(handle: int, names: Collection[str], *, with_ranks: bool = True) -> ClaimList:
    """Read claims in an open directory, and remove stale claims; `with_ranks` reads single ranks too."""
    found: list[tuple[LiveRun, str]] = []
    ignored: list[tuple[str, str]] = []
    limits = _UserLimits()
    for name in sorted(names):
        try:
            text, uid = _read_claim(name, handle, limits)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError as error:
            ignored.append((name, error.strerror or str(error)))
            continue
        run = parse_text(text, uid, with_ranks=with_ranks)
        if run:
            found.append((run, name))
        elif uid >= 0:
            ignored.append((name, f"no valid claim, of user {uid}"))
    found.sort(key=lambda pair: (pair[0].started, pair[0].pid))
    return ClaimList(
        runs=tuple(run for run, _ in found), names=tuple(name for _, name in found), ignored=tuple(ignored)
    )


def render_ignored(ignored: Sequence[tuple[str, str]], directory: str) -> str:
    """Return one sentence that names the claims that do not count; "" if there is none."""
    if not ignored:
        return ""
    named = [f"{clean_name(name)} ({why})" for name, why in ignored[:NAMED_RUNS]]
    more = [f"{len(ignored) - NAMED_RUNS} more"] if len(ignored) > NAMED_RUNS else []
    verb = "does" if len(ignored) == 1 else "do"
    return f"{count(len(ignored), 'claim')} in {directory} {verb} not count: {', '.join(named + more)}"


class _UserLimits:
    """The number and the bytes of the claims of each user, which are limited."""

    def __init__(self) -> None:
        self._claims: dict[int, int] = {}
        self._bytes: dict[int, int] = {}

    def add(self, status: os.stat_result) -> None:
        """Add a claim; raises OSError if another user has too many, as the claim does not count then."""
        uid = status.st_uid
        self._claims[uid] = self._claims.get(uid, 0) + 1
        self._bytes[uid] = self._bytes.get(uid, 0) + status.st_size
        is_too_much = self._claims[uid] > USER_CLAIMS_LIMIT or self._bytes[uid] > USER_BYTES_LIMIT
        if is_too_much and uid != os.geteuid():  # own claims that are stale must be removed
            raise OSError(errno.EDQUOT, f"user {uid} has too many or too long claims")


_STALE = "", -1


def _read_claim(name: str, handle: int, limits: _UserLimits) -> tuple[str, int]:
    """Return the text of a claim and its owner; _STALE if it is incomplete, or stale (and then removed).

    Raises OSError for a file that cannot be read, or that is no claim.
    """
    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    is_new = name.endswith(NEW_SUFFIX)
    if is_new and status.st_mtime > time.time() - NEW_FILE_LIMIT_S:  # may not be locked yet
        return _STALE
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"not a regular file, of user {status.st_uid}")
    if status.st_nlink != 1:
        raise OSError(errno.EINVAL, f"a file with several names, of user {status.st_uid}")
    if status.st_size > TEXT_LIMIT:
        raise OSError(errno.EFBIG, f"too long, of user {status.st_uid}")
    limits.add(status)
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=handle)
    except PermissionError:
        if is_new:  # others may read a claim only once it is complete
            return _STALE
        raise
    try:
        if try_lock(file, fcntl.LOCK_SH):
            remove_claim(name, handle)
            return _STALE
        return os.read(file, TEXT_LIMIT).decode("utf-8", "replace"), os.fstat(file).st_uid
    finally:
        os.close(file)


def try_lock(file: int, how: int) -> bool:
    """Lock a file if no other process has locked it; return whether it is locked now."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
