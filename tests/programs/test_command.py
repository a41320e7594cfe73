"""What a command would run is read from files: programs, scripts, and Pythons with packages."""

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.errors import CommandNotFoundError, RequestError
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs import libraries
from ompbind.programs.command import Workload, read_workload
from ompbind.programs.elf import Elf, read_elf, read_header
from ompbind.programs.find_command import find_command
from ompbind.programs.libraries import identify_library, name_libraries, name_library
from ompbind.programs.preload import find_missing_preloads, find_preloads
from ompbind.programs.python_packages import find_default_python
from tests.elves import make_elf, put
from tests.tables import rows


@pytest.fixture(autouse=True)
def _without_the_libraries_of_the_system(monkeypatch):
    monkeypatch.setattr(libraries, "_CONFIGURATION", "/nonesuch")
    monkeypatch.setattr(libraries, "_DEFAULT_DIRECTORIES", ())


def found(workload):
    return [(found.library.kind.name, str(found.method), found.origin) for found in workload.libraries]


def names(argv, env=()):
    return [name for name, _, _ in found(read_workload(argv, dict(env)))]


@pytest.mark.parametrize(("path", "name"), rows("""
    /x/torch/lib/libgomp.so.1                             | gomp
    /x/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0        | gomp
    /usr/lib/llvm-14/lib/libomp.so.5                      | omp 14
    /x/numpy.libs/libscipy_openblas64_-32a4b2a6.so        | openblas
    /x/libtcmalloc_minimal.so.4.5.9 (deleted)             | tcmalloc
    /usr/lib/gcc/libgomp-plugin-nvptx.so.1                |
    /x/libgomp.a                                          |
"""))  # fmt: skip
def test_libraries_are_recognized_by_their_names(path, name):
    library = name_library(path)
    assert (f"{library.kind.name} {library.version or ''}".strip() if library else "") == name
    assert len(name_libraries([path, "/a/libc.so.6", path, f"/b/{path}"])) == 2 * bool(name)


def test_libraries_that_a_program_needs_are_found_recursively(tmp_path):
    put(tmp_path / "lib/libmine.so", make_elf(["libgomp.so.1", "libother.so"], runpath="$ORIGIN/../other"))
    put(tmp_path / "other/libgomp.so.1")
    put(tmp_path / "other/libother.so", make_elf(["libmine.so"]))
    app = put(tmp_path / "app", make_elf(["libc.so.6", "libmine.so"], runpath="${ORIGIN}/lib"))
    workload = read_workload([app, "x"], {})
    assert found(workload) == [("gomp", "needed", "app")]
    assert (workload.program, workload.python, workload.opaque) == (app, "", False)
    assert workload.libraries[0].library.path == str(tmp_path / "other/libgomp.so.1")


def test_a_library_for_another_architecture_is_skipped(tmp_path):
    put(tmp_path / "wrong/libomp.so.5", make_elf(machine=183))
    put(tmp_path / "right/libomp.so.5", make_elf(names=["__kmpc_fork_call", "omp_in_explicit_task"]))
    app = put(tmp_path / "app", make_elf(["libomp.so.5"], runpath=f"{tmp_path}/wrong:{tmp_path}/right"))
    (detected,) = read_workload([app], {}).libraries
    assert (detected.library.path, detected.library.version) == (str(tmp_path / "right/libomp.so.5"), 15)
    other = put(tmp_path / "other", make_elf(["libiomp5.so"], machine=22, little=False))
    assert names([other]) == ["iomp"], "a missing library is recognized by its name"


