"""What a command would run is read from files: programs, scripts, wrappers, and Pythons with packages."""

import os
import sys
from glob import glob
from pathlib import Path

import pytest

from ompbind.errors import RequestError
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs import library_search
from ompbind.programs.command import Workload, read_workload
from ompbind.programs.library_catalog import DetectionMethod, name_libraries, name_library
from ompbind.programs.library_search import find_library, identify_library, linker_directories
from ompbind.programs.preload import find_missing_preloads, find_preloads
from ompbind.programs.python_packages import find_default_python
from tests.elves import make_elf


@pytest.mark.parametrize(
    ("path", "name", "version"),
    [
        ("/x/torch/lib/libgomp.so.1", "gomp", None),
        ("/x/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0", "gomp", None),
        ("/usr/lib/llvm-14/lib/libomp.so.5", "omp", 14),
        ("/x/libomp-7ab2.so", "omp", None),
        ("/x/lib/libiomp5.so", "iomp", None),
        ("/x/numpy.libs/libscipy_openblas64_-32a4b2a6.so", "openblas", None),
        ("/usr/lib/libopenblasp-r0.3.21.so", "openblas", None),
        ("/x/libtcmalloc_minimal.so.4.5.9 (deleted)", "tcmalloc", None),
        ("libjemalloc.so.2", "jemalloc", None),
        ("/usr/lib/gcc/libgomp-plugin-nvptx.so.1", None, None),
        ("/usr/lib/libomptarget.so.14", None, None),
        ("/usr/lib/libompd.so", None, None),
        ("/x/libgomp.a", None, None),
        ("/x/libgomphosis.so", None, None),
        ("", None, None),
    ],
)
def test_libraries_are_recognized_by_their_names(path, name, version):
    found = name_library(path)
    assert (found and found.kind.name, found and found.version) == (name, version)


def test_a_file_counts_once():
    assert len(name_libraries(["/a/libgomp.so.1", "/a/libc.so.6", "/a/libgomp.so.1", "/b/libgomp.so.1"])) == 2


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    path.chmod(0o755)
    return str(path)


def found(workload):
    return [(found.library.kind.name, str(found.method), found.origin) for found in workload.libraries]


def test_libraries_that_a_program_needs_are_found_recursively(tmp_path):
    put(tmp_path / "lib/libmine.so", make_elf(["libgomp.so.1"], runpath="$ORIGIN/../other"))
    put(tmp_path / "other/libgomp.so.1", make_elf())
    app = put(tmp_path / "app", make_elf(["libc.so.6", "libmine.so"], runpath="$ORIGIN/lib"))
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


def test_a_missing_library_is_recognized_by_its_name(tmp_path):
    app = put(tmp_path / "app", make_elf(["libiomp5.so"], machine=22, little=False))
    assert found(read_workload([app], {})) == [("iomp", "needed", "app")]


@pytest.mark.parametrize("tag", ["runpath", "rpath"])
def test_directories_are_searched_in_the_order_of_the_linker(tmp_path, tag):
    """RPATH comes before LD_LIBRARY_PATH, RUNPATH after it."""
    put(tmp_path / "own/libx.so", make_elf(["libgomp.so.1"]))
    put(tmp_path / "listed/libx.so", make_elf(["libiomp5.so"]))
    app = put(tmp_path / "app", make_elf(["libx.so"], **{tag: "$ORIGIN/own"}))
    assert found(read_workload([app], {}))[0][0] == "gomp"
    name = found(read_workload([app], {"LD_LIBRARY_PATH": str(tmp_path / "listed")}))[0][0]
    assert name == ("gomp" if tag == "rpath" else "iomp")


def test_an_empty_item_of_ld_library_path_is_the_current_directory(tmp_path, monkeypatch):
    real = put(tmp_path / "libiomp5.so", make_elf())
    (tmp_path / "libgomp.so.1").symlink_to(real)
    app = put(tmp_path / "bin/app", make_elf(["libgomp.so.1"]))
    monkeypatch.chdir(tmp_path)
    assert found(read_workload([app], {"LD_LIBRARY_PATH": ":/nonesuch"}))[0][0] == "iomp"
    assert found(read_workload([app], {"LD_LIBRARY_PATH": ""}))[0][0] == "gomp"


