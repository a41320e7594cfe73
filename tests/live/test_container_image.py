"""The image of packaging/Dockerfile in containers of podman: limits, rights, signals, exit codes.

Building the image takes a minute, and needs a mirror of Debian and PyPI.
"""

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.conftest import required, two_cpus
from tests.live.containers import LIMITS, podman
from tests.live.images import ROOT, build_image, run_quietly
from tests.live.test_first_process import LEAVES_ZOMBIES, SIGNALLED

pytestmark = pytest.mark.part("image")

SHOW = "echo $RANK $OMPBIND_CPUS $OMP_NUM_THREADS"
BY_VERB = ("--entrypoint", "ompbind")


@pytest.fixture(scope="module")
def words():
    """The words before a command of podman, which has the image."""
    with podman("overlay") as found, tempfile.TemporaryDirectory() as directory:
        build_image(found, Path(directory))
        yield found
        run_quietly(*found, "rm", "--all", "--force", "--time", "0")
        run_quietly(*found, "rmi", "--all", "--force")


def container_command(words, *options, image="ompbind", command=(), name="tested"):
    start = (*words, "run", "--rm", "--name", name, *LIMITS, "--network=none")
    return [*start, *options, image, *command]


@pytest.fixture
def run(words, tmp_path):
    """Run a container: options of podman, then the words after the image; returns the completed process."""

    def run_container(options, *command):
        settings = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": 60}
        line = container_command(words, *options, command=command)
        # podman writes a file `oom` into its directory when memory runs out
        return subprocess.run(line, cwd=tmp_path, **settings)

    return run_container


@pytest.fixture
def start(words):
    """Start a container of the name `tested`; it is removed after the test."""
    started = []

    def begin(options, *command, **settings):
        default = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        line = container_command(words, *options, command=command)
        started.append(subprocess.Popen(line, text=True, **{**default, **settings}))
        return started[-1]

    yield begin
    run_quietly(*words, "rm", "--ignore", "--force", "--time", "0", "tested")
    for process in started:
        process.communicate(timeout=20)


def unwrapped(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "cpus", "threads"),
    [
        ((), None, None),
        (("--cpus", "1"), None, 1),
        (("--cpus", "1.5"), None, 1),
        (("--cpuset-cpus", "1"), "1", 1),
        (("--cpuset-cpus", "1", "--cpus", "1.5", "--memory", "200m"), "1", 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_threads_are_limited_to_the_container(run, options, cpus, threads):
    both = two_cpus()
    done = run(options, "sh", "-c", SHOW)
    assert done.stdout == f"0 {cpus or f'{both[0]}-{both[1]}'} {threads or 2}\n", done.stderr
    assert ("the CPU quota of the cgroup is" in unwrapped(done.stderr)) == (threads == 1 and cpus is None)


def test_two_ranks_share_a_quota(run):
    done = run(("--cpus", "1.5", "--env", "OMPBIND_RANKS=2"), "sh", "-c", SHOW)
    first, second = two_cpus()
    assert sorted(done.stdout.splitlines()) == [f"0 {first} 1", f"1 {second} 1"]
    assert "which is too little for 2 ranks" in unwrapped(done.stderr)


def test_doctor_names_the_container_and_its_quota(run):
    done = run(("--cpus", "1.5", *BY_VERB), "doctor")
    assert "the cgroup limits CPU time to 1.5 of 2 allowed CPUs" in unwrapped(done.stdout)
    assert re.search(r"container +podman", done.stdout), done.stdout


@pytest.mark.parametrize(
    ("options", "command"),
    [
        (("--env", "OMPBIND_RANKS=2"), ()),
        (BY_VERB, ("run", "-n", "2", "--")),
        ((), ("ompbind", "run", "-n", "2", "--")),
    ],
    ids=["variable", "entry point", "run in run"],
)
def test_ways_to_give_options(run, options, command):
    done = run(options, *command, "sh", "-c", SHOW)
    assert len(done.stdout.splitlines()) == 2, done.stderr
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ((), 125, "hint: write it after the image"),
        (("-n", "2", "--", "true"), 127, "set variables such as OMPBIND_RANKS, or use --entrypoint ompbind"),
        (("nothing",), 127, "command not found: nothing"),
        (("sh", "-c", "exit 7"), 7, ""),
        (("sh", "-c", "kill -KILL $$"), 137, "was killed by SIGKILL"),
        (("true",), 0, ""),
    ],
)
def test_exit_codes_and_hints(run, command, code, message):
    done = run((), *command)
    assert done.returncode == code
    assert message in unwrapped(done.stderr)


