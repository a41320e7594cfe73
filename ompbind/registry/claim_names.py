"""The names of the files in the directory of claims, and how a file is removed."""

from __future__ import annotations

import os

PREFIX = "ompbind-"
"""The start of all names."""

CLAIM_SUFFIX, NEW_SUFFIX, TICKET_SUFFIX = ".run", ".new", ".wait"
"""The ends of names: of complete claims, of files that are being written, and of tickets."""

CLAIM_SUFFIXES = (CLAIM_SUFFIX, NEW_SUFFIX)


def remove_claim(path: str, handle: int | None = None) -> None:
    """Remove the file of a claim, unless it is removed already, or belongs to another user."""
    try:
        os.unlink(path, dir_fd=handle)
    except OSError:
        pass