def test_a_library_that_is_not_found_is_no_file_of_the_current_directory(tmp_path, monkeypatch):
    put(tmp_path / "libiomp5.so", make_elf())
    (tmp_path / "libgomp.so.99").symlink_to("libiomp5.so")
    app = put(tmp_path / "bin/app", make_elf(["libgomp.so.99"]))
    monkeypatch.chdir(tmp_path)
    assert [name for name, *_ in found(read_workload([app], {}))] == ["gomp"]


def test_a_preloaded_library_is_not_loaded_a_second_time(tmp_path):
    put(tmp_path / "own/libgomp.so.1", make_elf(soname="libgomp.so.1"))
    mine = put(tmp_path / "mine/libgomp-12.so", make_elf(soname="libgomp.so.1"))
    app = put(tmp_path / "app", make_elf(["libgomp.so.1"], runpath="$ORIGIN/own"))
    assert found(read_workload([app], {"LD_PRELOAD": mine})) == [("gomp", "preloaded", "LD_PRELOAD")]


def test_a_static_program_ignores_preloaded_libraries(tmp_path):
    app = put(tmp_path / "app", make_elf())
    mine = put(tmp_path / "libiomp5.so", make_elf())
    workload = read_workload([app], {"LD_PRELOAD": mine})
    assert workload.static
    assert found(workload) == []
    (text,) = find_missing_preloads([], workload, ())
    assert "statically linked" in text
    assert not read_workload([put(tmp_path / "other", make_elf(["libc.so.6"]))], {}).static


def test_variables_that_env_sets_for_a_program_are_used(tmp_path):
    mine = put(tmp_path / "libiomp5.so", make_elf())
    app = put(tmp_path / "app", make_elf(["libgomp.so.1"]))
    argv = ["env", "-u", "A", f"LD_PRELOAD={mine}", app, "LD_PRELOAD=/nonesuch"]
    workload = read_workload(argv, {"PATH": os.environ["PATH"]})
    assert [name for name, _, _ in found(workload)] == ["iomp", "gomp"]
    assert workload.preload_warnings == ()


def test_pipes_are_never_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o755)
    pipe = str(tmp_path / "pipe")
    app = put(tmp_path / "app", make_elf(["libc.so.6"]))
    assert read_workload([pipe], {}).opaque
    assert "is not a library" in read_workload([app], {"LD_PRELOAD": pipe}).preload_warnings[0]
    os.mkfifo(tmp_path / "pyvenv.cfg")
    assert read_workload([put(tmp_path / "bin/python3", make_elf())], {}).python


def test_libraries_that_need_each_other_are_read_once(tmp_path):
    put(tmp_path / "liba.so", make_elf(["libb.so"], runpath="$ORIGIN"))
    put(tmp_path / "libb.so", make_elf(["liba.so", "libgomp.so.1"], runpath="$ORIGIN"))
    app = put(tmp_path / "app", make_elf(["liba.so"], runpath="${ORIGIN}"))
    assert [name for name, _, _ in found(read_workload([app], {}))] == ["gomp"]


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (["__kmpc_fork_call"], 14),
        (["__kmpc_fork_call", "omp_in_explicit_task"], 15),
        (["__kmpc_fork_call", "omp_in_explicit_task", "__kmpc_fork_call_if"], 16),
        (["something_else"], None),
    ],
)
def test_the_version_of_libomp_is_read_from_the_names_that_it_exports(tmp_path, names, version):
    path = put(tmp_path / "libomp.so", make_elf(names=names))
    assert identify_library(path).version == version


def test_the_target_of_a_link_decides_what_a_library_is(tmp_path):
    real = put(tmp_path / "libiomp5.so", make_elf())
    (tmp_path / "libgomp.so.1").symlink_to(real)
    assert identify_library(str(tmp_path / "libgomp.so.1")).family is OmpRuntime.INTEL


