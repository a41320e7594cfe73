"""The files in the directory of claims: their names, how files are listed, and how a file is removed."""

import errno
import os

PREFIX = "ompbind-"
"""The start of all names."""

CLAIM_SUFFIX, NEW_SUFFIX, TICKET_SUFFIX = ".run", ".new", ".wait"
"""The ends of names: of complete claims, of files that are being written, and of tickets."""

CLAIM_SUFFIXES = (CLAIM_SUFFIX, NEW_SUFFIX)

FILES_LIMIT = 10_000  # files with names of claims; more are an attack or a mistake


def list_claims(handle: int, suffixes: tuple[str, ...] = CLAIM_SUFFIXES) -> frozenset[str]:
    """Return the file names of the claims in an open directory; raises OSError (EOVERFLOW) for too many."""
    names = [name for name in os.listdir(handle) if name.startswith(PREFIX) and name.endswith(suffixes)]
    if len(names) > FILES_LIMIT:
        raise OSError(errno.EOVERFLOW, "too many claims")
    return frozenset(names)


def remove_claim(path: str, handle: int | None = None) -> None:
    """Remove the file of a claim, unless it is removed already, or belongs to another user."""
    try:
        os.unlink(path, dir_fd=handle)
    except OSError:
        pass
