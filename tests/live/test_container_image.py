"""The image of packaging/Dockerfile in containers of podman: limits, rights, signals, exit codes.

Building the image takes a minute. Its base is made of Debian's packages, so that no registry is needed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from tests.live.conftest import one_line, required, start_program, two_cpus
from tests.live.containers import LIMITS, podman
from tests.live.test_run import SIGNALLED
from tests.packaging.scripts import ROOT

pytestmark = pytest.mark.part("image")

SHOW = ("sh", "-c", "echo $RANK $OMPBIND_CPUS $OMP_NUM_THREADS")
TWO = ("--env", "OMPBIND_RANKS=2")


def run_quietly(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


def build_image(podman, directory):
    """Build the image `ompbind` on the base `debian`; pip gets all wheels from a directory.

    The base is made once if OMPTEST_DEBIAN names a directory for it.
    """
    base = Path(os.environ.get("OMPTEST_DEBIAN") or directory) / "python3-python3-venv.tar"
    if not base.exists():
        paths = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
        make = (required("mmdebstrap"), "--variant=essential", "--include=python3,python3-venv", *paths)
        run_quietly(*make, "bookworm", str(base), "http://deb.debian.org/debian")
    run_quietly(*podman, "import", str(base), "debian")
    wheels, settings = directory / "wheels", directory / "pip.conf"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:")
    run_quietly(*pip, "--dest", str(wheels), *wanted)
    settings.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    volumes = ("--volume", f"{wheels}:/wheels:ro", "--volume", f"{settings}:/etc/pip.conf:ro")
    how = ("--isolation=oci", "--network=none", "--layers=false", *LIMITS, *volumes)
    file = ("--file", str(ROOT / "packaging/Dockerfile"), "--build-arg", "BASE=localhost/debian")
    run_quietly(*podman, "build", *how, *file, "--tag", "ompbind", str(ROOT))


@pytest.fixture(scope="module")
def words():
    with podman("overlay") as found, tempfile.TemporaryDirectory() as directory:
        build_image(found, Path(directory))
        yield found
        run_quietly(*found, "rm", "--all", "--force", "--time", "0")
        run_quietly(*found, "rmi", "--all", "--force")


@pytest.fixture
def start(words, tmp_path):
    """Start a container of the name `tested`; it is removed after the test."""
    started = []

    def begin(options, *command):
        line = (*words, "run", "--rm", "--name", "tested", *LIMITS, "--network=none", *options, "ompbind")
        # podman writes a file `oom` into its directory when memory runs out
        started.append(start_program(*line, *command, cwd=tmp_path))
        return started[-1]

    yield begin
    run_quietly(*words, "rm", "--ignore", "--force", "--time", "0", "tested")
    for process in started:
        process.communicate(timeout=20)


@pytest.fixture
def run(start):
    """Run a container; return its exit code, the lines of its output in order, and its messages."""

    def finish(options, *command):
        process = start(options, *command)
        out, err = process.communicate(timeout=60)
        return process.returncode, sorted(out.splitlines()), one_line(err)

    return finish


@pytest.mark.parametrize(("options", "cpus", "threads"), [
    ("", None, 2), ("--cpus 1.5", None, 1), ("--cpuset-cpus 1 --cpus 1.5 --memory 200m", "1", 1),
])  # fmt: skip
def test_threads_are_limited_to_the_container(run, options, cpus, threads):
    both = two_cpus()
    _, out, err = run(options.split(), *SHOW)
    assert out == [f"0 {cpus or f'{both[0]}-{both[1]}'} {threads}"], err
    assert ("the CPU quota of the cgroup is" in err) == (threads == 1 and cpus is None)


@pytest.mark.parametrize(("command", "code", "message"), [
    ((), 125, "hint: write it after the image"),
    (("-n", "2", "--", "true"), 127, "set variables such as OMPBIND_RANKS, or use --entrypoint ompbind"),
    (("sh", "-c", "kill -KILL $$"), 137, "was killed by SIGKILL"),
])  # fmt: skip
def test_exit_codes_and_hints(run, command, code, message):
    found, _, err = run((), *command)
    assert (found, message in err) == (code, True)


@pytest.mark.parametrize("options", ["--user 12345:0", "--user 12345:0 --ipc none --env HOME=", "--user 0"])
def test_containers_with_few_rights(run, options):
    rights = "--read-only --read-only-tmpfs=false --cap-drop all --security-opt no-new-privileges"
    shown = [f"{rank} {cpu} 1" for rank, cpu in enumerate(two_cpus())]
    assert run((*rights.split(), *TWO, *options.split()), *SHOW) == (0, shown, "")


def test_the_image_leaves_python_to_the_base(run, words):
    code = "import sys, importlib.util as util; print(sys.executable, util.find_spec('ompbind'))"
    assert run((), "python3", "-c", code)[1] == ["/usr/bin/python3 None"]
    (image,) = json.loads(run_quietly(*words, "image", "inspect", "ompbind"))
    assert image["Config"]["Entrypoint"] == ["ompbind", "run", "--"]
    env = dict(line.split("=", 1) for line in image["Config"]["Env"])
    assert float(env["OMPBIND_GRACE"]) < 10, "docker stop kills after 10 seconds"
    assert image["Size"] < 260e6, "not much more than Debian with Python"


def read_lines(process):
    return sorted(process.stdout.readline() for _ in range(2))


def test_below_an_init_signals_reach_all_ranks_and_programs_that_start_later_find_the_run(start, words):
    """Without --init, ompbind is process 1, as in test_first_process.py."""
    init = ("--init", "--init-path", required("catatonit", "tini"))
    process = start((*init, *TWO), "python3", "-c", SIGNALLED)
    assert read_lines(process) == ["up\n"] * 2
    live = json.loads(run_quietly(*words, "exec", "tested", "ompbind", "ps", "--format", "json"))
    assert len(live["runs"]) == 1, live
    for number in (signal.SIGHUP, signal.SIGTERM):
        run_quietly(*words, "kill", "--signal", str(int(number)), "tested")
        assert read_lines(process) == [f"0 {number}\n", f"1 {number}\n"]
    assert process.wait(20) == 100 + signal.SIGTERM