@pytest.fixture
def python(tmp_path):
    """The Python of a virtual environment with the libraries of torch, scikit-learn and numpy."""
    site = tmp_path / "venv/lib/python3.12/site-packages"
    put(site / "torch/lib/libgomp.so.1", make_elf())
    put(site / "torch/lib/libtorch.so", make_elf())
    put(site / "scikit_learn.libs/libgomp-abc.so.1.0.0", make_elf())
    put(site / "numpy.libs/libscipy_openblas64_-12.so", make_elf())
    put(tmp_path / "venv/lib/libiomp5.so", make_elf())
    put(tmp_path / "venv/pyvenv.cfg", "home = /nowhere\ninclude-system-site-packages = false\n")
    return put(tmp_path / "venv/bin/python3.12", make_elf())


_BESIDE = '"$(CDPATH= cd -- "$(dirname -- "$0")" && echo "$PWD")"'
"""How scripts of a relocatable environment name their directory."""

EXPECTED = [
    ("gomp", "available", "torch"),
    ("iomp", "available", "venv"),
    ("gomp", "available", "scikit_learn"),
    ("openblas", "available", "numpy"),
]


@pytest.mark.parametrize(
    "command",
    [
        "{python} serve.py",
        "{tool} serve",
        "{env} -S {python} -u x",
        "env A=1 nice -n 5 {python} x",
        "taskset -c 0 {python} x",
        "timeout 5 {python} x",
        "{long} x",
        "{quoted} x",
        "{beside} x",
        "{link} x",
        "{by_env} x",
    ],
)
def test_a_python_may_load_the_libraries_in_its_packages(tmp_path, python, command):
    words = {
        "python": python,
        "env": "env",
        "tool": put(tmp_path / "tool", f"#!{python}\nimport torch\n"),
        "long": put(tmp_path / "long", f"#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n"),
        "quoted": put(tmp_path / "quoted", f"#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n' '''\n"),
        "beside": put(tmp_path / "beside", f"#!/bin/sh\n'''exec' {_BESIDE}/'venv/bin/python3.12' \"$0\"\n"),
        "link": str(tmp_path / "venv/bin/py"),
        "by_env": put(tmp_path / "by_env", "#!/usr/bin/env python3.12\n"),
    }
    (tmp_path / "venv/bin/py").symlink_to("python3.12")
    env = {"PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"}
    workload = read_workload(command.format(**words).split(), env)
    libraries = [
        (name, method, "venv" if "/" in origin else origin) for name, method, origin in found(workload)
    ]
    assert sorted(libraries) == sorted(EXPECTED)
    assert workload.python in (python, words["link"])
    assert not workload.opaque


def test_a_python_in_the_current_directory_has_its_environment(tmp_path, python, monkeypatch):
    monkeypatch.chdir(os.path.dirname(python))
    workload = read_workload(["./python3.12"], {})
    assert workload.python == python
    assert len(found(workload)) == len(EXPECTED)


@pytest.mark.parametrize("name", ["t", "3", "3.11", "pythonic", "python-config", "pypyx"])
def test_other_names_are_not_taken_for_a_python(tmp_path, name):
    app = put(tmp_path / name, make_elf(["libiomp5.so"]))
    workload = read_workload([app], {})
    assert (workload.python, found(workload)[0][:2]) == ("", ("iomp", "needed"))


@pytest.mark.parametrize("name", ["uv", "mpirun", "poetry", "bash"])
def test_programs_that_start_others_are_opaque(tmp_path, python, name):
    assert read_workload([put(tmp_path / name, make_elf(["libc.so.6"]))], {}).opaque
    assert read_workload([put(tmp_path / "x" / name, f"#!{python}\n")], {}).opaque


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\nexec x\n", "#!/bin/bash\n", "#!/usr/bin/python3\r\n", "no program", ""]
)
def test_other_scripts_are_opaque(tmp_path, text):
    workload = read_workload([put(tmp_path / "script", text)], {})
    assert workload.opaque
    assert not workload.libraries


@pytest.mark.parametrize("argv", [["bash", "-c", "x"], ["sh", "x"], ["nonesuch"], ["/nonesuch"]])
def test_shells_and_missing_commands_are_opaque(argv):
    assert read_workload(argv, os.environ).opaque


