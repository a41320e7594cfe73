"""`ompbind probe`: real threads of real OpenMP runtimes, each inside its rank's CPUs."""

import json
import os
import re
import shutil
import subprocess

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.python_packages import name_runtime
from tests.elves import make_elf
from tests.live.conftest import one_line, required, skip_without, two_cpus


def probe(ompbind, *args, env=None):
    done = ompbind("run", *args, "--", "ompbind", "probe", "--format", "json", env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_runtime_is_found_and_every_thread_stays_inside_its_rank(ompbind):
    first, second = two_cpus()
    lines = probe(ompbind, "-n", "2", "--bind", "exact")
    found = [{line["runtime"] for line in lines if line["rank"] == rank} - {None} for rank in (0, 1)]
    assert found[0] == found[1]
    if os.environ.get("OMPTEST_ALL"):
        assert found[0] == {"libgomp", "libomp", "libiomp5"}, "CI must install all three"
    for line in lines:
        cpu = {0: first, 1: second}[line["rank"]]
        assert (line["cpus_allowed"], line["cpu"]) == (str(cpu), cpu)
        assert line["place"] == 0 or line["runtime"] != "libgomp"
    table = ompbind("run", "-n", "2", "--", "ompbind", "probe").stdout
    for rank, cpu in enumerate((first, second)):
        assert f"rank {rank} (pid " in table
        assert f"): allowed on CPU {cpu}\n" in table


def test_the_runtimes_of_another_python_are_probed(ompbind, tmp_path):
    """Two virtual environments have Pythons that cannot run, each with a libgomp of its own in torch."""
    paths = (json.loads(line)["path"] for line in ompbind("probe", "--format", "json").stdout.splitlines())
    libgomp = next((path for path in paths if path and name_runtime(path) is OmpRuntime.GOMP), None)
    if libgomp is None:
        skip_without("libgomp")
    for name in ("a", "b"):
        directory = tmp_path / name / "lib/python3.12/site-packages/torch/lib"
        directory.mkdir(parents=True)
        shutil.copy(libgomp, directory / "libgomp.so.1")
        python = tmp_path / name / "bin/python"
        python.parent.mkdir()
        python.write_bytes(make_elf(["libc.so.6"]))
        python.chmod(0o755)
        (tmp_path / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for args, environment, found in (
        ([], "a", "a"),
        (["--python", f"{tmp_path}/b/bin/python"], "a", "b"),
        ([], "removed", ""),
    ):
        env = {"VIRTUAL_ENV": f"{tmp_path}/{environment}"}
        done = ompbind("probe", "--format", "json", *args, env=env)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        paths = {line["path"] for line in lines if line["path"].startswith(str(tmp_path))}
        library = f"{tmp_path}/{found}/lib/python3.12/site-packages/torch/lib/libgomp.so.1"
        assert paths == ({library} if found else set())
        assert "removed has no bin/python" in one_line(done.stderr) or found


def test_a_python_that_is_none_is_an_error(ompbind):
    for name, why in (("nonesuch", "this is not a Python"), ("/", "is a directory"), ("/no", "no such file")):
        done = ompbind("probe", "--python", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr


def test_each_runtime_that_crashes_is_reported_once_and_what_is_no_runtime_is_skipped(ompbind, tmp_path):
    (tmp_path / "lib").mkdir()
    names = "libgomp-e98.so.1.0.0 libiomp5.so libomp.so.5 libgomp.so.1 libgomp-plugin.so.1 libompitrace.so"
    files = [tmp_path / "lib" / name for name in names.split()]
    (tmp_path / "lib/libomp.so").symlink_to("libiomp5.so")
    files[0].write_text("no library")
    done = ompbind("probe", "--format", "json", env={"CONDA_PREFIX": str(tmp_path)})
    assert (done.returncode, str(tmp_path) in done.stdout) == (0, False)
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void die(void) { abort(); }\n"
    command = [required("cc", "gcc"), "-shared", "-fPIC", "-x", "c", "-", "-o", files[0]]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    for file in files[1:]:
        shutil.copy(files[0], file)
    done = ompbind("probe", env={"CONDA_PREFIX": str(tmp_path)})
    assert done.returncode == 1
    assert re.findall(r"(\S+): no result, it crashed or hung", done.stdout) == [*map(str, files[:3])]