@pytest.mark.parametrize(("tags", "alone", "listed", "inherited"), rows("""
    runpath=own                  | gomp     | iomp | iomp
    rpath=own                    | gomp     | gomp | gomp
    runpath=none rpath=own       |          | iomp |
"""))  # fmt: skip
def test_directories_are_searched_in_the_order_of_the_linker(tmp_path, tags, alone, listed, inherited):
    """RPATH comes before LD_LIBRARY_PATH, RUNPATH after it; RPATH is ignored where RUNPATH is there.

    A library inherits the RPATH of the program, but not its RUNPATH.
    """
    put(tmp_path / "own/libx.so", make_elf(["libgomp.so.1"]))
    put(tmp_path / "own/liba.so", make_elf(["libx.so"]))
    put(tmp_path / "listed/libx.so", make_elf(["libiomp5.so"]))
    put(tmp_path / "other/libx.so", make_elf(["libiomp5.so"]))
    paths = {tag: f"$ORIGIN/{name}" for tag, name in (word.split("=") for word in tags.split())}
    direct, behind = (put(tmp_path / name, make_elf([name], **paths)) for name in ("libx.so", "liba.so"))
    env = {"LD_LIBRARY_PATH": str(tmp_path / "listed")}
    found = (names([direct]), names([direct], env), names([behind], env))
    assert tuple(map(" ".join, found)) == (alone, listed, inherited)


def test_preloaded_libraries_come_first_and_are_not_loaded_a_second_time(tmp_path):
    put(tmp_path / "own/libgomp.so.1", make_elf(soname="libgomp.so.1"))
    mine = put(tmp_path / "mine/libgomp-12.so", make_elf(soname="libgomp.so.1"))
    intel = put(tmp_path / "libiomp5.so")
    app = put(tmp_path / "app", make_elf(["libgomp.so.1"], runpath="$ORIGIN/own"))
    assert found(read_workload([app], {"LD_PRELOAD": mine})) == [("gomp", "preloaded", "LD_PRELOAD")]
    argv = ["env", "-u", "A", f"LD_PRELOAD={intel}", app, "LD_PRELOAD=/nonesuch"]
    assert names(argv, {"PATH": os.environ["PATH"]}) == ["iomp", "gomp"]


def test_pipes_are_never_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o755)
    pipe = str(tmp_path / "pipe")
    app = put(tmp_path / "app", make_elf(["libc.so.6"]))
    assert read_workload([pipe], {}).opaque
    assert "is not a library" in read_workload([app], {"LD_PRELOAD": pipe}).preload_warnings[0]
    os.mkfifo(tmp_path / "pyvenv.cfg")
    assert read_workload([put(tmp_path / "bin/python3")], {}).python


def test_the_names_that_libomp_exports_and_the_targets_of_links_identify_a_library(tmp_path):
    exported = ("__kmpc_fork_call", "omp_in_explicit_task", "__kmpc_fork_call_if")
    for count, version in ((0, None), (1, 14), (2, 15), (3, 16)):
        path = put(tmp_path / "libomp.so", make_elf(names=["something_else", *exported[:count]]))
        assert identify_library(path).version == version
    (tmp_path / "libgomp.so.1").symlink_to(put(tmp_path / "libiomp5.so"))
    assert identify_library(str(tmp_path / "libgomp.so.1")).family is OmpRuntime.INTEL


@pytest.fixture
def python(tmp_path):
    """The Python of a virtual environment with the libraries of torch, scikit-learn and numpy."""
    site = tmp_path / "venv/lib/python3.12/site-packages"
    for name in ("torch/lib/libgomp.so.1", "torch/lib/libtorch.so", "scikit_learn.libs/libgomp-abc.so.1.0.0",
                 "numpy.libs/libscipy_openblas64_-12.so"):  # fmt: skip
        put(site / name)
    put(tmp_path / "venv/lib/libiomp5.so")
    put(tmp_path / "venv/pyvenv.cfg", "home = /nowhere\ninclude-system-site-packages = false\n")
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/py").symlink_to("python3.12")
    return put(tmp_path / "venv/bin/python3.12")


