"""Recordings in archives: read like directories, in any compression, and refused if they are too large."""

import bz2
import gzip
import lzma
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from ompbind.errors import MachineError
from ompbind.machine.read import archive as archive_module
from ompbind.machine.read import read_machine
from ompbind.machine.read.archive import ArchiveRoot
from ompbind.machine.read.root import DirectoryRoot
from tests.machines import Shape, write_tree

CPU = "sys/devices/system/cpu"


def pack(directory, path, mode="w:gz", *, format_=tarfile.USTAR_FORMAT, name="machine"):
    with tarfile.open(path, mode, format=format_) as archive:
        archive.add(directory, arcname=name)
    return str(path)


@pytest.mark.parametrize(("mode", "format_", "name"), [
    ("w:gz", tarfile.USTAR_FORMAT, "."),
    ("w:bz2", tarfile.USTAR_FORMAT, "m" * 90),
    ("w:xz", tarfile.GNU_FORMAT, "m" * 120),
    ("w", tarfile.PAX_FORMAT, "m" * 120),
    ("w:gz", tarfile.PAX_FORMAT, "maschine-ü"),
])  # fmt: skip
def test_archives_are_recognized_by_their_content_and_read_like_directories(tmp_path, mode, format_, name):
    tree = write_tree(tmp_path / "tree", Shape(packages=2, cores=2, smt=2))
    (tree / CPU / "cpu0/driver").symlink_to("../../../bus")
    packed = read_machine(pack(tree, tmp_path / "recording", mode, format_=format_, name=name))
    assert packed.replace(source="") == read_machine(str(tree)).replace(source="")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\n\nprocessor\t: 3\n")
    only_proc = pack(tmp_path / "proc", tmp_path / "only", mode, format_=format_, name=f"{name}/proc")
    assert str(read_machine(only_proc).online) == "0,3"


def test_links_in_archives_are_followed(tmp_path):
    tree = write_tree(tmp_path / "tree", Shape(cores=2), {f"{CPU}/cpufreq/policy1/cpuinfo_max_freq": "7"})
    links = {"cpu1/cpufreq": "../cpufreq/policy1", "cpu0/cpufreq": "../cpu1/cpufreq", "cpu0/loop": "loop",
             "cpu0/away": "../../../../../../../../etc"}  # fmt: skip
    for name, target in links.items():
        (tree / CPU / name).symlink_to(target)
    (tree / CPU / "present").unlink()
    os.link(tree / CPU / "online", tree / CPU / "present")
    root = ArchiveRoot(Path(pack(tree, tmp_path / "m.tar.gz")).read_bytes(), "packed")
    assert root.read(f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq") == "7"
    assert root.names(f"{CPU}/cpu0/cpufreq") == ["cpuinfo_max_freq"]
    assert root.read(f"{CPU}/cpu0/loop/x") is None
    assert root.read(f"{CPU}/cpu0/away/hostname") is None
    assert root.read(f"{CPU}/present") == root.read(f"{CPU}/online") == "0-1\n"
    assert (root.read("sys/nothing"), root.names("sys/nothing")) == (None, [])
    assert DirectoryRoot(str(tmp_path)).read("no\0name") is None


def test_archives_that_unpack_to_too_much_are_refused(monkeypatch):
    """Zeros compress a thousandfold. A header gives the length of the attributes after it."""
    monkeypatch.setattr(archive_module, "UNPACKED_LIMIT", limit := 1 << 22)
    file, attributes = tarfile.TarInfo("m/sys/devices/system/cpu/online"), tarfile.TarInfo("m/attributes")
    file.size = attributes.size = 64 * limit
    attributes.type = tarfile.XHDTYPE
    for header in (file, attributes):
        packed = gzip.compress(header.tobuf() + bytes(header.size))
        tracemalloc.start()
        with pytest.raises(MachineError, match="more than 4 MiB"):
            ArchiveRoot(packed, "large")
        assert tracemalloc.get_traced_memory()[1] < 4 * limit
        tracemalloc.stop()


def test_archives_in_several_streams_are_read_completely_and_truncated_ones_are_errors(tmp_path):
    """Parallel compressors and `cat` write several streams."""
    whole = Path(pack(write_tree(tmp_path / "t", Shape(cores=4)), tmp_path / "m.tar", "w")).read_bytes()
    half = len(whole) // 1024 * 512
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        (tmp_path / "m").write_bytes(compress(whole[:half]) + compress(whole[half:]))
        machine = read_machine(str(tmp_path / "m"))
        assert (str(machine.online), machine.remarks) == ("0-3", ())
    packed = gzip.compress(whole)
    for cut in (whole[: len(whole.rstrip(b"\0")) // 2 // 512 * 512 + 100], packed[: len(packed) // 2]):
        with pytest.raises(MachineError, match="truncated|ended before the end"):
            ArchiveRoot(cut, "cut")
