"""The topology sources other than this machine, one row each, and `read_other`: a source → one `Machine`.

The content of a file decides what it is, not its name.
"""

import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, BinaryIO

from ompbind.errors import MachineError
from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE, read_recorded
from ompbind.machine.read.lscpu import make_machine_from_lscpu, repair_json
from ompbind.machine.read.root import DirectoryRoot
from ompbind.machine.read.samples import SAMPLE, SAMPLES, read_sample
from ompbind.machine.read.synthetic import parse_synthetic
from ompbind.machine.read.topo_json import make_machine_from_json
from ompbind.record import Record

SYNTHETIC = "synthetic:"
"""The prefix of a topology source that describes a machine instead of naming a file."""

SIZE_LIMIT = 64 << 20
"""Bytes of a file at most; the XML of 4,096 CPUs has a tenth."""

_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")  # how gzip, bzip2 and xz begin
_HEAD_BYTES = 512  # enough for the magic number of a tar archive, at 257
_CHUNK_BYTES = 1 << 20


class SourceInput:
    """The text given as a topology source, and the content of the file if it names a file.

    `devices` is True if the devices of the machine are to be read too.
    """

    def __init__(self, text: str, *, devices: bool = False) -> None:
        self.text = text
        self.devices = devices
        self._error: OSError | ValueError | None = None
        self._file: BinaryIO | None = None

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the file, b"" if it cannot be read. The file is opened only once."""
        try:
            if stat.S_ISFIFO(os.stat(self.text).st_mode) and not self.text.startswith(("/dev/", "/proc/")):
                message = f"{self.text!r} is a named pipe"
                raise MachineError(message, hint="read it as standard input: --topology - < PIPE")
            self._file = open(self.text, "rb")  # noqa: SIM115 - `close` closes it
            return self._file.read(_HEAD_BYTES)
        except (OSError, ValueError) as error:
            self._error = error
            return b""

    @cached_property
    def data(self) -> bytes:
        """The whole file. Raises MachineError if it is larger than `SIZE_LIMIT`."""
        chunks = [self.head]
        try:  # in chunks, because standard input has no size and may be endless
            while (
                self._file
                and len(chunks) * _CHUNK_BYTES <= SIZE_LIMIT + _CHUNK_BYTES
                and (chunk := self._file.read(_CHUNK_BYTES))
            ):
                chunks.append(chunk)
        except OSError as error:
            self._error = error
            raise self.refusal() from error
        data = b"".join(chunks)
        if len(data) > SIZE_LIMIT:
            raise MachineError(f"{self.text!r} is larger than {SIZE_LIMIT >> 20} MiB", hint=source_hint())
        return data

    @cached_property
    def json(self) -> Mapping[str, Any] | None:
        """The object in a JSON file, {} for another JSON value, None for a file that is not JSON.

        A version of lscpu writes a bare "-" as a value. Raises MachineError if the JSON is invalid.
        """
        if not self.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
            return None
        try:
            text = self.data.decode("utf-8-sig")
            try:
                value = json.loads(text)
            except ValueError:
                repaired = repair_json(text)
                if repaired == text:
                    raise
                value = json.loads(repaired)
        except (ValueError, RecursionError) as error:
            raise MachineError(f"{self.text!r} is not valid JSON: {error}", hint=source_hint()) from error
        return value if isinstance(value, dict) else {}

    def close(self) -> None:
        """Close the file if it is open."""
        if self._file:
            self._file.close()

    def refusal(self) -> MachineError:
        """Return the error for a source that no row of the table reads."""
        if isinstance(self._error, FileNotFoundError):
            hint = f"write {SAMPLE}{self.text}" if self.text in _sample_names() else source_hint()
            return MachineError(f"topology source {self.text!r} does not exist", hint=hint)
        if self._error:
            return MachineError(
                f"cannot read the topology source {self.text!r}: {self._error}", hint=source_hint()
            )
        if self.json is not None:
            return MachineError(f"{self.text!r} is JSON, but not from lscpu or ompbind", hint=source_hint())
        return MachineError(
            f"{self.text!r} is not a topology source: {_describe_content(self.head)}", hint=source_hint()
        )


class TopologySource(Record):
    """A kind of topology source.

    `detect` returns whether an input is of this kind, `read` makes the machine and raises MachineError.
    `describe` is its name in the hint of errors, `label` its short name in the help of --topology; "" is
    left out.
    """

    detect: Callable[[SourceInput], bool]
    read: Callable[[SourceInput], Machine]
    describe: str = ""
    label: str = ""


def read_other(source: str, *, devices: bool = False) -> Machine:
    """Read a machine from any topology source except `LIVE`; raises MachineError."""
    given = SourceInput(source, devices=devices)
    try:
        row = next((row for row in SOURCES if row.detect(given)), None)
        if row is None:
            raise given.refusal()
        return row.read(given)
    finally:
        given.close()


def source_hint() -> str:
    """Return the hint that names all topology sources."""
    *words, last = (row.describe for row in SOURCES if row.describe)
    return f"give '{LIVE}' (this machine), {', '.join(words)}, or {last}"


def source_labels() -> str:
    """Return the short names of all topology sources, for the help."""
    *words, last = (row.label for row in SOURCES if row.label)
    return f"{LIVE}, {', '.join(words)}, or {last}"


def complete_source(text: str) -> list[str]:
    """Return the topology sources that are no files; none for no text, so that files are completed."""
    return [LIVE, SYNTHETIC, *(f"{SAMPLE}{name}" for name in _sample_names())] if text else []


def _sample_names() -> tuple[str, ...]:
    return tuple(sample.name for sample in SAMPLES)


def _describe_content(head: bytes) -> str:
    if not head.strip():
        return "it is empty"
    if head.startswith((b"PK", b"\x28\xb5\x2f\xfd")):
        return "it is a zip or zstd archive; use tar with gzip, bzip2 or xz"
    if b"CPU(s):" in head or b"CPU NODE" in head or b"CPU,Core" in head:
        return "it is text output of lscpu; use `lscpu --all --extended --json`"
    return "it is not an archive, XML or JSON"


def _read_archive(given: SourceInput) -> Machine:
    from ompbind.machine.read.archive import ArchiveRoot  # noqa: PLC0415 - door: loads tarfile

    return read_recorded(ArchiveRoot(given.data, given.text), devices=given.devices)


def _read_xml(given: SourceInput) -> Machine:
    from ompbind.machine.read.hwloc_xml import parse_xml  # noqa: PLC0415 - door: loads xml

    return parse_xml(given.data, given.text, devices=given.devices)


SOURCES: Sequence[TopologySource] = (
    TopologySource(
        detect=lambda given: given.text == "-",
        read=lambda given: read_other("/dev/stdin", devices=given.devices),
        describe="'-' for standard input",
    ),
    TopologySource(
        detect=lambda given: os.path.isdir(given.text),
        read=lambda given: read_recorded(DirectoryRoot(given.text), devices=given.devices),
        describe="a directory or an archive (.tar.gz) with sys/ and proc/",
        label="a recording",
    ),
    TopologySource(  # described by the row above
        detect=lambda given: given.head.startswith(_PACKED) or given.head[257:262] == b"ustar",
        read=_read_archive,
    ),
    TopologySource(
        detect=lambda given: given.head.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n").startswith(b"<"),
        read=_read_xml,
        describe="XML of lstopo",
        label="lstopo XML",
    ),
    TopologySource(
        detect=lambda given: "schema" in (given.json or ()),
        read=lambda given: make_machine_from_json(given.json or {}, given.text, devices=given.devices),
    ),
    TopologySource(
        detect=lambda given: "cpus" in (given.json or ()) or "lscpu" in (given.json or ()),
        read=lambda given: make_machine_from_lscpu(given.json or {}, given.text),
        describe="JSON of `lscpu -J -e` or of `ompbind topo --format json`",
        label="JSON",
    ),
    TopologySource(
        detect=lambda given: given.text.startswith(SYNTHETIC),
        read=lambda given: parse_synthetic(given.text.removeprefix(SYNTHETIC), given.text),
        describe="'synthetic:pack:2 core:4 pu:2'",
        label="synthetic:...",
    ),
    TopologySource(
        detect=lambda given: given.text.startswith(SAMPLE),
        read=lambda given: read_sample(given.text, devices=given.devices),
        describe="a sample machine such as 'sample:two-sockets'",
        label="sample:NAME",
    ),
)
"""All topology sources except `LIVE`; the first row that detects an input reads it."""