SCRIPTS = {
    "tool": "#!{python}\nimport torch\n", "quoted": "#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n' '''\n",
    "beside": "#!/bin/sh\n'''exec' \"$(CDPATH= cd -- \"$(dirname -- \"$0\")\" && echo \"$PWD\")\""
    "/venv/bin/python3.12 \"$0\"\n",  # a relocatable environment
    "by_env": "#!/usr/bin/env python3.12\n",
}  # fmt: skip


@pytest.mark.parametrize("command", [
    "{python} serve.py", "env -S {python} -u x", "env A=1 nice -n 5 {python} x", "taskset -c 0 {python} x",
    "timeout 5 {python} x", "{venv}/py x", "./python3.12", *("{scripts}/" + name for name in SCRIPTS),
])  # fmt: skip
def test_a_python_may_load_the_libraries_in_its_packages(tmp_path, python, command, monkeypatch):
    monkeypatch.chdir(tmp_path / "venv/bin")
    for name, text in SCRIPTS.items():
        put(tmp_path / name, text.format(python=python))
    venv = f"{tmp_path}/venv/bin"
    argv = command.format(python=python, venv=venv, scripts=tmp_path).split()
    workload = read_workload(argv, {"PATH": f"{venv}:{os.environ['PATH']}"})
    libraries = {(name, method, origin.rpartition("/")[2]) for name, method, origin in found(workload)}
    assert libraries >= {("gomp", "available", name) for name in ("torch", "scikit_learn")}
    assert sorted(name for name, *_ in libraries) == ["gomp", "gomp", "iomp", "openblas"]
    assert workload.python in (python, f"{venv}/py")
    assert not workload.opaque


@pytest.mark.parametrize(("needed", "words", "installed", "start"), rows("""
    libmpi.so.40                 | {app} x        |                              | mpirun --bind-to none
    libgomp.so.1 libmpi.so.40    | taskset -c 0 {app} | impi/taskset         | mpirun --bind-to none
    libmpi.so.12                 | {app}          | mpich/mpiexec.hydra          | mpiexec.hydra --bind-to none
    libmpi.so.12                 | {app}          | impi/mpiexec.hydra impi/impi_info | mpiexec.hydra -genv I_MPI_PIN 0
    libmpich.so.12               | {app}          |                              | mpiexec.hydra --bind-to none
    libmpi.so.40                 | {app}          | slurm/srun                   | srun --cpu-bind=none
    libmpi.so.40                 | {app}          | slurm/srun slurm/mpirun      | mpirun --bind-to none
    libgomp.so.1                 | {app}          | slurm/srun                   |
                                 | {python} -u imports.py x | impi/mpirun impi/impi_info | mpirun -genv I_MPI_PIN 0
                                 | {python} -m mpi4py second.py |                | mpirun --bind-to none
                                 | ./tool         |                              | mpirun --bind-to none
                                 | {python} other.py imports.py |                |
                                 | {python}       |                              |
                                 | mpirun {app}   |                              |
"""))  # fmt: skip # noqa: E501
def test_programs_of_mpi_are_known_by_their_libraries_and_imports(
    tmp_path, monkeypatch, python, needed, words, installed, start
):
    monkeypatch.chdir(tmp_path)
    app = put(tmp_path / "app", make_elf(needed.split() or ["libmpi.so.40"]))
    for name in installed.split():
        put(tmp_path / name)
    put(tmp_path / "imports.py", "import os\nif os:\n    from mpi4py import MPI\n")
    put(tmp_path / "second.py", "import os; import mpi4py.MPI\n")
    put(tmp_path / "other.py", "# import mpi4py\nimport mpi4pyx\nprint('import mpi4py')\n")
    put(tmp_path / "tool", f"#!{python}\nimport mpi4py\n")
    path = ":".join(str(tmp_path / name) for name in ("impi", "mpich", "slurm"))
    env = {"PATH": f"{path}:{tmp_path}/bin", "SLURM_JOB_ID": "7" * ("srun" in installed)}
    job = read_workload(words.format(app=app, python=python).split(), env).mpi
    assert job[:1] == ((start,) if start else ())


