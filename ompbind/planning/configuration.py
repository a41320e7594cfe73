"""Which configuration files and which preset a request was made from."""

from ompbind.record import Record


class UsedFile(Record):
    """A configuration file that was read: its path and the SHA-256 of its bytes."""

    path: str
    sha256: str


class Configuration(Record):
    """The configuration files that were read, lowest precedence first, and the preset ("" for none).

    `preset_file` is the path of the file that defines the preset.
    """

    files: tuple[UsedFile, ...] = ()
    preset: str = ""
    preset_file: str = ""

    @property
    def digest(self) -> str:
        """A short hash of all that was read; "" if nothing was read. Paths do not count."""
        if not self.files:
            return ""
        from hashlib import sha256  # late: most runs read no file

        text = "\n".join((*(file.sha256 for file in self.files), self.preset))
        return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
