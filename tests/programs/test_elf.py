"""ELF files are read as far as placing a program needs, whatever machine they are for."""

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
    return tmp_path_factory.mktemp("elf") / "one"


@given(st.lists(NAMES, unique=True, max_size=8), st.sampled_from([32, 64]), st.booleans())
def test_what_is_written_is_read_in_every_layout(file, needed, bits, little):
    file.write_bytes(make_elf(needed, machine=22, bits=bits, little=little, folders="$ORIGIN/x:/y"))
    assert read_elf(str(file)) == Elf(
        machine=22,
        bits=bits,
        little=little,
        needed=tuple(needed),
        folders=("$ORIGIN/x", "/y"),
        late=True,
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
def test_machines_have_the_names_that_the_system_uses(file, machine, bits, little, name):
    file.write_bytes(make_elf(machine=machine, bits=bits, little=little))
    assert read_elf(str(file)).architecture == name


@given(st.binary(max_size=300), st.booleans())
def test_nonsense_is_no_program_and_no_error(file, data, marked):
    file.write_bytes((b"\x7fELF\x02\x01" if marked else b"") + data)
    found = read_elf(str(file))
    assert found is None or isinstance(found, Elf)


@given(st.integers(0, 400))
def test_a_file_cut_short_is_no_error(file, length):
    file.write_bytes(make_elf(["libc.so.6", "libgomp.so.1"])[:length])
    read_elf(str(file))


def test_programs_of_this_machine_agree_with_the_linker():
    found = read_elf("/proc/self/exe")
    listed = subprocess.run(["ldd", sys.executable], capture_output=True, text=True).stdout
    assert found is not None
    assert all(name in listed for name in found.needed)
    assert found.runs_with(found)
