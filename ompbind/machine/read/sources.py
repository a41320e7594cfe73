"""Read a machine from another topology source than this machine: a recording, file, description or sample.

The content of a file decides what it is, not its name. The sample machines are files that
`ompbind topo --format json` has printed.
"""

import json
import os
import pkgutil
import re
import stat
import textwrap
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ompbind.errors import MachineError
from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE, read_recorded
from ompbind.machine.read.lscpu import (
    TABLE_HEAD,
    make_machine_from_lscpu,
    make_machine_from_lscpu_text,
    repair_json,
)
from ompbind.machine.read.root import DirectoryRoot
from ompbind.machine.read.synthetic import parse_synthetic
from ompbind.machine.read.texts import INDENT, read_cpuinfo, read_lstopo, read_numactl
from ompbind.machine.read.topo_json import make_machine_from_json
from ompbind.record import Record
from ompbind.text import suggest_name

SAMPLE = "sample:"  # the prefix of a topology source that names a sample machine

SAMPLES = {
    "two-sockets": "16 CPUs, 2 packages",
    "four-gpus": "32 CPUs, 2 packages, 4 GPUs, 2 NICs",
    "eight-nodes": "32 CPUs, 2 packages, 8 NUMA nodes, 4 GPUs",
    "epyc-2p": "384 CPUs, 2 x AMD EPYC 9654",
    "xeon-max-2p": "224 CPUs, 2 x Intel Xeon Max 9480, HBM as own nodes",
    "dgx-a100": "256 CPUs, 8 NUMA nodes, 8 GPUs, 8 NICs",
    "core-i9": "32 CPUs, hybrid: Intel Core i9-13900K",
    "grace-2p": "144 CPUs, Arm: NVIDIA Grace CPU Superchip",
    "power9-2p": "160 CPUs, IBM POWER9 with SMT4",
    "z15-partition": "96 CPUs, IBM z15 with books and drawers",
}
"""A few words on each sample machine `sample_machines/NAME.json`; `docs/machines.md` describes them."""

SYNTHETIC = "synthetic:"  # the prefix of a topology source that describes a machine instead of naming a file
_BEGIN = 1 << 20  # bytes in which a text must show what it is
SIZE_LIMIT = 64 << 20  # bytes of a file at most; the XML of 4,096 CPUs has a tenth

_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")  # how gzip, bzip2 and xz begin
_MARKS = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # what may stand before the first character of a text


def read_other(source: str, *, devices: bool = False) -> Machine:
    """Read a machine from any topology source except `LIVE`; raises MachineError."""
    if source.startswith(SYNTHETIC):
        return parse_synthetic(source.removeprefix(SYNTHETIC), source)
    if source.startswith(SAMPLE):
        return _read_sample(source, devices=devices)
    if os.path.isdir(source):
        return read_recorded(DirectoryRoot(source), devices=devices)
    data = _read_file("/dev/stdin" if source == "-" else source)
    path = "standard input" if source == "-" else source
    known = next((each for each in FILE_FORMATS if each.has(data)), None)
    if known is None:
        raise MachineError(f"{path!r} is not a topology source: {_describe_content(data)}", hint=make_hint())
    return known.read(data, path, devices)


def _read_sample(source: str, *, devices: bool) -> Machine:
    name = source.removeprefix(SAMPLE)
    if name not in SAMPLES:
        message = f"there is no sample machine {name!r}" if name else f"{source!r} lacks a name"
        known = "; ".join(f"{SAMPLE}{known} ({summary})" for known, summary in SAMPLES.items())
        near = suggest_name(name, SAMPLES)
        question = f"did you mean {SAMPLE}{near}? Otherwise " if near else ""
        raise MachineError(message, hint=f"{question}use one of: {known}")
    data = pkgutil.get_data(__package__, f"sample_machines/{name}.json")
    return make_machine_from_json(json.loads(data or b""), source, devices=devices)


def list_sources() -> str:
    """Return short names of all topology sources, for the help."""
    formats = ", ".join(each.label for each in FILE_FORMATS)
    return f"{LIVE}, {formats}, {SYNTHETIC}..., or {SAMPLE}NAME"


def make_hint() -> str:
    """Return the hint of errors, which names all topology sources."""
    formats = ", ".join(each.description for each in FILE_FORMATS)
    return (
        f"give '{LIVE}' (this machine), '-' for standard input, {formats},"
        f" '{SYNTHETIC}pack:2 core:4 pu:2', or a sample machine such as '{SAMPLE}two-sockets'"
    )


def complete_source(text: str) -> list[str]:
    """Return the topology sources that are no files; none for no text, so that files are completed."""
    return [LIVE, SYNTHETIC, *(f"{SAMPLE}{name}" for name in SAMPLES)] if text else []


