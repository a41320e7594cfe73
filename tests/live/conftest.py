"""Fixtures of the tests that start real processes."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.live.not_held import find_reason
from tests.live.other_user import make_public_ompbind, public_directory, unavailable

RUNTIME_DIR = "OMPBIND_RUNTIME_DIR"
OMPBIND = str(Path(sys.executable).with_name("ompbind"))

if "OMPTEST_HOLD" in os.environ:
    os.environ["OMPBIND_HOLD"] = "true"


def pytest_collection_modifyitems(items):
    """With --hold, expect the tests in the table of exceptions to fail: one that passes is an error."""
    for item in items if "OMPTEST_HOLD" in os.environ else ():
        if reason := find_reason(f"{item.path.name}::{item.name}"):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def scene(tmp_path):
    from tests.live.scenes import Scene  # it imports this module

    new = Scene(tmp_path)
    yield new
    new.close()


@pytest.fixture(scope="session")
def public_ompbind():
    """A copy of ompbind that other users can run too, for tests of root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with public_directory() as directory:
        yield make_public_ompbind(directory)


@pytest.fixture
def public():
    """A directory that all users can write to, like /dev/shm."""
    with public_directory(0o1777) as directory:
        yield directory


@pytest.fixture(autouse=True)
def claims(tmp_path_factory, monkeypatch):
    """A directory of claims for each test, so that runs left by earlier tests do not count."""
    directory = tmp_path_factory.mktemp("claims")
    monkeypatch.setenv(RUNTIME_DIR, str(directory))
    return directory


def clean_environment(**extra):
    """Return the environment without variables of this test run, or of a run around it."""
    others = """
        (OMP(?!BIND_HOLD$)|KMP|GOMP|SLURM|PMI|FLUX|COVERAGE_PROCESS|CUDA_|ROCR_|HIP_|GPU_DEVICE_|ZE_|NVIDIA_VISIBLE_).*
        |.*_NUM_THREADS|(LOCAL_)?(RANK|WORLD_SIZE)|COLUMNS|PS1
    """
    kept = {name: os.environ[name] for name in os.environ if not re.fullmatch(others, name, re.X)}
    path = f"{Path(OMPBIND).parent}:{kept['PATH']}"
    return {**kept, RUNTIME_DIR: os.environ[RUNTIME_DIR], "PATH": path, **extra}


def run_program(*command, env=None, **options):
    """Run a program with these variables besides those of a clean environment."""
    settings = {"capture_output": True, "text": True, "timeout": 60, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, env=clean_environment(**(env or {})), **{**settings, **options})


def start_program(*command, env=None, **options):
    """Start a program with these variables besides those of a clean environment, and with pipes."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        command, env=clean_environment(**(env or {})), **{"text": True, **pipes, **options}
    )


@pytest.fixture
def ompbind():
    def run(*args, before=(), program=OMPBIND, **options):
        return run_program(*before, program, *args, **options)

    return run


@pytest.fixture
def start():
    """Start ompbind and leave it running; if it still runs after the test, it is killed.

    With `up`, wait until it has printed this many lines "up".
    """
    started = []

    def begin(*args, before=(), program=OMPBIND, up=0, **options):
        started.append(process := start_program(*before, program, *args, **options))
        lines = [process.stdout.readline() for _ in range(up)]
        assert lines == ["up\n"] * up, lines or process.communicate()
        return process

    yield begin
    for process in started:
        with process:  # closes its pipes and waits
            process.kill()


WAIT = "import os, time; os.write(1, b'up\\n'); time.sleep(300)"


@pytest.fixture
def live(start):
    """Start a run, or a rank with exec, of a Python program; wait until its ranks have printed "up"."""

    def begin(*options, verb="run", code=WAIT, args=(), ranks=1, **settings):
        return start(verb, *options, "--", sys.executable, "-c", code, *args, up=ranks, **settings)

    return begin


def one_line(text):
    """Return a text without its line breaks: messages are wrapped."""
    return " ".join(text.split())


def write_program(path, text, first="#!/bin/sh"):
    """Write a script that can be executed, and return its path as text."""
    path.write_text(f"{first}\n{text}\n")
    path.chmod(0o755)
    return str(path)


STRANGER = """
import os, signal, sys, time
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda number, _: print(number, flush=True))
with open("/proc/self/comm", "w") as file:
    file.write("rank-supervisor")
