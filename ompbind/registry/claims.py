"""Claims: each run tells all others which CPUs it has, for as long as it lives, however it ends.

A *claim* is a file in a folder that all users share, locked (`flock`) by the run. The kernel drops the lock
with the last process that has the file open, so that a claim which can be locked is stale, and nobody's.
It gets its name when it is locked and whole. Who plans, and registers what was planned, holds a lock on the
folder itself meanwhile, unless it shares: no two runs ever plan on the same free CPUs. Files of others are
read with care: whoever wrote them may have meant harm.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ompbind.cpuset import union
from ompbind.errors import ClaimError
from ompbind.machine.model import Machine
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.occupancy import Claimant, LiveRun, find_others, find_related_runs
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import OMPBIND_RUN_ID
from ompbind.planning.request import Request, Sharing
from ompbind.procfs.reader import read_pid_space
from ompbind.registry.claim_format import TEXT_LIMIT, make_live_run, make_text, parse_text

VARIABLE = "OMPBIND_RUNTIME_DIR"
"""The variable that names another folder for claims."""

FOLDERS = ("/dev/shm", "/run/lock", "/tmp")
"""Where claims are: in the first one that everybody may write to, so that all users agree on it."""

FRESH_S = 60.0  # seconds that a claim may take to be written
FILES_LIMIT = 10_000  # claims that are looked at; more are there only to keep others busy
BYTES_LIMIT = 4 << 20  # bytes of claims that are read; a usual run has a few hundred

PATIENCE_S = 10.0  # seconds to wait for others that plan; a plan takes milliseconds
WARN_PATIENCE_S = 1.0  # the same where all that can be lost is a warning

_DONE, _NEW = ".run", ".new"
"""The ends of names: of claims, and of those that are being written."""

_FILE_NUMBERS = (700, 240, 60, 20)
"""The first of these that may be open, or the next free one: scripts number files too, `exec 3>log`."""

_STRICT = (Sharing.AVOID, Sharing.EXCLUSIVE)


class Claim:
    """A registered claim: the open file whose lock it is, and its path."""

    def __init__(self, file: int, path: str) -> None:
        self._file = file
        self._path = path

    def hand_over(self) -> None:
        """Let the command that this process becomes keep the claim for as long as it lives."""
        os.set_inheritable(self._file, True)

    def release(self) -> None:
        """Take the claim back."""
        _unlink(self._path)
        try:
            os.close(self._file)
        except OSError:
            pass  # somebody was faster


def make_claimant(run_id: str) -> Claimant:
    """Return who this process is, for other runs; a rank of an engine's job adds its own numbers."""
    return Claimant(
        run_id=run_id,
        pid=os.getpid(),
        uid=os.geteuid(),
        started=int(time.time()),
        inside=os.environ.get(OMPBIND_RUN_ID, ""),
        pid_space=read_pid_space(),
    )


def find_folder(env: Mapping[str, str]) -> str:
    """Return the folder of the claims of this machine, whether it can be used or not."""
    chosen = env.get(VARIABLE)
    try:
        return os.path.abspath(chosen) if chosen else next(filter(_is_public, FOLDERS), FOLDERS[-1])
    except OSError:  # it is relative to a folder that is gone
        return chosen or FOLDERS[-1]


def _is_public(path: str) -> bool:
    """Tell whether every user may write to a folder; for root alone, modes would say yes too often."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_IWOTH) and os.access(path, os.W_OK | os.X_OK)


class Registry:
    """The live runs of this machine while one run plans among them and registers its plan.

    `occupied` are the other live runs, `delay` says what kept this one from being told of them exactly.
    `trouble` says why the others cannot be told, or cannot be told of this run; both are "" as a rule.
    """

    def __init__(self, sharing: Sharing, me: Claimant) -> None:
        self.occupied: tuple[LiveRun, ...] = ()
        self.delay = ""
        self.trouble = ""
        self._sharing = sharing
        self._me = me
        self._folder = find_folder(os.environ)
        self._handle = -1

    def open(self) -> None:
        """Lock the folder of claims and read it; raises ClaimError when that fails and has to succeed."""
        try:
            self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            self.delay = _lock_folder(self._handle, self._folder, self._sharing)
            self.occupied = _among(read_runs(self._handle), self._me, self._sharing)
        except OSError as error:
            self.close()
            what = f"the live runs in {self._folder} cannot be told"
            self.trouble = _refuse_blindness(self._sharing, what, error)

    def register(self, plan: Plan) -> Claim | None:
        """Write the claim of a plan, None where that fails and may; raises ClaimError where it may not."""
        if self._handle < 0:
            return None
        try:
            return _register(make_live_run(plan, self._me), self._handle, self._folder)
        except OSError as error:
            what = f"this run cannot be registered in {self._folder}"
            self.trouble = _refuse_blindness(self._sharing, what, error)
            return None

    def close(self) -> None:
        """Let others plan again."""
        if self._handle >= 0:
            os.close(self._handle)  # which unlocks it
            self._handle = -1


@contextmanager
def lock_registry(sharing: Sharing, me: Claimant) -> Iterator[Registry]:
    """Keep others from planning while a run plans among them and registers its plan, unless it shares.

    Raises ClaimError when others cannot be told and `sharing` needs that.
    """
    registry = Registry(sharing, me)
    try:
        registry.open()
        yield registry
    finally:
        registry.close()


def read_occupied(machine: Machine, request: Request) -> tuple[LiveRun, ...]:
    """Return the other live runs of this machine, to plan among them; registers nothing.

    On a recorded machine nobody runs. Raises ClaimError when others cannot be told and have to be.
    """
    if machine.source != LIVE:
        return ()
    folder = find_folder(os.environ)
    try:
        return find_others(read_live_runs(folder), make_claimant(""))
    except OSError as error:
        _refuse_blindness(request.sharing, f"the live runs in {folder} cannot be told", error)
        return ()


def read_live_runs(folder: str) -> tuple[LiveRun, ...]:
    """Read the live runs of all users, oldest first; raises OSError when the folder cannot be read."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_runs(handle)
    finally:
        os.close(handle)