def test_other_scripts_and_missing_commands_are_opaque(tmp_path):
    for text in ("#!/bin/sh\nexec x\n", "#!/bin/bash\n", "#!/usr/bin/python3\r\n", "no program", "\n"):
        workload = read_workload([put(tmp_path / "script", text)], {})
        assert (workload.opaque, workload.libraries) == (True, ()), text
    for argv in (["bash", "-c", "x"], ["sh", "x"], ["nonesuch"], ["/nonesuch"]):
        assert read_workload(argv, os.environ).opaque
    assert not read_workload([], {}).opaque


def test_preloads_are_found_in_the_environment_of_the_python(tmp_path, python):
    workload = read_workload([python], {})
    (path,) = find_preloads(["iomp"], workload, {})
    assert path == str(tmp_path / "venv/lib/libiomp5.so")
    gomp, mine = find_preloads(["gomp"], workload, {"LD_PRELOAD": "/x/libmine.so"})
    assert (gomp.endswith("torch/lib/libgomp.so.1"), mine) == (True, "/x/libmine.so")
    assert find_preloads(["iomp"], workload, {"LD_PRELOAD": path}) == (path,)
    link = tmp_path / "venv/bin/python"  # without a Python: the virtual environment of the shell
    link.symlink_to("python3.12")
    env = {"VIRTUAL_ENV": str(tmp_path / "venv")}
    assert find_default_python(env) == str(link)
    assert find_preloads(["iomp"], Workload(), env) == (path,)
    link.unlink()
    assert find_default_python(env) == find_default_python({}) == sys.executable


def test_a_link_to_another_runtime_is_not_preloaded_for_it(tmp_path):
    """conda creates a libgomp.so.1 that is a link to the libomp in the same directory."""
    put(tmp_path / "conda/lib/libomp.so")
    (tmp_path / "conda/lib/libgomp.so.1").symlink_to("libomp.so")
    real = put(tmp_path / "lib/libgomp.so.1.0.0")
    env = {"CONDA_PREFIX": str(tmp_path / "conda"), "LD_LIBRARY_PATH": str(tmp_path / "lib")}
    assert find_preloads(["gomp"], Workload(), env) == (real,)


def test_an_expected_library_that_is_not_preloaded_or_that_a_static_program_ignores_is_reported(tmp_path):
    path = put(tmp_path / "libtcmalloc_minimal.so.4")
    (tmp_path / "libmine.so").symlink_to(path)
    workload = read_workload([], {"LD_PRELOAD": path})
    assert list(find_missing_preloads(["tcmalloc", f"{tmp_path}/libmine.so"], workload, [path])) == []
    texts = list(find_missing_preloads(["iomp", f"{tmp_path}/other.so"], workload, [path]))
    assert ["--preload iomp" in texts[0], f"--preload {tmp_path}/other.so adds it" in texts[1]] == [True] * 2
    (text,) = find_missing_preloads(["tcmaloc"], Workload(), ())
    assert "known are tcmalloc, jemalloc" in text
    static = read_workload([put(tmp_path / "app")], {"LD_PRELOAD": path})
    assert (static.static, found(static)) == (True, [])
    (text,) = find_missing_preloads([], static, ())
    assert "statically linked" in text