print("up", flush=True)
while True:
    time.sleep(300)
"""
"""A process of the same user that looks like one of ompbind, and prints each signal that it gets."""


@pytest.fixture(scope="session")
def stranger_process(tmp_path_factory):
    path = tmp_path_factory.mktemp("stranger") / "output"
    command = (sys.executable, "-I", "-S", "-c", STRANGER, "ompbind", "run", "-n", "2", "--", "sleep", "300")
    env = {"OMPBIND_RUN_ID": "of-a-stranger", "OMPBIND_RANK": "0"}
    with path.open("w") as file:
        process = start_program(*command, env=env, stdout=file, stderr=None, process_group=0)
    wait_until(lambda: path.read_text() == "up\n", "the stranger runs")
    yield process, path
    process.kill()
    process.wait()


@pytest.fixture
def stranger(stranger_process):
    """Check after a test that a process that has nothing to do with it got no signal."""
    process, path = stranger_process
    yield
    assert process.poll() is None, "the stranger was killed"
    assert state_of(process.pid) == "S", "the stranger was stopped"
    assert path.read_text() == "up\n", "the stranger was signalled"


def wait_until(holds, what, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        result = holds()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not in {timeout_s} s: {what}")


def state_of(pid):
    """Return the state of a process as a letter, such as "T" for stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_alive(pid):
    with suppress(OSError):
        return state_of(pid) not in "ZX"
    return False


def children_of(pid):
    """Return the children of a process with one thread."""
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def supervisor_of(process):
    """Wait for the supervisor of a run, the parent of all ranks, and return its pid."""
    return wait_until(lambda: children_of(process.pid), "the supervisor")[0]


def ranks_of(process):
    """Return the pids of the ranks of a run that were started so far."""
    return [pid for pid in children_of(supervisor_of(process)) if is_alive(pid)]


def allowed_list(pid, task=None):
    """Return the affinity mask of a process, or of one of its threads, as kernel list text."""
    status = Path(f"/proc/{pid}/task/{task or pid}/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list"))


def read_masks(pid="self"):
    """Return the affinity mask of each thread of a process, as kernel list text by TID."""
    masks = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just exited
            masks[tid] = allowed_list(pid, tid)
    return masks


def find_processes(text):
    """Return all other processes with a text in their arguments or variables: their command lines by pid."""
    found = {}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with suppress(OSError):
            line, variables = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
            if text.encode() in line + variables and pid != os.getpid() and is_alive(pid):
                found[pid] = line.replace(b"\0", b" ").decode(errors="replace")[:200]
    return found


def kill_all(pids):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


SANDBOX = str(Path(__file__).with_name("sandboxed.py"))
"""A program that runs a command under seccomp filters: `SANDBOX ERRNO NUMBER[=MODE]… -- COMMAND…`."""


def two_cpus():
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        unavailable("needs two allowed CPUs")
    return cpus[:2]


def required(*names):
    """Return the first installed program of some; without any, the test is skipped, or fails in CI."""
    return next((path for path in map(shutil.which, names) if path), None) or skip_without(names[0])


def skip_without(name, remedy=""):
    """Skip a test because something is not installed, or fail in CI; say how to install it."""
    return unavailable(f"{name} is not installed: {remedy or 'apt install ' + PACKAGES.get(name, name)}")


PACKAGES = {
    "libgomp": "libgomp1", "libomp 14": "libomp5-14", "cc": "gcc", "ps": "procps", "script": "bsdutils",
    "ctest": "cmake", "ip": "iproute2", "man": "man-db", "pgbench": "postgresql-contrib",
    "mpiexec.hydra": "mpich", "mpirun.openmpi": "openmpi-bin", "gmx": "gromacs",
    "srun": "slurm-client", "sbatch": "slurm-client", "salloc": "slurm-client",
    "lstopo-no-graphics": "hwloc-nox", "hwloc-bind": "hwloc-nox",
    "systemd-analyze": "systemd", "/lib/systemd/systemd": "systemd",
    **dict.fromkeys(("lscpu", "mount", "setpriv", "taskset", "unshare"), "util-linux"),
}  # fmt: skip
"""Packages of Debian that have other names than the program or the library."""


