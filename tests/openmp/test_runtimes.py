"""One row is all that an OpenMP runtime takes: with it in a copy of the package, each verb knows it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ompbind
from ompbind.openmp.runtimes import OmpRuntime, find_ending, find_intercepting
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
            folders=("{folder}/toys-*",),
            clears=("TOY_AFFINITY", "TOY_LIST"),
            cpu_list="TOY_LIST",
            places_limit=3000,
            project="Toys",
            version_folder="toys-",
            version_names=(("toy_new", 3), ("toy", 2)),
            forks_safely_from=3,
            narrows_at_load=True,
            not_preloaded_with=("intel",),
            ends_beside=("gomp",),
            end_message="no two toys",
        ),
    )
"""
FIRST = "\n    GOMP = ("
"""The first row. The toy comes before it: it names rows that come later, all others name earlier ones."""


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """A folder with libraries, programs that need them, and an ompbind whose table has the row of a toy."""
    folder = tmp_path_factory.mktemp("toys")
    shutil.copytree(Path(ompbind.__file__).parent, folder / "house/ompbind")
    table = folder / "house/ompbind/openmp/runtimes.py"
    source = table.read_text()
    assert source.count(FIRST) == 1
    table.write_text(source.replace(FIRST, ROW.format(folder=folder) + FIRST))
    for name, names in {
        "toys-2/libtoyomp.so.7": [],
        "lib/libtoyomp.so.7": ["toy"],
        "lib/libgomp.so.1": [],
        "lib/libiomp5.so": [],
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(make_elf(names=names))
    for name, needed in {"app": ["libtoyomp.so.7"], "both": ["libtoyomp.so.7", "libgomp.so.1"]}.items():
        (folder / name).write_bytes(make_elf(needed, folders="$ORIGIN/lib"))
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def run(toys):
    def run(*argv, **env):
        settings = {"PYTHONPATH": str(toys / "house"), "COLUMNS": "200", "LD_LIBRARY_PATH": str(toys / "lib")}
        return subprocess.run(
            [sys.executable, "-P", *argv],
            env=clean_environment(**settings, **env),
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def plan(run, *argv, **env):
    done = run("-m", "ompbind", "plan", "--topology", "synthetic:core:4 pu:1", *argv, **env)
    return " ".join(done.stderr.split()) if done.returncode else json.loads(done.stdout)


def test_help_offers_it(run):
    told = " ".join(run("-m", "ompbind", "plan", "--help").stdout.split())
    assert "auto (its files tell), toy, gomp, llvm, intel." in told
    assert "tcmalloc, jemalloc, mimalloc, iomp, omp, gomp, plaything, or a path" in told


def test_it_is_known_by_its_files_and_the_probe_looks_for_them(run, toys):
    code = """if True:
        import sys
        from ompbind.openmp.places import TEXT_LIMIT
        from ompbind.probe.libraries import find_candidates, name_runtime
        from ompbind.programs.library_search import identify_library
        libraries = [identify_library(path) for path in sys.argv[1:3]]
        print(*(f"{one.kind.name} {one.family} {one.version}" for one in libraries))
        print(name_runtime("/x/libtoyomp-0a1b.so.7.0"), name_runtime("/x/libtoyomp-plugin-x.so"), TEXT_LIMIT)
        print(*find_candidates({}))
    """
    done = run("-c", code, str(toys / "lib/libtoyomp.so.7"), str(toys / "toys-2/libtoyomp.so.7"))
    known, named, candidates = done.stdout.splitlines()
    assert known == "plaything toy 2 plaything toy 2"
    assert named == "toy None 3000"
    assert {"libtoyomp.so.7", f"{toys}/toys-2/libtoyomp.so.7"} < set(candidates.split())


def test_its_variables_are_cleared_and_told(run):
    made = plan(run, "--omp-runtime", "toy", "--env", "TOY_LIST=0", "--format", "json")
    assert made["ranks"][0]["env"]["TOY_AFFINITY"] is None
    notes = {note["code"]: note["text"] for note in made["notes"]}
    assert notes["omp-runtime"].startswith("OpenMP runtime: libtoyomp, as --omp-runtime says")
    assert notes["omp-runtime-conflict"].startswith("TOY_LIST=0, which --env or --keep-env gives to ranks")


def test_inspect_reads_its_variables(run):
    code = """if True:
        from ompbind.inspection.expectation import is_relevant
        print(is_relevant("TOY_LIST"), is_relevant("TOY"))
    """
    assert run("-c", code).stdout.split() == ["True", "False"]


def test_it_is_bound_as_its_version_bears(run, toys):
    made = plan(run, "--format", "json", "--", str(toys / "app"))
    (told,) = (note["text"] for note in made["notes"] if note["code"] == "omp-runtime")
    assert told == (
        "OpenMP runtime: libtoyomp of Toys 2 (app needs it); "
        "no places, with which a libtoyomp before Toys 3 crashes the children that it forks"
    )
    assert made["ranks"][0]["env"]["OMP_PROC_BIND"] == "false"


def test_what_it_cannot_be_with_is_refused(run, toys):
    refused = plan(run, "--", str(toys / "both"))
    assert "libtoyomp and libgomp in one process end it (no two toys)" in refused
    refused = plan(run, "--preload", "plaything,iomp", "--", str(toys / "app"))
    assert "libtoyomp and libiomp5 are preloaded together" in refused


def test_doctor_tells_of_it(run, toys):
    done = run("-m", "ompbind", "doctor", "--format", "json", "--", str(toys / "both"))
    found = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "runtimes"]
    words = [f"{one['found']}: {one.get('why')}" for one in found]
    assert any("ended by the second one (no two toys)" in one for one in words)
    assert any("crash when OMP_PLACES names CPUs (before Toys 3)" in one for one in words)


def test_each_pair_is_looked_at_from_both_sides():
    every = set(OmpRuntime)
    assert find_intercepting(every) == (OmpRuntime.GOMP, OmpRuntime.LLVM)
    assert find_ending(every) == (OmpRuntime.LLVM, OmpRuntime.INTEL, "OMP: Error #15")
    assert find_ending({OmpRuntime.GOMP, OmpRuntime.INTEL, None}) is None
    assert find_intercepting({OmpRuntime.LLVM, OmpRuntime.INTEL}) is None


@pytest.mark.parametrize(
    ("runtime", "version", "resets", "forks"),
    [
        (OmpRuntime.GOMP, None, False, True),
        (OmpRuntime.LLVM, None, True, True),
        (OmpRuntime.LLVM, 14, False, False),
        (OmpRuntime.LLVM, 15, True, False),
        (OmpRuntime.LLVM, 16, True, True),
        (OmpRuntime.INTEL, None, True, True),
    ],
)
def test_versions_differ(runtime, version, resets, forks):
    assert (runtime.resets(version), runtime.forks_safely(version)) == (resets, forks)


def test_words_of_the_command_line_are_rows():
    assert [str(one) for one in OmpRuntime] == ["gomp", "llvm", "intel"]
    assert OmpRuntime("llvm") is OmpRuntime.LLVM
    assert not OmpRuntime.INTEL.runs_on("aarch64")