def _read_file(path: str) -> bytes:
    """Read a whole file, or standard input, which may be endless. Raises MachineError."""
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode) and not path.startswith(("/dev/", "/proc/")):
            message = f"{path!r} is a named pipe"
            raise MachineError(message, hint="read it as standard input: --topology - < PIPE")
        with open(path, "rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError as error:
        hint = f"write {SAMPLE}{path}" if path in SAMPLES else make_hint()
        with suppress(MachineError):
            hint = f"write '{parse_synthetic(path, SYNTHETIC + path).source}'"
        raise MachineError(f"topology source {path!r} does not exist", hint=hint) from error
    except (OSError, ValueError) as error:
        raise MachineError(f"cannot read the topology source {path!r}: {error}", hint=make_hint()) from error
    if len(data) > SIZE_LIMIT:
        raise MachineError(f"{path!r} is larger than {SIZE_LIMIT >> 20} MiB", hint=make_hint())
    return data


class FileFormat(Record):
    """A format of files that describe a machine: how the help and errors name it, and what reads it.

    `has` returns whether content is of this format. `read` gets the content, the path for errors, and
    whether devices are read too.
    """

    label: str
    description: str
    has: Callable[[bytes], bool]
    read: Callable[[bytes, str, bool], Machine]


def _first(data: bytes) -> bytes:
    return data[:512].lstrip(_MARKS)[:1]


def _read_archive(data: bytes, path: str, devices: bool) -> Machine:
    from ompbind.machine.read.archive import ArchiveRoot  # noqa: PLC0415 - door: loads tarfile

    return read_recorded(ArchiveRoot(data, path), devices=devices)


def _read_xml(data: bytes, path: str, devices: bool) -> Machine:
    from ompbind.machine.read.hwloc_xml import parse_xml  # noqa: PLC0415 - door: loads xml

    return parse_xml(data, path, devices=devices)


def _read_json(data: bytes, path: str, devices: bool) -> Machine:
    try:
        text = data.decode("utf-8-sig")
        try:
            value: Any = json.loads(text)
        except ValueError:
            value = json.loads(repair_json(text))
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{path!r} is not valid JSON: {error}", hint=make_hint()) from error
    if isinstance(value, dict) and "schema" in value:
        return make_machine_from_json(value, path, devices=devices)
    if isinstance(value, dict) and ("cpus" in value or "lscpu" in value):
        return make_machine_from_lscpu(value, path)
    raise MachineError(f"{path!r} is JSON, but not from lscpu or ompbind", hint=make_hint())


def _read_text(make: Callable[[str, str], Machine]) -> Callable[[bytes, str, bool], Machine]:
    def read(data: bytes, path: str, devices: bool) -> Machine:
        lines = re.sub(r"^(?:>[ \t]?)+", "", data.decode("utf-8", "replace"), flags=re.M)  # as it is quoted
        return make(textwrap.dedent(lines), path)

    return read


def _has(pattern: str) -> Callable[[bytes], bool]:
    return lambda data: re.search(pattern.encode(), data[:_BEGIN], re.M) is not None


FILE_FORMATS = (
    FileFormat(
        label="a recording", description="a directory or an archive (.tar.gz) with sys/ and proc/",
        has=lambda data: data.startswith(_PACKED) or data[257:262] == b"ustar", read=_read_archive,
    ),
    FileFormat(
        label="lstopo XML", description="XML of lstopo",
        has=lambda data: _first(data) == b"<", read=_read_xml,
    ),
    FileFormat(
        label="JSON", description="JSON of `lscpu -J -e` or of `ompbind topo --format json`",
        has=lambda data: _first(data) in (b"{", b"["), read=_read_json,
    ),
    FileFormat(
        label="text of lstopo", description="the text of lstopo",
        has=_has(r"^[ \t>|]{0,99}(.{0,999} \+ )?PU [LP]#"), read=_read_text(read_lstopo),
    ),
    FileFormat(
        label="numactl -H", description="of `numactl -H`",
        has=_has(rf"^{INDENT}node \d+ cpus:"), read=_read_text(read_numactl),
    ),
    FileFormat(
        label="lscpu", description="of `lscpu -e` or `lscpu`",
        has=_has(rf"^{INDENT}({TABLE_HEAD}|(NUMA node\d+|On-line) CPU\(s\))"),
        read=_read_text(make_machine_from_lscpu_text),
    ),
    FileFormat(
        label="cpuinfo", description="/proc/cpuinfo",
        has=_has(rf"^{INDENT}processor\s*:"), read=_read_text(read_cpuinfo),
    ),
)  # fmt: skip
"""All formats of files; the first one that has the content reads it."""


def _describe_content(data: bytes) -> str:
    if not data[:512].strip():
        return "it is empty"
    if data.startswith((b"PK", b"\x28\xb5\x2f\xfd")):
        return "it is a zip or zstd archive; use tar with gzip, bzip2 or xz"
    return "its format is not known"
