"""A new OpenMP runtime needs one row only: with the row in a copy of the package, all verbs know it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ompbind
from ompbind.openmp.runtimes import OmpRuntime, find_aborting_pair, find_intercepting_pair
from tests.elves import make_elf
from tests.live.conftest import clean_environment

ROW = """
    TOY = (
        "toy",
        RuntimeFacts(
            library="plaything",
            stems=("libtoyomp",),
            plugins=("libtoyomp-plugin",),
            sonames=("libtoyomp.so.7",),
            packages="toy-openmp (nowhere)",
            directories=("{directory}/toys-*",),
            cleared_variables=("TOY_AFFINITY", "TOY_LIST"),
            cpu_list_variable="TOY_LIST",
            places_limit=3000,
            project="Toys",
            version_directory="toys-",
            version_names=(("toy_new", 3), ("toy", 2)),
            forks_safely_from=3,
            narrows_at_load=True,
            not_preloaded_with=("intel",),
            aborts_with=("gomp",),
            abort_message="no two toys",
        ),
    )
"""
FIRST = "\n    GOMP = ("
"""The first row. The toy is inserted before it, as it names later rows; other rows name earlier rows."""


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """A directory with libraries, programs that need them, and a copy of ompbind with the row of the toy."""
    directory = tmp_path_factory.mktemp("toys")
    shutil.copytree(Path(ompbind.__file__).parent, directory / "copy/ompbind")
    table = directory / "copy/ompbind/openmp/runtimes.py"
    source = table.read_text()
    assert source.count(FIRST) == 1
    table.write_text(source.replace(FIRST, ROW.format(directory=directory) + FIRST))
    for name in ("toys-2/libtoyomp.so.7", "lib/libtoyomp.so.7", "lib/libgomp.so.1", "lib/libiomp5.so"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(make_elf(names=["toy"] * (name == "lib/libtoyomp.so.7")))
    for name, needed in {"app": ["libtoyomp.so.7"], "both": ["libtoyomp.so.7", "libgomp.so.1"]}.items():
        (directory / name).write_bytes(make_elf(needed, runpath="$ORIGIN/lib"))
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def run(toys):
    def run(*argv, **env):
        settings = {"PYTHONPATH": str(toys / "copy"), "COLUMNS": "200", "LD_LIBRARY_PATH": str(toys / "lib")}
        options = {"env": clean_environment(**settings, **env), "capture_output": True, "text": True}
        return subprocess.run([sys.executable, "-P", *argv], timeout=60, **options)

    return run


def plan(run, *argv, **env):
    done = run("-m", "ompbind", "plan", "--topology", "synthetic:core:4 pu:1", *argv, **env)
    return " ".join(done.stderr.split()) if done.returncode else json.loads(done.stdout)


def test_help_lists_it_and_its_files_are_detected(run, toys):
    text = " ".join(run("-m", "ompbind", "plan", "--help-all").stdout.split())
    assert "auto (default), toy, gomp, llvm, intel" in text
    code = """if True:
        import sys
        from ompbind.programs.python_packages import find_candidates, name_runtime
        from ompbind.programs.libraries import identify_library
        libraries = [identify_library(path) for path in sys.argv[1:3]]
        print(*(f"{found.kind.name} {found.family} {found.version}" for found in libraries))
        print(name_runtime("/x/libtoyomp-0a1b.so.7.0"), name_runtime("/x/libtoyomp-plugin-x.so"))
        print(*find_candidates({}))
    """
    done = run("-c", code, str(toys / "lib/libtoyomp.so.7"), str(toys / "toys-2/libtoyomp.so.7"))
    known, named, candidates = done.stdout.splitlines()
    assert (known, named) == ("plaything toy 2 plaything toy 2", "toy None")
    assert {"libtoyomp.so.7", f"{toys}/toys-2/libtoyomp.so.7"} < set(candidates.split())


def test_it_is_bound_as_its_version_allows_and_its_variables_are_removed_and_warned_about(run, toys):
    made = plan(run, "--env", "TOY_LIST=0", "--format", "json", "--", str(toys / "app"))
    notes = {note["code"]: note["text"] for note in made["notes"]}
    assert "libtoyomp of Toys 2 (needed by app); no places" in notes["omp-runtime"]
    assert "Toys 3" in notes["omp-runtime"]
    assert "TOY_LIST=0" in notes["omp-runtime-conflict"]
    env = made["ranks"][0]["env"]
    assert (env["OMP_PROC_BIND"], env["TOY_AFFINITY"]) == ("false", None)


def test_conflicting_runtimes_are_refused_and_reported(run, toys):
    refused = plan(run, "--", str(toys / "both"))
    assert "a process that loads libtoyomp and libgomp aborts (no two toys)" in refused
    refused = plan(run, "--preload", "plaything,iomp", "--", str(toys / "app"))
    assert "libtoyomp and libiomp5 are preloaded together" in refused
    done = run("-m", "ompbind", "doctor", "--format", "json", "--", str(toys / "both"))
    issues = [issue for issue in json.loads(done.stdout)["findings"] if issue["check"] == "runtimes"]
    texts = [f"{issue['found']}: {issue.get('why')}" for issue in issues]
    assert any("the second runtime aborts it (no two toys)" in text for text in texts)
    assert any("crash if OMP_PLACES names CPUs (before Toys 3)" in text for text in texts)


def test_conflicts_are_found_from_the_row_of_either_runtime_and_versions_differ():
    every = set(OmpRuntime)
    assert find_intercepting_pair(every) == (OmpRuntime.GOMP, OmpRuntime.LLVM)
    assert find_aborting_pair(every) == (OmpRuntime.LLVM, OmpRuntime.INTEL, "OMP: Error #15")
    assert find_aborting_pair({OmpRuntime.GOMP, OmpRuntime.INTEL, None}) is None
    assert find_intercepting_pair({OmpRuntime.LLVM, OmpRuntime.INTEL}) is None
    assert not OmpRuntime.INTEL.runs_on("aarch64")
    found = {
        (str(runtime), version): (runtime.resets(version), runtime.forks_safely(version))
        for runtime in OmpRuntime
        for version in (None, 14, 15, 16)
    }
    assert found["gomp", None] == (False, True)
    assert found["intel", None] == found["llvm", None] == found["llvm", 16] == (True, True)
    assert (found["llvm", 14], found["llvm", 15]) == ((False, False), (True, False))