RESTRICTED = (
    "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges",
    "--env", "OMPBIND_RANKS=2",
)  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        (*RESTRICTED, "--user", "12345:0"),
        (*RESTRICTED, "--user", "12345:0", "--ipc", "none", "--env", "HOME="),
        (*RESTRICTED, "--user", "0"),
    ],
    ids=["unknown user", "no writable directory", "root"],
)
def test_containers_with_few_rights(run, options):
    done = run(options, "sh", "-c", SHOW)
    first, second = two_cpus()
    assert sorted(done.stdout.splitlines()) == [f"0 {first} 1", f"1 {second} 1"], done.stderr
    assert (done.returncode, done.stderr) == (0, "")


def test_python_and_packages_are_those_of_the_base(run):
    code = "import sys, importlib.util as util; print(sys.executable, util.find_spec('ompbind'))"
    assert run((), "python3", "-c", code).stdout == "/usr/bin/python3 None\n"
    assert run(("--entrypoint", "python3"), "-c", "import os; print(os.getpid())").stdout == "1\n"


STALE = """
import glob, importlib.util, os
files = glob.glob("/opt/ompbind/lib/python3*/site-packages/ompbind/**/*.py", recursive=True)
def is_stale(path):
    with open(importlib.util.cache_from_source(path), "rb") as file:
        return int.from_bytes(file.read(12)[8:], "little") != int(os.stat(path).st_mtime)
print(len(files) > 200, sum(map(is_stale, files)))
"""
"""Prints how many modules Python would compile again in each container, which takes half a second."""


def test_all_modules_of_the_image_are_compiled(run):
    assert run(("--entrypoint", "python3"), "-c", STALE).stdout == "True 0\n"


def test_the_zipapp_needs_only_python(words, tmp_path):
    """In a container of the base, which has no package but Python's own."""
    script = ROOT / "packaging/zipapp.py"
    if not script.exists():
        pytest.skip("there is no packaging/zipapp.py")
    archive = tmp_path / "ompbind.pyz"
    run_quietly(sys.executable, str(script), "--output", str(archive))
    options = (
        "--volume",
        f"{archive}:/usr/local/bin/ompbind:ro",
        "--entrypoint",
        '["ompbind", "run", "-n", "2", "--"]',
    )
    command = container_command(words, *options, image="debian", command=("sh", "-c", SHOW))
    first, second = two_cpus()
    assert sorted(run_quietly(*command).splitlines()) == [f"0 {first} 1", f"1 {second} 1"]


def test_settings_of_the_image(words):
    (image,) = json.loads(run_quietly(*words, "image", "inspect", "ompbind"))
    settings = image["Config"]
    assert settings["Entrypoint"] == ["ompbind", "run", "--"]
    env = dict(line.split("=", 1) for line in settings["Env"])
    assert float(env["OMPBIND_GRACE"]) < 10, "docker stop kills after 10 seconds"
    labels = settings["Labels"]
    assert labels["org.opencontainers.image.title"] == "ompbind"
    assert image["Size"] < 260e6, "not much more than Debian with Python"


def test_a_rank_that_needs_too_much_memory_has_a_hint(run):
    limits = ("--memory", "60m", "--memory-swap", "60m")
    done = run(limits, "python3", "-c", "bytearray(200_000_000)")
    assert done.returncode == 137
    assert "memory ran out, and the kernel killed a process of this cgroup" in unwrapped(done.stderr)


