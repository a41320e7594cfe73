"""Claims as files: their text, and how they are read and written in a directory that all users can write to.

    ompbind-run 2
    run serve
    pid 4711
    held 0-7
    restarts 000000000000
    exit ---
    rank 0 0-3
    rank 1 4-7

The number of restarts changes while the run lives, and the exit code is set at its end. They always have the
same length, so that they are written in place: a reader finds a valid claim at any moment.

No file is trusted, and the work is bounded: only regular, locked files with a single name are read, and the
claims and bytes of each other user are limited. Files that look like claims but do not count are named.
"""

import errno
import fcntl
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from ompbind.cpuset import CpuSet
from ompbind.machine.model import MAX_CPUS
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.request import Hold
from ompbind.record import Record
from ompbind.text import clean_line, clean_name, whole_number

HEAD = "ompbind-run 2"
"""The first line of every claim, with the version of the format, and of the plans that ranks agree on."""

TEXT_LIMIT = 1 << 17  # bytes of a claim: what a rank on every CPU of the largest machine needs
RANKS_LIMIT = MAX_CPUS  # ranks that are listed: one for each CPU of the largest machine
FILES_LIMIT = 10_000  # files with names of claims; more are an attack or a mistake
ENTRIES_LIMIT = 1 << 18  # files of any name in the directory
USER_CLAIMS_LIMIT = 1024  # claims of another user that are read
USER_BYTES_LIMIT = 1 << 20  # bytes of these claims; a usual claim has a few hundred

_RANK_LINE, _RESTART_DIGITS, _NO_EXIT = "\nrank ", 12, "---"
_GROUPS_LIMIT = 1 << 12  # characters of the names of groups
_SET_LIMIT = 5 * MAX_CPUS // 2  # characters of a set: every second CPU of the largest machine

_PREFIX = "ompbind-"
CLAIM_SUFFIX, NEW_SUFFIX, WAITING_SUFFIX = ".run", ".new", ".wait"
"""The ends of names: of claims, of files that are being written, and of runs that wait for CPUs."""

CLAIM_SUFFIXES = (CLAIM_SUFFIX, NEW_SUFFIX)


def _parse_number(text: str) -> int:
    if (number := whole_number(text)) is None:
        raise ValueError(f"{text!r} is not a number")
    return number


def _parse_cpus(text: str) -> CpuSet:
    """Parse a set without strides: runs write none, and a short stride can name very many CPUs."""
    if ":" in text or len(text) > _SET_LIMIT:
        raise ValueError(f"{text!r} has a stride, or is too long")
    cpus = CpuSet.from_list(text)
    if cpus.bits.bit_length() > MAX_CPUS:
        raise ValueError("CPUs past the highest possible one")
    return cpus


_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "run": ("run_id", lambda text: clean_name(text or "?")),
    "pid": ("pid", _parse_number),
    "pid_space": ("pid_space", _parse_number),
    "started": ("started", _parse_number),
    "inside": ("parent_run_id", clean_name),
    "held": ("claimed", _parse_cpus),
    "avoided": ("avoided", _parse_cpus),
    "bind": ("bind", clean_name),
    "hold": ("hold", lambda text: Hold(text) if text in set(Hold) else None),
    "configuration": ("configuration", clean_name),
    "division": ("division", clean_name),
    "groups": ("groups", lambda text: clean_line(text[:_GROUPS_LIMIT])),
    "wanted": ("wanted", _parse_cpus),
    "grace": ("grace_s", _parse_number),
    "session": ("is_session", lambda text: text == str(True)),
}
"""Key of a line → field of `LiveRun` and its parser; lines of ranks and of restarts are not included."""


def make_text(run: LiveRun) -> str:
    """Return the text of a run; lines of single ranks are left out if there are thousands."""
    head = [HEAD, *(f"{key} {getattr(run, name)}" for key, (name, _) in _FIELDS.items())]
    head += [f"restarts {_render_restarts(run.restarts)}", f"exit {_NO_EXIT}"]
    ranks = [f"rank {rank} {cpus}" for rank, cpus in run.ranks]
    text = "\n".join([*head, *ranks, ""])
    fits = len(ranks) <= RANKS_LIMIT and len(text.encode()) <= TEXT_LIMIT
    return text if fits else "\n".join([*head, ""])


