"""The lock on the directory of claims, which runs that avoid others hold while they plan."""

import fcntl
import os
import time

from ompbind.errors import ClaimError
from ompbind.planning.request import Sharing
from ompbind.procfs.reader import read_lock_holder, read_owner
from ompbind.registry.claim_files import try_lock
from ompbind.registry.read_run_info import read_user

LOCK_TIMEOUT_S = 10.0  # seconds to wait for the lock; planning takes milliseconds


def lock_directory(handle: int, directory: str, sharing: Sharing) -> None:
    """Wait until no other run that avoids others plans; raises ClaimError after a time limit."""
    give_up_at = time.monotonic() + LOCK_TIMEOUT_S
    while not try_lock(handle, fcntl.LOCK_EX):
        if time.monotonic() >= give_up_at:
            text = f"{_find_lock_holder(handle)} has kept {directory} locked for {LOCK_TIMEOUT_S:g} s"
            hint = f"ask its user to stop it and try again, or omit --{sharing}"
            raise ClaimError(f"--{sharing} is not possible: {text}", hint=hint)
        time.sleep(0.002)


def _find_lock_holder(handle: int) -> str:
    """Return the process that has locked a directory, with its user, as far as this user can find them."""
    status = os.fstat(handle)
    pid = read_lock_holder(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    owner = read_owner(pid) if pid else None
    return "another process" if owner is None else f"process {pid} of user {read_user(owner)}"
