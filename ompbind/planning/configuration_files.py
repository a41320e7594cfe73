"""Records of configuration files that were found: each was read, or it was ignored."""

from ompbind.record import Record


class UsedFile(Record):
    """A configuration file that was read; `kind` is system, user, project, or named (by --config)."""

    kind: str
    path: str
    sha256: str


class IgnoredFile(Record):
    """A configuration file that was found but is not used, and why."""

    kind: str
    path: str
    reason: str