def _render_restarts(count: int) -> str:
    return f"{min(count, 10**_RESTART_DIGITS - 1):0{_RESTART_DIGITS}d}"


def parse_text(text: str, uid: int, *, with_ranks: bool = True) -> LiveRun | None:
    """Return the run in a text that the user `uid` has written; None if the text is not a valid claim.

    Without `with_ranks` the lines of ranks are not parsed.
    """
    if not with_ranks and text.endswith("\n"):
        text = text.partition(_RANK_LINE)[0].rstrip("\n") + "\n"
    head, *lines = text.split("\n")
    if head != HEAD or not text.endswith("\n") or text.count(_RANK_LINE) > RANKS_LIMIT:
        return None
    pairs = [line.split(" ", 1) for line in lines if " " in line]
    values = dict(pairs)
    try:
        fields = {name: parse(values[key]) for key, (name, parse) in _FIELDS.items() if key in values}
        parts = (value.partition(" ") for key, value in pairs if key == "rank")
        ranks = tuple((_parse_number(number), _parse_cpus(cpus)) for number, _, cpus in parts)
        restarts = _parse_number(values.get("restarts", "0"))
        return LiveRun(uid=uid, ranks=ranks, restarts=restarts, **fields)
    except (TypeError, ValueError):  # a field is missing or invalid
        return None


def list_claims(handle: int, suffixes: tuple[str, ...] = CLAIM_SUFFIXES) -> frozenset[str]:
    """Return the file names of the claims in an open directory; raises OSError (EOVERFLOW) for too many."""
    names: list[str] = []
    with os.scandir(handle) as entries:
        for number, entry in enumerate(entries):  # in pieces: other users may have filled the directory
            if entry.name.startswith(_PREFIX) and entry.name.endswith(suffixes):
                names.append(entry.name)
            if len(names) > FILES_LIMIT:
                raise OSError(errno.EOVERFLOW, "too many claims")
            if number >= ENTRIES_LIMIT:
                raise OSError(errno.EOVERFLOW, "too many files")
    return frozenset(names)


class ClaimList(Record):
    """The live runs of a directory, oldest first, their files, and the claims that do not count, with why."""

    runs: tuple[LiveRun, ...] = ()
    names: tuple[str, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()


def read_claims(handle: int, names: Collection[str], *, with_ranks: bool = True) -> ClaimList:
    """Read claims in an open directory, and remove stale claims; `with_ranks` reads single ranks too."""
    found: list[tuple[LiveRun, str]] = []
    ignored: list[tuple[str, str]] = []
    claims, sizes = Counter[int](), Counter[int]()  # of each user
    for name in sorted(names):
        try:
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            uid = status.st_uid
            _check_file(status)
            claims[uid] += 1
            sizes[uid] += status.st_size
            is_too_much = claims[uid] > USER_CLAIMS_LIMIT or sizes[uid] > USER_BYTES_LIMIT
            if is_too_much and uid != os.geteuid():  # own claims that are stale must be removed
                raise OSError(errno.EDQUOT, f"user {uid} has too many or too long claims")
            text, uid = _read_claim(name, handle)
            if text is not None:
                run = parse_text(text, uid, with_ranks=with_ranks)
                if run is None:
                    raise OSError(errno.EINVAL, f"no valid claim, of user {uid}")
                found.append((run, name))
        except FileNotFoundError:
            pass  # removed meanwhile
        except OSError as error:
            if not (name.endswith(NEW_SUFFIX) and isinstance(error, PermissionError)):  # incomplete
                ignored.append((name, error.strerror or str(error)))
    found.sort(key=lambda pair: (pair[0].started, pair[0].pid))
    runs, kept = tuple(run for run, _ in found), tuple(name for _, name in found)
    return ClaimList(runs=runs, names=kept, ignored=tuple(ignored))


def _check_file(status: os.stat_result) -> None:
    reasons = {
        "not a regular file": not stat.S_ISREG(status.st_mode),
        "a file with several names": status.st_nlink != 1,
        "too long": status.st_size > TEXT_LIMIT,
    }
    if why := next((why for why, is_so in reasons.items() if is_so), ""):
        raise OSError(errno.EINVAL, f"{why}, of user {status.st_uid}")


_NEW_NAME = rf"{_PREFIX}\d+-\d+-[0-9a-f]{{8}}{re.escape(NEW_SUFFIX)}"
"""The name of a claim that is being written, which may be empty; an expression that is rarely needed."""


def _read_claim(name: str, handle: int) -> tuple[str | None, int]:
    """Return the text of a claim and its owner; None if it is stale, or being written.

    A stale claim of this user is removed.
    """
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=handle)
    try:
        is_stale, uid = try_lock(file, fcntl.LOCK_SH), os.fstat(file).st_uid
        text = os.read(file, TEXT_LIMIT).decode("utf-8", "replace")
        if not is_stale:
            return None if name.endswith(NEW_SUFFIX) else text, uid
        # other files may only have such a name
        if uid == os.geteuid() and (text.startswith(HEAD) or re.fullmatch(_NEW_NAME, name)):
            _remove(name, handle)
        return None, uid
    finally:
        os.close(file)