@pytest.mark.parametrize(("name", "message", "hint"), rows("""
    jemallok                | neither a path nor one of tcmalloc, jemalloc       | '/'
    ./none.so               | there is no such file                              |
    {directory}/foreign.so  | it is for aarch64, the program is for x86_64       | for x86_64
    {directory}/text.so     | it is not a shared library                         | give a shared library
    {directory}/a b.so      | cannot hold a path with a space                    | link
    iomp                    | no libiomp5 in                                     | install intel-openmp
"""))  # fmt: skip
def test_a_library_that_cannot_be_preloaded_is_refused(tmp_path, name, message, hint):
    put(tmp_path / "foreign.so", make_elf(machine=183))
    put(tmp_path / "text.so", "hello")
    put(tmp_path / "a b.so")
    app = put(tmp_path / "bin/app", make_elf(machine=22, little=False) if name == "iomp" else "")
    with pytest.raises(RequestError) as caught:
        find_preloads([name.format(directory=tmp_path)], read_workload([app], {}), {})
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(("value", "warnings"), rows("""
    {directory}/libtcmalloc{tab}.so::                    |
    /usr/$LIB/libtcmalloc.so.4                           |
    /nonesuch.so                                         | /nonesuch.so, which does not exist
    {directory}/foreign.so:{directory}/text.so           | foreign.so, which is not for x86_64;text.so
"""))  # fmt: skip
def test_entries_of_ld_preload_that_cannot_be_loaded_are_reported(tmp_path, value, warnings):
    put(tmp_path / "libtcmalloc\t.so")
    put(tmp_path / "foreign.so", make_elf(machine=183))
    put(tmp_path / "text.so", "hello")
    app = put(tmp_path / "app", make_elf(["libgomp.so.1"]))
    value = value.format(directory=tmp_path, tab="\t")
    workload = read_workload([app], {"LD_PRELOAD": f" {value}"})
    expected = list(filter(None, warnings.split(";")))
    assert len(workload.preload_warnings) == len(expected)
    assert all(text in warning for text, warning in zip(expected, workload.preload_warnings, strict=True))
    if "$LIB" in value:
        assert list(find_missing_preloads(["tcmalloc"], workload, [value.strip(":")])) == []


NAMES = st.text(st.characters(codec="ascii", min_codepoint=33, exclude_characters=":$"), min_size=1)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("elf") / "file"


@given(st.lists(NAMES, unique=True, max_size=8), st.sampled_from([32, 64]), st.booleans())
def test_elf_headers_are_read_in_every_layout(file, needed, bits, little):
    file.write_bytes(make_elf(needed, machine=22, bits=bits, little=little, runpath="$ORIGIN/x:/y"))
    assert read_elf(str(file)) == Elf(
        machine=22, bits=bits, is_little_endian=little, needed=tuple(needed),
        search_path=("$ORIGIN/x", "/y"), is_runpath=True, static=not needed,
    )  # fmt: skip


@given(st.binary(max_size=300), st.booleans(), st.integers(0, 400))
def test_random_bytes_and_truncated_files_are_no_error(file, data, marked, length):
    file.write_bytes((b"\x7fELF\x02\x01" if marked else b"") + data)
    header = read_header(str(file))
    assert header is None or isinstance(header, Elf)
    file.write_bytes(make_elf(["libc.so.6", "libgomp.so.1"])[:length])
    read_header(str(file))


@pytest.mark.parametrize(("word", "hint"), [
    ("cd /tmp", "use --chdir DIR"), ("NAMES=a b", "--env 'NAMES=a b'"),
    ("PORT=8000 sleep 1", "--env PORT=8000 -- sleep 1"),
    ("sleep 1", "without quotes around all of it: -- sleep 1"),
    ("sleep 1 && date", "-- sh -c 'sleep 1 && date'"), ("sleep 1\ndate", "-- sh -c '...'"),
    ("--mask=0|1", "options of ompbind before --"), ("source env.sh", "use sh -c 'source ...'"),
    ("file", "write ./file"), ("{directory}/none", "there is no such file"),
])  # fmt: skip
def test_a_command_that_is_not_found_has_a_hint(tmp_path, monkeypatch, word, hint):
    put(tmp_path / "sleep", "#!/bin/sh\n")
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    word, hint = word.format(directory=tmp_path), hint.format(directory=tmp_path)
    with pytest.raises(CommandNotFoundError) as caught:
        find_command(word, {"PATH": f"/none:{tmp_path}" if word != "file" else "/none"})
    assert caught.value.message == f"command not found: {word}"
    assert hint in caught.value.hint
