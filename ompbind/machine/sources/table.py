"""`read_machine`: a topology source → one `Machine`.

What a file is, its content tells, not its name.
"""

import os
import stat
from collections.abc import Callable
from typing import Any, BinaryIO

from ompbind.errors import MachineError
from ompbind.machine.model import Machine
from ompbind.machine.sources.filesystem import FolderRoot
from ompbind.machine.sources.linux.reader import LIVE, read_live, read_recorded

SYNTHETIC = "synthetic:"
"""How a topology source begins that describes a machine instead of naming a file."""

SIZE_LIMIT = 64 << 20
"""Bytes of a file that tells of a machine; the XML of 4,096 CPUs takes a tenth of it."""

KNOWN = (
    "give 'live', '-' for standard input, a folder or an archive (.tar.gz) that holds sys/ and proc/, XML "
    "of lstopo, JSON of `lscpu -J -e` or of `ompbind topo --format json`, or 'synthetic:pack:2 core:4 pu:2'"
)


def read_machine(source: str = LIVE) -> Machine:
    """Read a machine: "live", a folder or archive with `sys/` and `proc/`, XML, JSON, or "synthetic:…".

    On this machine the affinity mask of the process limits what is allowed. Raises MachineError.
    """
    if source == LIVE:
        return read_live()
    if source.startswith(SYNTHETIC):
        from ompbind.machine.sources.synthetic import (
            parse_synthetic,  # late, as all readers but that of this machine
        )

        return parse_synthetic(source[len(SYNTHETIC) :], source)
    if source == "-":
        source = "/dev/stdin"
    if os.path.isdir(source):
        return read_recorded(FolderRoot(source))
    return _read_file(source)


def _read_file(path: str) -> Machine:
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode) and not path.startswith(("/dev/", "/proc/")):
            raise MachineError(f"{path!r} is a named pipe, which may never end", hint="give '-' and < PIPE")
        with open(path, "rb") as file:
            head = file.read(_HEAD)
            reader = next((read for is_it, read in _FORMATS if is_it(head)), None)
            if reader is None:
                raise MachineError(f"{path!r} is not a topology source: {_looks(head)}", hint=KNOWN)
            data = head + _rest(file)
    except FileNotFoundError as error:
        raise MachineError(f"there is no topology source {path!r}", hint=KNOWN) from error
    except (OSError, ValueError) as error:
        raise MachineError(f"cannot read the topology source {path!r}: {error}", hint=KNOWN) from error
    if len(data) > SIZE_LIMIT:
        raise MachineError(f"{path!r} has more than {SIZE_LIMIT >> 20} MiB: no account of a machine does")
    return reader(data, path)


_HEAD = 512
_PIECE = 1 << 20


def _rest(file: BinaryIO) -> bytes:
    """Read on to the end, or a little past the limit, without asking for room that is not needed."""
    pieces: list[bytes] = []
    while len(pieces) * _PIECE <= SIZE_LIMIT and (piece := file.read(_PIECE)):
        pieces.append(piece)
    return b"".join(pieces)


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


def _is_xml(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def _is_json(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))


def _read_archive(data: bytes, path: str) -> Machine:
    from ompbind.machine.sources.archive import ArchiveRoot

    return read_recorded(ArchiveRoot(data, path))


def _read_xml(data: bytes, path: str) -> Machine:
    from ompbind.machine.sources.hwloc_xml import parse_xml

    return parse_xml(data, path)


def _read_json(data: bytes, path: str) -> Machine:
    from ompbind.machine.sources.lscpu_json import make_listed
    from ompbind.machine.sources.ompbind_json import make_described

    try:
        value = _json_value(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{path!r} is no JSON that can be read: {error}", hint=KNOWN) from error
    found = value if isinstance(value, dict) else {}
    if found.get("schema") == "ompbind-topo/1":
        return make_described(found, path)
    if "schema" in found:
        message = f"{path!r} is JSON of schema {str(found['schema'])[:40]!r}; ompbind reads ompbind-topo/1"
        raise MachineError(message, hint="write one with: ompbind topo --format json")
    if "cpus" in found or "lscpu" in found:
        return make_listed(found, path)
    raise MachineError(f"{path!r} is JSON, but neither of lscpu nor of ompbind", hint=KNOWN)


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


_FORMATS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes, str], Machine]], ...] = (
    (_is_archive, _read_archive),
    (_is_xml, _read_xml),
    (_is_json, _read_json),
)
"""What a file can be: how it begins, and what reads it."""
