"""`--preload`, `--expect`, `--omp-runtime`, `--strict`: what ranks load, and warnings before they start."""

import os
import shutil

import pytest

from ompbind.programs.libraries import LIBRARY_KINDS
from tests.live.conftest import one_line

SHOW = ["sh", "-c", "echo $LD_PRELOAD; exec cat /proc/self/maps"]


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


@pytest.mark.two_cpus
@pytest.mark.parametrize(("verb", "options", "text", "remedy"), [
    ("run", "--keep-env --env OMP_PROC_BIND=close", "OMP_PLACES={0} (from --env or --keep-env) will", None),
    ("run", "--expect tcmalloc", "tcmalloc is expected in LD_PRELOAD", "--preload"),
    ("exec", "--expect tcmalloc", "tcmalloc is expected in LD_PRELOAD", "--preload"),
    ("run", "--bind exact -m all", "--bind exact: if the command runs Python, or a", "--omp-runtime=gomp"),
])  # fmt: skip
def test_a_fault_is_a_warning_or_with_strict_an_error(ompbind, library, verb, options, text, remedy):
    words, command = (verb, "--share", *options.split()), ("--", "sh", "-c", "true")
    env = {"OMP_PLACES": "{0}"}
    done = ompbind(*words, *command, env=env)
    assert (done.returncode, text in one_line(done.stderr)) == (0, True)
    assert "OMP_PROC_BIND" not in done.stderr
    assert ompbind(*words, "--strict", *command, env=env).returncode == 125
    if remedy:
        remedied = [remedy, library] if remedy == "--preload" else [remedy]
        done = ompbind(*words, "--strict", *remedied, *command)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["tcmalloc", "jemalloc", "mimalloc", "gomp", "omp", "iomp"])
def test_libraries_are_found_by_name_and_loaded(ompbind, name):
    label = LIBRARY_KINDS[name].label
    done = ompbind("run", "--share", "--preload", name, "--expect", name, "--strict", "--", *SHOW)
    if done.returncode == 125 and f"no {label} in" in done.stderr and not os.environ.get("OMPTEST_ALL"):
        pytest.skip(f"no {label}: {one_line(done.stderr).partition('hint: ')[2]}")
    assert (done.returncode, done.stderr) == (0, "")
    path, *maps = done.stdout.splitlines()
    assert os.path.basename(path).startswith(label)
    assert any(os.path.realpath(path) in line for line in maps)
