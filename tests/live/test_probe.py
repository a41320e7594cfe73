"""`ompbind probe`: real threads of real OpenMP runtimes, each inside its rank's CPUs."""

import glob
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ompbind.cpuset import CpuSet
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.probe.libraries import find_candidates, name_runtime
from tests.elves import make_elf
from tests.live.conftest import required, two_cpus

RUNTIMES = ("libgomp", "libomp", "libiomp5")


def probe(ompbind, *args, env=None):
    done = ompbind("run", *args, "--", "ompbind", "probe", "--format", "json", env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def runtimes(lines):
    return {line["runtime"] for line in lines} - {None}


def test_every_runtime_of_this_machine_is_found(ompbind):
    found = runtimes(probe(ompbind))
    if os.environ.get("OMPTEST_ALL"):
        assert found == set(RUNTIMES), "CI must install all three"
    elif not found:
        pytest.skip("no OpenMP runtime on this machine")


@pytest.mark.parametrize("bind", ["rank", "thread", "core", "exact", "none"])
def test_ranks_are_disjoint_and_every_thread_stays_inside(ompbind, bind):
    first, second = two_cpus()
    lines = probe(ompbind, "-n", "2", "--bind", bind)
    for line in lines:
        cpu = {0: first, 1: second}[line["rank"]]
        assert (line["cpus_allowed"], line["cpu"]) == (str(cpu), cpu)
    assert runtimes(line for line in lines if line["rank"] == 0) == runtimes(lines)


@pytest.mark.parametrize(
    ("bind", "thread_0", "thread_1"),
    [
        ("rank", "both", "both"),
        ("none", "both", "both"),
        ("thread", "both", "second"),
        ("core", "both", "second"),
        ("exact", "first", "second"),
    ],
)
def test_each_mode_binds_threads_as_it_says_in_every_runtime(ompbind, bind, thread_0, thread_1):
    first, second = two_cpus()
    lists = {"both": str(CpuSet((first, second))), "first": str(first), "second": str(second)}
    lines = probe(ompbind, "-m", f"{first},{second}", "--bind", bind)
    for runtime in runtimes(lines):
        own = [line for line in lines if line["runtime"] == runtime]
        masks = {line["thread"]: line["cpus_allowed"] for line in own}
        assert masks == {0: lists[thread_0], 1: lists[thread_1]}, runtime
        assert {line["threads"] for line in own} == {2}


def test_inherited_variables_do_not_defeat_the_binding(ompbind):
    hostile = {
        "GOMP_CPU_AFFINITY": "0-99", "KMP_AFFINITY": "norespect,granularity=fine,compact",
        "KMP_HW_SUBSET": "1t", "OMP_PLACES": "{0-3}", "OMP_PROC_BIND": "spread", "OMP_NUM_THREADS": "7",
        "OMP_THREAD_LIMIT": "1",
    }  # fmt: skip
    _, second = two_cpus()
    for line in probe(ompbind, "-q", "-m", str(second), env=hostile):
        assert (line["cpus_allowed"], line["threads"]) == (str(second), 1)


def test_the_table_shows_the_same(ompbind):
    done = ompbind("run", "-n", "2", "--", "ompbind", "probe")
    assert done.returncode == 0
    for rank, cpu in enumerate(two_cpus()):
        assert f"rank {rank} (pid " in done.stdout
        assert f"): allowed on CPU {cpu}\n" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "(/" not in line) <= 80


def test_each_file_of_a_runtime_is_a_candidate_once(tmp_path):
    site = tmp_path / "lib"
    site.mkdir()
    for name in ("libgomp-e985bcbb.so.1.0.0", "libgomp-plugin-x.so.1", "libcompat.so", "libiomp5.so"):
        (site / name).write_text("")
    (site / "libomp.so").symlink_to("libiomp5.so")
    found = [
        Path(path).name for path in find_candidates({"CONDA_PREFIX": str(tmp_path)}) if str(tmp_path) in path
    ]
    assert found == ["libgomp-e985bcbb.so.1.0.0", "libiomp5.so"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/x/libgomp.so.1", "gomp"),
        ("/x/libgomp-e985bcbb.so.1.0.0", "gomp"),
        ("/x/libomp-14.so.5", "llvm"),
        ("/x/libiomp5.so", "intel"),
        ("/x/libompitrace.so.40", None),
        ("/x/libgomp-plugin-nvptx.so.1", None),
    ],
)
def test_name_runtime(path, name):
    assert name_runtime(path) == name