def try_lock(file: int, how: int) -> bool:
    """Lock a file if no other process has locked it; return whether it is locked now."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def keep_locked(file: int) -> bool:
    """Lock a new file while it is open; False if it was removed first, as of a killed process.

    Raises OSError if the file system has no locks.
    """
    return try_lock(file, fcntl.LOCK_EX) and os.fstat(file).st_nlink > 0


def _remove(path: str, handle: int | None = None) -> None:
    """Remove the file of a claim, unless it is removed already, or belongs to another user."""
    with suppress(OSError):
        os.unlink(path, dir_fd=handle)


class Claim:
    """A registered claim: the open, locked file, its directory and its name."""

    def __init__(self, file: int, directory: str, name: str) -> None:
        self._file = file
        self._directory = directory
        self.name = name

    def keep_across_exec(self) -> None:
        """Keep the claim across exec, so that the command holds it for as long as it lives."""
        os.set_inheritable(self._file, True)

    def publish_restarts(self, count: int) -> None:
        """Publish how often ranks of the run were restarted."""
        self._publish("\nrestarts ", _render_restarts(count))

    def publish_exit(self, code: int) -> None:
        """Publish the exit code of the run before its release, for processes that have opened the claim."""
        self._publish("\nexit ", f"{code:0{len(_NO_EXIT)}d}")

    def _publish(self, start: str, value: str) -> None:
        with suppress(OSError):  # as on a full disk
            text = os.pread(self._file, TEXT_LIMIT, 0)
            os.pwrite(self._file, value.encode(), text.index(start.encode()) + len(start))

    def release(self) -> None:
        """Remove the claim."""
        _remove(os.path.join(self._directory, self.name))
        with suppress(OSError):  # already closed
            os.close(self._file)


_DESCRIPTORS = (700, 240, 60, 20, 3)  # preferred for the claim: scripts use low numbers (`exec 3>log`)


def write_claim(run: LiveRun, handle: int, directory: str, suffix: str = CLAIM_SUFFIX) -> Claim:
    """Lock and write the claim of a run in an open directory, then give it its final name; raises OSError."""
    stem = f"{_PREFIX}{run.uid}-{run.pid}-{os.urandom(4).hex()}"
    file = os.open(stem + NEW_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=handle)
    try:
        data = make_text(run).encode()
        if not keep_locked(file):  # before other users can open it
            _remove(stem + NEW_SUFFIX, handle)
            return write_claim(run, handle, directory, suffix)
        while data:
            data = data[os.write(file, data) :]
        os.fchmod(file, 0o644)
        os.rename(stem + NEW_SUFFIX, stem + suffix, src_dir_fd=handle, dst_dir_fd=handle)
        for lowest in _DESCRIPTORS:
            try:
                return Claim(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest), directory, stem + suffix)
            except OSError as error:  # above the limit of open files
                last = error
        raise last
    except OSError:
        _remove(stem + NEW_SUFFIX, handle)
        raise
    finally:
        os.close(file)


def open_claim(path: str) -> int:
    """Open the claim of another run, which stays readable when it is removed; raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def read_exit(claim: int) -> int | None:
    """Return the exit code that the run of an open claim has published; None if it has published none."""
    text = os.pread(claim, TEXT_LIMIT, 0).decode("utf-8", "replace")
    word = text.partition("\nexit ")[2].partition("\n")[0]
    return whole_number(word)