def need_libgomp():
    """Skip a test without libgomp, or fail in CI. A child loads it: libgomp could bind this process."""
    code = "import ctypes; ctypes.CDLL('libgomp.so.1')"
    if subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode:
        skip_without("libgomp")


def python_with_torch():
    """Return a Python with torch, ours or the system's; without any, the test is skipped, or fails in CI."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for path in filter(os.path.exists, (sys.executable, "/usr/bin/python3")):
        if subprocess.run([path, "-c", code], timeout=60).returncode == 0:
            return path
    return skip_without("torch", "pip install torch")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("lib") / "libtcmalloc.so.4")
    command = [required("gcc"), "-shared", "-o", path, "-x", "c", "-"]
    subprocess.run(command, input=b"int was_here;", check=True)
    return path


@pytest.fixture
def cgroup():
    """Return a function that makes a cgroup below the first parent where it has a file, and writes the file.

    Its argument has the name and the text of the file by parent. It returns the directory, and the words
    before a command that runs it in the cgroup.
    """
    made = []

    def make(files):
        for top, (name, text) in files.items():
            directory = Path(top) / f"ompbind-test-{os.getpid()}"
            with suppress(OSError):
                directory.mkdir()
                made.append(directory)
            if (directory / name).exists():  # else no cgroup, or without this controller
                (directory / name).write_text(text)
                return directory, ["sh", "-c", f'echo $$ >{directory}/cgroup.procs; exec "$@"', "sh"]
        return pytest.skip(f"needs a cgroup with {name}, which takes root")

    yield make
    for directory in made:
        procs = directory / "cgroup.procs"
        wait_until(lambda at=procs: not at.exists() or not at.read_text(), "the cgroup is empty")
        directory.rmdir()


@pytest.fixture
def quota(cgroup):
    """Return a function: a number of CPUs → the words before a command that runs it with this quota."""

    def make(cpus):
        us = str(int(cpus * 100_000))
        one, two = ("cpu.cfs_quota_us", us), ("cpu.max", f"{us} 100000")  # by version of cgroups
        directory, words = cgroup({"/sys/fs/cgroup/cpu": one, "/sys/fs/cgroup": two})
        for name, most in (("cpu.shares", "262144"), ("cpu.weight", "10000")):  # other processes wait
            if (directory / name).exists():
                (directory / name).write_text(most)
        return words

    return make


class Terminal:
    """A command in a terminal; `output` is what it has written since the last `read_until`."""

    def __init__(self, *command, term="dumb"):
        """Start a command in the foreground; no Python code of this process runs in the child."""
        self.master, slave = os.openpty()
        self.output, env = b"", clean_environment(TERM=term)
        files = [(os.POSIX_SPAWN_OPEN, number, os.ttyname(slave), os.O_RDWR, 0) for number in range(3)]
        self.pid = os.posix_spawnp(command[0], command, env, file_actions=files, setsid=True)
        os.close(slave)

    def read_until(self, words, timeout_s=20.0):
        deadline = time.monotonic() + timeout_s
        while words not in self.output:
            left = deadline - time.monotonic()
            assert left > 0, f"{words!r} not in {self.output!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    data = os.read(self.master, 4096)
                except OSError:
                    data = b""
                assert data, f"the terminal closed after {self.output!r}"
                self.output += data
        self.output = self.output.partition(words)[2]

    def foreground(self):
        """Return the arguments of the process whose group has the terminal."""
        try:
            with open(f"/proc/{os.tcgetpgrp(self.master)}/cmdline") as file:
                return file.read().split("\0")[:-1]
        except OSError:
            return []

    def type(self, text):
        os.write(self.master, text.encode())

    def wait(self):
        flags = os.WNOHANG | os.WUNTRACED
        return wait_until(lambda: (found := os.waitpid(self.pid, flags))[0] and found, "end")[1]


def open_terminals(kind):
    """Yield a function that opens a terminal with a command; at the end, kill the commands.

    `kind` makes a terminal, which has the pid of its command and the descriptor `master`.
    """
    opened = []

    def open_(*command, **options):
        opened.append(kind(*command, **options))
        return opened[-1]

    yield open_
    for terminal in opened:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        os.close(terminal.master)


@pytest.fixture
def terminal():
    yield from open_terminals(Terminal)