@pytest.fixture
def environments(ompbind, tmp_path):
    """Two virtual environments whose Pythons cannot run, each with a libgomp of its own in torch."""
    paths = (json.loads(line)["path"] for line in ompbind("probe", "--format", "json").stdout.splitlines())
    libgomp = next((path for path in paths if path and name_runtime(path) is OmpRuntime.GOMP), None)
    if libgomp is None:
        pytest.skip("no libgomp on this machine")
    for name in ("a", "b"):
        directory = tmp_path / name / "lib/python3.12/site-packages/torch/lib"
        directory.mkdir(parents=True)
        shutil.copy(libgomp, directory / "libgomp.so.1")
        python = tmp_path / name / "bin/python"
        python.parent.mkdir()
        python.write_bytes(make_elf(["libc.so.6"]))
        python.chmod(0o755)
        (tmp_path / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "env", "found"),
    [
        ([], {}, ""),
        ([], {"VIRTUAL_ENV": "{}/a"}, "a"),
        (["--python", "{}/b/bin/python"], {}, "b"),
        (["--python", "{}/b/bin/python"], {"VIRTUAL_ENV": "{}/a"}, "b"),
        ([], {"VIRTUAL_ENV": "{}/removed"}, ""),
    ],
)
def test_the_runtimes_of_another_python_are_probed(ompbind, environments, args, env, found):
    words = [word.format(environments) for word in args]
    variables = {name: value.format(environments) for name, value in env.items()}
    done = ompbind("probe", "--format", "json", *words, env=variables)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    paths = {line["path"] for line in lines if line["path"].startswith(str(environments))}
    library = f"{environments}/{found}/lib/python3.12/site-packages/torch/lib/libgomp.so.1"
    assert paths == ({library} if found else set())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sh", "this is not a Python interpreter"),
        ("nonesuch", "this is not a Python interpreter"),
        ("", "this is not a Python interpreter"),
        ("/", "it is a directory"),
        ("/no/such/python", "there is no such file"),
    ],
)
def test_a_python_that_is_none_is_an_error(ompbind, name, why):
    done = ompbind("probe", "--python", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--python {name!r}: {why}" in done.stderr


def test_a_removed_environment_is_mentioned(ompbind):
    done = ompbind("probe", env={"VIRTUAL_ENV": "/no/such"})
    assert "VIRTUAL_ENV=/no/such has no bin/python: the packages of" in " ".join(done.stderr.split())
    assert done.returncode == 0


def test_files_that_are_not_libraries_are_skipped(ompbind, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libgomp.so.1").write_text("no library")
    done = ompbind("probe", "--format", "json", env={"CONDA_PREFIX": str(tmp_path)})
    assert done.returncode == 0
    assert str(tmp_path) not in done.stdout


def test_a_runtime_that_crashes_is_reported(ompbind, tmp_path):
    compiler = required("cc", "gcc")
    (tmp_path / "lib").mkdir()
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void die(void) { abort(); }\n"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(tmp_path / "lib/libgomp.so.1")]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    done = ompbind("probe", env={"CONDA_PREFIX": str(tmp_path)})
    assert done.returncode == 1
    assert f"{tmp_path}/lib/libgomp.so.1: no result, it crashed or hung" in done.stdout


@pytest.mark.alone
def test_a_probe_leaves_no_files(ompbind):
    before = set(glob.glob("/dev/shm/__KMP_REGISTERED_LIB_*"))
    assert ompbind("probe").returncode == 0
    assert not set(glob.glob("/dev/shm/__KMP_REGISTERED_LIB_*")) - before
