"""`--preload`, `--expect`, `--omp-runtime`, `--strict`: what ranks load, and warnings before they start."""

import json
import os
import shutil
import sys

import pytest

from ompbind.programs.library_catalog import LIBRARY_KINDS
from tests.live.conftest import two_cpus

SHOW = [sys.executable, "-c", "import os; print(os.environ.get('LD_PRELOAD'), os.environ['OMP_PROC_BIND'])"]


def test_the_library_comes_before_inherited_entries(ompbind, library):
    done = ompbind("run", "--share", "--preload", library, "--", *SHOW, env={"LD_PRELOAD": library})
    assert done.stdout.split()[0] == library
    other = os.path.join(os.path.dirname(library), "libother.so")
    shutil.copy(library, other)
    done = ompbind("run", "--share", "--preload", library, "--", *SHOW, env={"LD_PRELOAD": other})
    assert done.stdout.split()[0] == f"{library}:{other}"


def test_the_library_comes_before_entries_of_env_options(ompbind, library):
    other = os.path.join(os.path.dirname(library), "libof0.so")
    shutil.copy(library, other)
    words = ("run", "--share", "--env", f"LD_PRELOAD={other.replace('0', '{rank}')}", "--preload", library)
    done = ompbind(*words, "--", *SHOW)
    assert (done.stdout.split()[0], done.stderr) == (f"{library}:{other}", "")


def test_variables_that_override_the_plan_are_a_warning_or_with_strict_an_error(ompbind):
    words = ("run", "--share", "--keep-env", "--env", "OMP_PROC_BIND=close")
    done = ompbind(*words, "--", "true", env={"OMP_PLACES": "{0}"})
    assert done.returncode == 0
    assert "OMP_PLACES={0} (from --env or --keep-env) will override" in " ".join(done.stderr.split())
    assert "OMP_PROC_BIND" not in done.stderr
    done = ompbind(*words, "--strict", "--", "true", env={"OMP_PLACES": "{0}"})
    assert done.returncode == 125


def test_a_pipe_is_not_executed(ompbind, tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o755)
    for verb in ("run", "exec"):
        done = ompbind(verb, "--share", "--", str(tmp_path / "pipe"))
        assert done.returncode == 126
        assert "it is not a regular file" in " ".join(done.stderr.split())


def test_the_library_is_loaded(ompbind, library):
    command = ["grep", "-c", "libtcmalloc", "/proc/self/maps"]
    assert ompbind("run", "--share", "--preload", library, "--", *command).returncode == 0


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_an_expected_and_missing_library_is_a_warning_or_with_strict_an_error(ompbind, library, verb):
    done = ompbind(verb, "--share", "--expect", "tcmalloc", "--", "true")
    assert done.returncode == 0
    assert "warning: tcmalloc is expected in LD_PRELOAD" in " ".join(done.stderr.split())
    done = ompbind(verb, "--share", "--strict", "--expect", "tcmalloc", "--", "true")
    assert done.returncode == 125
    done = ompbind(verb, "--share", "--strict", "--preload", library, "--expect", "tcmalloc", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_inherited_library_that_does_not_exist_is_reported(ompbind, library):
    done = ompbind("run", "--share", "--", "true", env={"LD_PRELOAD": f"{library} /nonesuch/lib.so"})
    assert "LD_PRELOAD names /nonesuch/lib.so, which does not exist" in " ".join(done.stderr.split())


def test_a_library_that_cannot_be_preloaded_starts_nothing(ompbind, tmp_path):
    marker = tmp_path / "started"
    done = ompbind("run", "--preload", "/nonesuch.so", "--", "touch", str(marker))
    assert done.returncode == 125
    assert "there is no such file" in done.stderr
    assert not marker.exists()


def test_a_plan_with_a_command_has_its_program_in_json(ompbind):
    done = ompbind("plan", "--format", "json", "--", *SHOW)
    workload = json.loads(done.stdout)["workload"]
    assert workload["python"] == sys.executable
    assert not workload["opaque"]
    assert json.loads(ompbind("plan", "--format", "json").stdout)["workload"] is None


def test_a_script_in_exact_mode_is_a_warning_unless_the_runtime_is_given(ompbind):
    two_cpus()
    command = ["--share", "--bind", "exact", "-m", "all", "--", "sh", "-c", "true"]
    stderr = " ".join(ompbind("run", *command).stderr.split())
    assert "--bind exact: if the command runs Python, or a program with two OpenMP runtimes" in stderr
    assert ompbind("run", "--omp-runtime", "gomp", *command).stderr == ""
    assert ompbind("run", "--strict", *command).returncode == 125


@pytest.mark.parametrize("name", ["tcmalloc", "jemalloc", "mimalloc", "gomp", "omp", "iomp"])
def test_libraries_are_found_by_name_and_loaded(ompbind, name):
    label = LIBRARY_KINDS[name].label
    command = ["sh", "-c", 'echo "$LD_PRELOAD"; exec cat /proc/self/maps']
    done = ompbind("run", "--share", "--preload", name, "--expect", name, "--strict", "--", *command)
    if done.returncode == 125 and f"no {label} in" in done.stderr and not os.environ.get("OMPTEST_ALL"):
        pytest.skip(f"{label} is not installed")
    assert (done.returncode, done.stderr) == (0, "")
    path, *maps = done.stdout.splitlines()
    assert os.path.basename(path).startswith(label)
    assert any(os.path.realpath(path) in line for line in maps)
