"""Which configuration files and which preset the options of a request come from."""

from ompbind.record import Record


class UsedFile(Record):
    """A configuration file that was read; `kind` is user, project, or named (by --config)."""

    kind: str
    path: str
    sha256: str


class IgnoredFile(Record):
    """A configuration file that was found but is not used, and why."""

    kind: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is ignored: {self.reason}"


class Configuration(Record):
    """The configuration files that were read, lowest precedence first, and the preset ("" for none).

    `preset_file` is the path of the file that defines the preset. `warnings` are texts for the user.
    """

    files: tuple[UsedFile, ...] = ()
    ignored: tuple[IgnoredFile, ...] = ()
    preset: str = ""
    preset_file: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A short hash of all that was read; "" if nothing was read. Paths do not count."""
        if not self.files:
            return ""
        from hashlib import sha256  # noqa: PLC0415 - door: loads OpenSSL

        text = "\n".join((*(file.sha256 for file in self.files), self.preset))
        return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