def test_a_package_that_bundles_no_runtime_has_that_of_the_system(tmp_path):
    (tmp_path / "usr/lib/python3/dist-packages/sklearn").mkdir(parents=True)
    python = put(tmp_path / "usr/bin/python3.12", make_elf())
    system_library = find_library("libgomp.so.1", None, linker_directories({}))
    expected = [("gomp", "available", "sklearn")] if system_library else []
    assert found(read_workload([python], {})) == expected


def test_no_command_is_not_opaque():
    assert not read_workload([], {}).opaque


def test_preloaded_libraries_come_first_and_faults_are_reported(tmp_path):
    good = put(tmp_path / "libiomp5.so", make_elf())
    other = put(tmp_path / "libomp.so", make_elf(machine=183))
    text = put(tmp_path / "libtext.so", "hello")
    app = put(tmp_path / "app", make_elf(["libgomp.so.1"]))
    env = {"LD_PRELOAD": f"{good}:/nonesuch.so {other} {text}"}
    workload = read_workload([app], env)
    assert [(detected.library.kind.name, detected.method) for detected in workload.libraries] == [
        ("iomp", DetectionMethod.PRELOADED),
        ("gomp", DetectionMethod.NEEDED),
    ]
    missing, foreign, invalid = workload.preload_warnings
    assert "/nonesuch.so, which does not exist" in missing
    assert f"{other}, which is not for x86_64 programs" in foreign
    assert text in invalid


def test_preloads_are_found_in_the_environment_of_the_python(tmp_path, python):
    workload = read_workload([python], {})
    (path,) = find_preloads(["iomp"], workload, {})
    assert path == str(tmp_path / "venv/lib/libiomp5.so")
    gomp, mine = find_preloads(["gomp"], workload, {"LD_PRELOAD": "/x/libmine.so"})
    assert gomp.endswith("torch/lib/libgomp.so.1")
    assert mine == "/x/libmine.so"
    assert find_preloads(["iomp"], workload, {"LD_PRELOAD": path}) == (path,)


def test_without_a_python_the_virtual_environment_of_the_shell_is_searched(tmp_path, python):
    link = tmp_path / "venv/bin/python"
    link.symlink_to("python3.12")
    env = {"VIRTUAL_ENV": str(tmp_path / "venv")}
    assert find_default_python(env) == str(link)
    assert find_preloads(["iomp"], Workload(), env) == (str(tmp_path / "venv/lib/libiomp5.so"),)
    link.unlink()
    assert find_default_python(env) == find_default_python({}) == sys.executable


def test_a_link_to_another_runtime_is_not_preloaded_for_it(tmp_path):
    """conda creates a libgomp.so.1 that is a link to the libomp in the same directory."""
    put(tmp_path / "conda/lib/libomp.so", make_elf())
    (tmp_path / "conda/lib/libgomp.so.1").symlink_to("libomp.so")
    real = put(tmp_path / "lib/libgomp.so.1.0.0", make_elf())
    env = {"CONDA_PREFIX": str(tmp_path / "conda"), "LD_LIBRARY_PATH": str(tmp_path / "lib")}
    assert find_preloads(["gomp"], Workload(), env) == (real,)


def test_a_link_to_another_runtime_alone_is_refused_with_its_target(tmp_path):
    put(tmp_path / "lib/libomp.so", make_elf())
    (tmp_path / "lib/libiomp5.so").symlink_to("libomp.so")
    app = put(tmp_path / "app", make_elf(machine=22, little=False))
    with pytest.raises(RequestError) as caught:
        find_preloads(["iomp"], read_workload([app], {}), {"CONDA_PREFIX": str(tmp_path)})
    assert caught.value.hint == f"{tmp_path}/lib/libiomp5.so is a link to libomp.so: use --preload omp"


def test_a_library_is_expected_by_its_path_through_links(tmp_path):
    real = put(tmp_path / "libmine.so.1", make_elf())
    (tmp_path / "libmine.so").symlink_to("libmine.so.1")
    workload = read_workload([], {"LD_PRELOAD": real})
    assert list(find_missing_preloads([f"{tmp_path}/libmine.so"], workload, [real])) == []
    (text,) = find_missing_preloads([f"{tmp_path}/other.so"], workload, [real])
    assert f"--preload {tmp_path}/other.so adds it" in text


