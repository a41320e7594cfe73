"""ELF headers are read for all architectures, word sizes and byte orders."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.programs.elf import Elf, read_elf
from tests.elves import make_elf

NAMES = st.text(st.characters(codec="ascii", min_codepoint=33, exclude_characters=":$"), min_size=1)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("elf") / "file"


@given(st.lists(NAMES, unique=True, max_size=8), st.sampled_from([32, 64]), st.booleans())
def test_headers_are_read_in_every_layout(file, needed, bits, little):
    file.write_bytes(make_elf(needed, machine=22, bits=bits, little=little, runpath="$ORIGIN/x:/y"))
    assert read_elf(str(file)) == Elf(
        machine=22,
        bits=bits,
        is_little_endian=little,
        needed=tuple(needed),
        search_path=("$ORIGIN/x", "/y"),
        is_runpath=True,
        static=not needed,
    )


@pytest.mark.parametrize(
    ("machine", "bits", "little", "name"),
    [
        (62, 64, True, "x86_64"),
        (62, 32, True, "x32"),
        (3, 32, True, "i386"),
        (183, 64, True, "aarch64"),
        (21, 64, True, "ppc64le"),
        (21, 64, False, "ppc64"),
        (22, 64, False, "s390x"),
        (243, 64, True, "riscv64"),
        (4711, 64, True, "machine 4711"),
    ],
)
def test_architectures_have_the_names_of_uname(file, machine, bits, little, name):
    file.write_bytes(make_elf(machine=machine, bits=bits, little=little))
    assert read_elf(str(file)).architecture == name


@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_are_not_a_program_and_not_an_error(file, data, marked):
    file.write_bytes((b"\x7fELF\x02\x01" if marked else b"") + data)
    found = read_elf(str(file))
    assert found is None or isinstance(found, Elf)


@given(st.integers(0, 400))
def test_a_truncated_file_is_not_an_error(file, length):
    file.write_bytes(make_elf(["libc.so.6", "libgomp.so.1"])[:length])
    read_elf(str(file))


def test_the_needed_libraries_agree_with_ldd():
    found = read_elf("/proc/self/exe")
    listed = subprocess.run(["ldd", sys.executable], capture_output=True, text=True).stdout
    assert found is not None
    assert all(name in listed for name in found.needed)
    assert found.runs_with(found)
