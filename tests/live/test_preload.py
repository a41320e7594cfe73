"""`--preload`, `--expect`, `--omp-runtime`, `--strict`: what ranks load, and warnings before they start."""

import os
import shutil

import pytest

from ompbind.programs.libraries import LIBRARY_KINDS
from tests.live.conftest import two_cpus

SHOW = ["sh", "-c", "echo $LD_PRELOAD; exec cat /proc/self/maps"]


def said(done):
    return " ".join(done.stderr.split())


def test_the_library_is_loaded_before_inherited_entries_and_those_of_env_options(ompbind, library):
    inherited, own = (os.path.join(os.path.dirname(library), name) for name in ("libother.so", "libof0.so"))
    for path in (inherited, own):
        shutil.copy(library, path)
    words = ("run", "--share", "--preload", library)
    done = ompbind(*words, "--", *SHOW, env={"LD_PRELOAD": inherited})
    assert (done.stdout.split()[0], done.stderr) == (f"{library}:{inherited}", "")
    assert done.stdout.count(library) > 2
    assert ompbind(*words, "--", *SHOW, env={"LD_PRELOAD": library}).stdout.split()[0] == library
    done = ompbind(*words, "--env", f"LD_PRELOAD={own.replace('0', '{rank}')}", "--", *SHOW)
    assert (done.stdout.split()[0], done.stderr) == (f"{library}:{own}", "")


def test_variables_that_override_the_plan_are_a_warning_or_with_strict_an_error(ompbind):
    words = ("run", "--share", "--keep-env", "--env", "OMP_PROC_BIND=close")
    done = ompbind(*words, "--", "true", env={"OMP_PLACES": "{0}"})
    assert done.returncode == 0
    assert "OMP_PLACES={0} (from --env or --keep-env) will override" in said(done)
    assert "OMP_PROC_BIND" not in done.stderr
    assert ompbind(*words, "--strict", "--", "true", env={"OMP_PLACES": "{0}"}).returncode == 125


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_an_expected_and_missing_library_is_a_warning_or_with_strict_an_error(ompbind, library, verb):
    words, command = (verb, "--share", "--expect", "tcmalloc"), ("--", "true")
    done = ompbind(*words, *command)
    assert (done.returncode, "tcmalloc is expected in LD_PRELOAD" in said(done)) == (0, True)
    assert ompbind(*words, "--strict", *command).returncode == 125
    done = ompbind(*words, "--strict", "--preload", library, *command)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_library_that_does_not_exist_is_reported_or_starts_nothing(ompbind, library):
    done = ompbind("run", "--share", "--", "true", env={"LD_PRELOAD": f"{library} /nonesuch/lib.so"})
    assert "LD_PRELOAD names /nonesuch/lib.so, which does not exist" in said(done)
    done = ompbind("run", "--preload", "/nonesuch.so", "--", "echo", "started")
    assert (done.returncode, done.stdout, "there is no such file" in done.stderr) == (125, "", True)


def test_a_script_in_exact_mode_is_a_warning_unless_the_runtime_is_given(ompbind):
    two_cpus()
    command = ("--share", "--bind", "exact", "-m", "all", "--", "sh", "-c", "true")
    assert "--bind exact: if the command runs Python, or a program with two" in said(ompbind("run", *command))
    assert ompbind("run", "--omp-runtime", "gomp", *command).stderr == ""
    assert ompbind("run", "--strict", *command).returncode == 125


@pytest.mark.parametrize("name", ["tcmalloc", "jemalloc", "mimalloc", "gomp", "omp", "iomp"])
def test_libraries_are_found_by_name_and_loaded(ompbind, name):
    label = LIBRARY_KINDS[name].label
    done = ompbind("run", "--share", "--preload", name, "--expect", name, "--strict", "--", *SHOW)
    if done.returncode == 125 and f"no {label} in" in done.stderr and not os.environ.get("OMPTEST_ALL"):
        pytest.skip(f"no {label}: {said(done).partition('hint: ')[2]}")
    assert (done.returncode, done.stderr) == (0, "")
    path, *maps = done.stdout.splitlines()
    assert os.path.basename(path).startswith(label)
    assert any(os.path.realpath(path) in line for line in maps)