def _among(runs: tuple[LiveRun, ...], me: Claimant, sharing: Sharing) -> tuple[LiveRun, ...]:
    """Return the runs that one is to plan among.

    Ranks of one job all plan alike: what the first of them left to others is left to them, even if they
    have ended, and what the job holds already is not for others who came later.
    """
    others, kin = find_others(runs, me), find_related_runs(runs, me)
    if not kin or sharing not in _STRICT:
        return others
    job, left = union(run.held for run in kin), union(run.avoided for run in kin)
    others = tuple(run.replace(held=run.held - job) for run in others)
    gone = left - union(run.held for run in others)
    return (*others, kin[0].replace(run_id="", held=gone)) if gone else others


def _refuse_blindness(sharing: Sharing, what: str, error: OSError) -> str:
    """Refuse to go on where others must be told, or be told of this run, and cannot; else return why not."""
    trouble = f"{what}: {error.strerror}"
    if sharing in _STRICT:
        hint = f"{VARIABLE} can name a folder on this machine that all who are to be avoided can write to"
        raise ClaimError(f"--{sharing} cannot be kept: {trouble}", hint=hint) from error
    return trouble


def _lock_folder(handle: int, folder: str, sharing: Sharing) -> str:
    """Wait until nobody else plans; returns what to tell when that takes too long and may be gone without."""
    if sharing is Sharing.SHARE:
        return ""
    patience_s = PATIENCE_S if sharing in _STRICT else WARN_PATIENCE_S
    give_up_at = time.monotonic() + patience_s
    while not _try_lock(handle, fcntl.LOCK_EX):
        if time.monotonic() >= give_up_at:
            text = f"somebody has kept {folder} locked for {patience_s:g} s"
            if sharing in _STRICT:
                raise ClaimError(f"--{sharing} cannot be kept: {text}", hint=f"'fuser -v {folder}' tells who")
            return f"{text}: runs that start right now may not have been seen"
        time.sleep(0.002)
    return ""


def _try_lock(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _register(run: LiveRun, handle: int, folder: str) -> Claim:
    """Write and lock the claim of a run, then give it its name; raises OSError."""
    stem = f"ompbind-{run.uid}-{run.pid}-{os.urandom(4).hex()}"
    file = os.open(stem + _NEW, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=handle)
    try:
        _fill(file, make_text(run).encode())
        os.rename(stem + _NEW, stem + _DONE, src_dir_fd=handle, dst_dir_fd=handle)
        return Claim(_lift(file), os.path.join(folder, stem + _DONE))
    except OSError:
        _unlink(stem + _NEW, handle)
        raise
    finally:
        os.close(file)


def _fill(file: int, data: bytes) -> None:
    """Lock a file before anybody else can, write it, and let everybody read it."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    while data:
        data = data[os.write(file, data) :]
    os.fchmod(file, 0o644)


def _lift(file: int) -> int:
    """Return another number for an open file, out of the way; it closes when a command is executed."""
    for lowest in _FILE_NUMBERS:
        try:
            return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            pass  # so few files may be open
    return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)


def read_runs(handle: int) -> tuple[LiveRun, ...]:
    """Read the live runs in an open folder, oldest first, and remove what is left of others.

    Raises OSError (EOVERFLOW) when there is more than anybody could want to read.
    """
    names = os.listdir(handle)
    names = [name for name in names if name.startswith("ompbind-") and name.endswith((_DONE, _NEW))]
    found: list[LiveRun | None] = []
    room = BYTES_LIMIT
    for name in names:
        text, uid = _read_claim(name, handle)
        room -= len(text)
        found.append(parse_text(text, uid))
        if room < 0 or len(names) > FILES_LIMIT:
            raise OSError(errno.EOVERFLOW, "there are more claims than anybody could mean")
    return tuple(sorted(filter(None, found), key=lambda run: (run.started, run.pid)))


def _read_claim(name: str, handle: int) -> tuple[str, int]:
    """Return the text of a file and its owner; "" unless it is a file, and locked, and not too long."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=handle)
    except OSError:
        return "", 0
    try:
        about = os.fstat(file)
        is_fresh = name.endswith(_NEW) and about.st_mtime > time.time() - FRESH_S  # to be locked and named
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1 or is_fresh:
            return "", 0
        if _try_lock(file, fcntl.LOCK_SH):
            _unlink(name, handle)
        elif about.st_size <= TEXT_LIMIT:
            return os.read(file, TEXT_LIMIT).decode("utf-8", "replace"), about.st_uid
    except OSError:
        pass  # it is read no further
    finally:
        os.close(file)
    return "", 0


def _unlink(path: str, handle: int | None = None) -> None:
    try:
        os.unlink(path, dir_fd=handle)
    except OSError:
        pass  # it is gone already, or somebody else's to remove
