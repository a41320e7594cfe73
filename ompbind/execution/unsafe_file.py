"""The error for a file that must not be used."""


class UnsafeFileError(PermissionError):
    """A file or link must not be used, because another user may have put it there."""