def test_forbidden_memory_policies_are_a_warning(run, tmp_path):
    """As in docker, whose profile for system calls has set_mempolicy only for CAP_SYS_NICE."""
    profile = tmp_path / "profile.json"
    refused = {"names": ["set_mempolicy"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]}))
    options = ("--security-opt", f"seccomp={profile}", "--env", "OMPBIND_MEMORY=bind")
    done = run(options, "echo", "started")
    assert (done.returncode, done.stdout) == (0, "started\n")
    assert "memory policies are forbidden here" in unwrapped(done.stderr)


def test_programs_that_start_later_in_the_container_find_the_run(start, words):
    process = start(("--env", "OMPBIND_RANKS=2"), "sh", "-c", "echo up; exec sleep 300")
    assert read_lines(process, 2) == ["up\n"] * 2
    live = json.loads(run_quietly(*words, "exec", "tested", "ompbind", "ps", "--format", "json"))
    assert len(live["runs"]) == 1, live


def read_lines(process, number):
    return sorted(process.stdout.readline() for _ in range(number))


@pytest.mark.parametrize("init", [False, True], ids=["process 1", "--init"])
@pytest.mark.parametrize("name", ["HUP", "USR1", "INT", "QUIT", "TERM"])
def test_signals_from_outside_reach_all_ranks(start, words, name, init):
    options = ("--init", "--init-path", required("catatonit", "tini")) if init else ()
    process = start((*options, "--env", "OMPBIND_RANKS=2"), "python3", "-c", SIGNALLED)
    assert read_lines(process, 2) == ["up\n"] * 2
    number = signal.Signals[f"SIG{name}"]
    run_quietly(*words, "kill", "--signal", name, "tested")
    assert read_lines(process, 2) == [f"0 {number}\n", f"1 {number}\n"]
    if name in ("HUP", "USR1"):
        run_quietly(*words, "stop", "tested")
        number = signal.SIGTERM
    assert process.wait(20) == 100 + number


def test_stopping_a_container_gives_stubborn_ranks_only_the_grace(start, words):
    stubborn = "trap '' TERM; echo up; while :; do sleep 300; done"
    process = start(("--env", "OMPBIND_GRACE=0.5"), "sh", "-c", stubborn)
    assert process.stdout.readline() == "up\n"
    run_quietly(*words, "stop", "--time", "60", "tested")
    _, messages = process.communicate(timeout=20)
    assert process.returncode == 137
    assert "SIGKILL" in messages


def test_a_container_leaves_no_zombies(start, words):
    process = start((), "python3", "-c", LEAVES_ZOMBIES)
    assert process.stdout.readline() == "left\n"
    count = "cat /proc/[0-9]*/stat | grep -c ') Z '"
    wait = f"for i in $(seq 100); do [ $({count}) = 0 ] && break; sleep 0.05; done; {count} || true"
    assert run_quietly(*words, "exec", "tested", "sh", "-c", wait) == "0"


def test_a_killed_container_leaves_nothing(start, words):
    process = start(("--env", "OMPBIND_RANKS=2"), "sh", "-c", "echo up; exec sleep 300")
    assert read_lines(process, 2) == ["up\n"] * 2
    run_quietly(*words, "kill", "--signal", "KILL", "tested")
    assert process.wait(20) == 137


@contextmanager
def terminal():
    master, slave = pty.openpty()
    yield master, slave
    os.close(master)


def test_a_terminal_interrupts_the_rank(start):
    with terminal() as (master, slave):
        process = start(
            ("-it",), "sh", "-c", "echo up; exec sleep 300", stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        shown = b""
        while b"up" not in shown:
            shown += os.read(master, 1024)
        os.write(master, b"\x03")
        assert process.wait(20) == 130


def test_input_reaches_the_rank(start):
    process = start(("-i",), "cat", stdin=subprocess.PIPE)
    output, _ = process.communicate("hello\n", timeout=30)
    assert (process.returncode, output) == (0, "hello\n")