def test_an_unknown_name_of_an_expected_library_is_reported_with_the_known_names():
    (text,) = find_missing_preloads(["tcmaloc"], Workload(), ())
    assert "known are tcmalloc, jemalloc" in text


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("jemallok", "neither a path nor one of tcmalloc, jemalloc", "'/'"),
        ("./none.so", "there is no such file", ""),
        ("{directory}/foreign.so", "it is for aarch64, the program is for x86_64", "for x86_64"),
        ("{directory}/text.so", "it is not a shared library", "give a shared library for x86_64"),
        ("{directory}/a b.so", "cannot hold a path with a space", "link"),
    ],
)
def test_a_library_that_cannot_be_preloaded_is_refused(tmp_path, name, message, hint):
    put(tmp_path / "foreign.so", make_elf(machine=183))
    put(tmp_path / "text.so", "hello")
    put(tmp_path / "a b.so", make_elf())
    app = put(tmp_path / "bin/app", make_elf())
    with pytest.raises(RequestError) as caught:
        find_preloads([name.format(directory=tmp_path)], read_workload([app], {}), {})
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_missing_library_is_refused_with_the_package_that_contains_it(tmp_path):
    app = put(tmp_path / "bin/app", make_elf(machine=22, little=False))
    with pytest.raises(RequestError) as caught:
        find_preloads(["iomp"], read_workload([app], {}), {})
    assert "no libiomp5 in" in caught.value.message
    assert "install intel-openmp" in caught.value.hint


def test_only_colons_and_spaces_separate_preloads(tmp_path):
    path = put(tmp_path / "libtcmalloc\t.so", make_elf())
    assert read_workload([], {"LD_PRELOAD": f" {path}::"}).preload_warnings == ()


@pytest.mark.parametrize("path", ["/usr/$LIB/libtcmalloc.so.4", "/x/{rank}/libtcmalloc.so"])
def test_entries_with_placeholders_are_recognized_by_name(path):
    workload = read_workload([], {"LD_PRELOAD": path})
    assert workload.preload_warnings == ()
    assert list(find_missing_preloads(["tcmalloc"], workload, [path])) == []


def test_entries_that_the_linker_expands_are_not_checked():
    assert read_workload([], {"LD_PRELOAD": "/usr/$LIB/libx.so"}).preload_warnings == ()


def test_an_expected_library_that_is_not_preloaded_is_reported(tmp_path):
    path = put(tmp_path / "libtcmalloc_minimal.so.4", make_elf())
    workload = read_workload([], {"LD_PRELOAD": path})
    assert list(find_missing_preloads(["tcmalloc"], workload, [path])) == []
    (text,) = find_missing_preloads(["tcmalloc", "iomp"], workload, [path])
    assert text.startswith("iomp is expected in LD_PRELOAD")
    assert "--preload iomp" in text


@pytest.mark.parametrize(
    "pattern", ["*.conf", "*", "b*.conf", "?.conf", "[ab].conf", ".*", "*/x.conf", "a.conf", "no/*"]
)
def test_the_configuration_of_the_linker_includes_the_files_that_match(tmp_path, monkeypatch, pattern):
    for name in ("a.conf", "b.conf", "c.txt", ".hidden.conf", "d.conf/x.conf"):
        put(tmp_path / "parts" / name, f"/opt/{name}  # a comment\n")
    put(tmp_path / "ld.so.conf", f"/first\ninclude parts/{pattern}\n/last\n")
    monkeypatch.setattr(library_search, "_CONFIGURATION", str(tmp_path / "ld.so.conf"))
    files = [path for path in map(Path, sorted(glob(str(tmp_path / "parts" / pattern)))) if path.is_file()]
    included = [f"/opt/{path.relative_to(tmp_path / 'parts')}" for path in files]
    found = linker_directories({})
    assert found[: found.index("/last") + 1] == ["/first", *included, "/last"]
