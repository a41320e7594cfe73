"""The topology sources, one row each, and `read_machine`: a source → one `Machine`.

What a file is, its content tells, not its name.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, BinaryIO

from ompbind.errors import MachineError
from ompbind.machine.model import Machine
from ompbind.machine.sources.filesystem import FolderRoot
from ompbind.machine.sources.linux.reader import LIVE, read_live, read_recorded
from ompbind.record import Record

SYNTHETIC = "synthetic:"
"""How a topology source begins that describes a machine instead of naming a file."""

SIZE_LIMIT = 64 << 20
"""Bytes of a file that tells of a machine; the XML of 4,096 CPUs takes a tenth of it."""

_HEAD = 512
_PIECE = 1 << 20


class Given:
    """What somebody gave as a topology source; where it is a file, rows may look at its bytes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._fault: OSError | ValueError | None = None
        self._file: BinaryIO | None = None

    @cached_property
    def head(self) -> bytes:
        """The beginning of the file, b"" where there is none; a file is opened only once."""
        try:
            if stat.S_ISFIFO(os.stat(self.text).st_mode) and not self.text.startswith(("/dev/", "/proc/")):
                message = f"{self.text!r} is a named pipe, which may never end"
                raise MachineError(message, hint="give '-' and < PIPE")
            self._file = open(self.text, "rb")  # noqa: SIM115 - `close` closes it
            return self._file.read(_HEAD)
        except (OSError, ValueError) as error:
            self._fault = error
            return b""

    @cached_property
    def data(self) -> bytes:
        """The whole file; MachineError when it is larger than any account of a machine."""
        pieces = [self.head]
        try:  # piece by piece, so that no room is asked for that is not needed
            while (
                self._file
                and len(pieces) * _PIECE <= SIZE_LIMIT + _PIECE
                and (piece := self._file.read(_PIECE))
            ):
                pieces.append(piece)
        except OSError as error:
            self._fault = error
            raise self.refusal() from error
        data = b"".join(pieces)
        if len(data) > SIZE_LIMIT:
            limit = SIZE_LIMIT >> 20
            raise MachineError(f"{self.text!r} has more than {limit} MiB: no account of a machine does")
        return data

    @cached_property
    def json(self) -> Mapping[str, Any] | None:
        """The value of a JSON file, {} for one that is no object; None for what is no JSON."""
        if not self.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
            return None
        try:
            value = _json_value(self.data.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise MachineError(f"{self.text!r} is no JSON that can be read: {error}", hint=known()) from error
        return value if isinstance(value, dict) else {}

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def refusal(self) -> MachineError:
        """Return the error for what no row reads."""
        if isinstance(self._fault, FileNotFoundError):
            return MachineError(f"there is no topology source {self.text!r}", hint=known())
        if self._fault:
            return MachineError(f"cannot read the topology source {self.text!r}: {self._fault}", hint=known())
        if self.json is not None:
            return MachineError(f"{self.text!r} is JSON, but neither of lscpu nor of ompbind", hint=known())
        return MachineError(f"{self.text!r} is not a topology source: {_looks(self.head)}", hint=known())


class Source(Record):
    """A kind of topology source: whether one is given, how it is read, and how people are told of it.

    `describe` is what the hint of errors says of it, `label` what the help of --topology says; "" is nothing.
    """

    detect: Callable[[Given], bool]
    read: Callable[[Given], Machine]
    describe: str = ""
    label: str = ""


def read_machine(source: str = LIVE) -> Machine:
    """Read a machine: "live", a folder or archive with `sys/` and `proc/`, XML, JSON, or "synthetic:…".

    On this machine the affinity mask of the process limits what is allowed. Raises MachineError.
    """
    given = Given(source)
    try:
        row = next((row for row in SOURCES if row.detect(given)), None)
        if row is None:
            raise given.refusal()
        return row.read(given)
    finally:
        given.close()


def known() -> str:
    """Return the hint that names every topology source."""
    *words, last = (row.describe for row in SOURCES if row.describe)
    return f"give {', '.join(words)}, or {last}"


def labels() -> str:
    """Return every topology source in a word or two."""
    *words, last = (row.label for row in SOURCES if row.label)
    return f"{', '.join(words)}, or {last}"


def _looks(head: bytes) -> str:
    if not head.strip():
        return "it is empty"
    if head.startswith((b"PK", b"\x28\xb5\x2f\xfd")):
        return "it is packed by zip or zstd; use tar with gzip, bzip2 or xz"
    if b"CPU(s):" in head or b"CPU NODE" in head or b"CPU,Core" in head:
        return "it is a text of lscpu; ompbind reads that of `lscpu --all --extended --json`"
    return "it is neither an archive nor XML nor JSON"


def _is_archive(head: bytes) -> bool:
    return head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")) or head[257:262] == b"ustar"


# The readers below import late, as reading this machine needs none of them: that of archives takes 3 ms, that
# of XML 2 ms, all others together 1 ms.


def _read_archive(given: Given) -> Machine:
    from ompbind.machine.sources.archive import ArchiveRoot

    return read_recorded(ArchiveRoot(given.data, given.text))


def _read_xml(given: Given) -> Machine:
    from ompbind.machine.sources.hwloc_xml import parse_xml

    return parse_xml(given.data, given.text)


def _read_lscpu(given: Given) -> Machine:
    from ompbind.machine.sources.lscpu_json import make_listed

    return make_listed(given.json or {}, given.text)


def _read_own(given: Given) -> Machine:
    from ompbind.machine.sources.ompbind_json import make_described

    return make_described(given.json or {}, given.text)


def _read_synthetic(given: Given) -> Machine:
    from ompbind.machine.sources.synthetic import parse_synthetic

    return parse_synthetic(given.text.removeprefix(SYNTHETIC), given.text)


def _json_value(text: str) -> Any:
    """Return the value of a JSON text, or of one that a version of lscpu wrote with a bare "-" in it."""
    import json

    from ompbind.machine.sources.lscpu_json import repair_json

    try:
        return json.loads(text)
    except ValueError:
        repaired = repair_json(text)
        if repaired == text:
            raise
    return json.loads(repaired)


SOURCES: Sequence[Source] = (
    Source(
        detect=lambda given: given.text == LIVE,
        read=lambda given: read_live(),
        describe="'live'",
        label="live",
    ),
    Source(
        detect=lambda given: given.text == "-",
        read=lambda given: read_machine("/dev/stdin"),
        describe="'-' for standard input",
    ),
    Source(
        detect=lambda given: os.path.isdir(given.text),
        read=lambda given: read_recorded(FolderRoot(given.text)),
        describe="a folder or an archive (.tar.gz) that holds sys/ and proc/",
        label="a recorded one",
    ),
    Source(detect=lambda given: _is_archive(given.head), read=_read_archive),  # told of with the folder
    Source(
        detect=lambda given: given.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"),
        read=_read_xml,
        describe="XML of lstopo",
        label="lstopo XML",
    ),
    Source(detect=lambda given: "schema" in (given.json or ()), read=_read_own),
    Source(
        detect=lambda given: "cpus" in (given.json or ()) or "lscpu" in (given.json or ()),
        read=_read_lscpu,
        describe="JSON of `lscpu -J -e` or of `ompbind topo --format json`",
        label="JSON",
    ),
    Source(
        detect=lambda given: given.text.startswith(SYNTHETIC),
        read=_read_synthetic,
        describe="'synthetic:pack:2 core:4 pu:2'",
        label="synthetic:…",
    ),
)
"""Every topology source; the first one that is given is read."""
