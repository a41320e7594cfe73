"""Ranks that misbehave: the run always finishes in time, with the right exit code, and leaves no process."""

import re
import time

import pytest

from tests.live.conftest import is_alive, wait_until
from tests.live.scenes import PYTHON

pytestmark = pytest.mark.usefixtures("stranger")

FOREVER = "while :; do sleep 0.05; done"
IGNORE_SIGNALS = "trap '' TERM INT HUP QUIT"
READY = 'while [ ! -e "$1/ready" ]; do sleep 0.02; done'

SHELL = {
    "ignores signals, another rank fails": (
        "-n 2 --grace 0.2",
        f'if [ $RANK = 1 ]; then {READY}; exit 9; fi; {IGNORE_SIGNALS}; touch "$1/ready"; {FOREVER}',
        9, "rank 1 .* exited with code 9", "stopping rank 0 with SIGTERM", "stopping rank 0 with SIGKILL"),
    "a child that ignores signals outlives its rank": (
        "--grace 0.2", f"{IGNORE_SIGNALS}; ({FOREVER}) & exit 0", 0),
    "stops itself, and again": (
        "-n 2 --timeout 0.3 --grace 0.2", "trap 'kill -STOP $$' TERM; while :; do kill -STOP $$; done", 124),
    "stops its group": ("-n 2 --timeout 0.3 --grace 5", "sleep 300 & kill -STOP 0", 124),
    "a stopped daemon": ("--timeout 30d", "setsid sh -c 'kill -STOP $$' & exit 0", 0),
    "fails during the start of the others": (
        "-n 100 --share", "[ $RANK = 3 ] && exit 5; sleep 300",
        5, "rank 3 .* exited with code 5", "stopping rank"),
    "terminates the supervisor": (
        "-n 2", "kill $PPID; sleep 300", 143, "stopping ranks? .* with SIGTERM"),
}  # fmt: skip
"""Options, the script of all ranks, the exit code of the run, and patterns that its messages match.

Shell scripts get the word of the scene as $0 and its directory as $1.
"""

FORGE = """
import os, signal, sys, time
rank, directory = int(os.environ["OMPBIND_RANK"]), sys.argv[2]
def write(name, text=""):
    with open(f"{directory}/.{name}.{rank}", "w") as file:
        file.write(str(text))
    os.rename(f"{directory}/.{name}.{rank}", f"{directory}/{name}")
def wait(name):
    while not os.path.exists(f"{directory}/{name}"):
        time.sleep(0.01)
    return open(f"{directory}/{name}").read()
def ignore_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
def fork(work):
    if not os.fork():
        work()
        os._exit(0)
def sleep():
    time.sleep(300)
"""
"""The first lines of the ranks below, which do things that no shell can."""


ENTER_GROUP = """
if rank == 0:
    os.setpgid(0, int(wait("1")))
    write("0")
    ignore_signals(); sleep()
write("1", os.getpid())
wait("0")
sys.exit(3)
"""
CHAIN = """
def chain():
    over = time.monotonic() + 20
    while time.monotonic() < over and not os.fork():
        os.setsid()
    os._exit(0)
ignore_signals(); fork(chain)
"""
PYTHON_RANKS = {
    "goes into the group of another rank": (
        "-n 2 --grace 0.2", ENTER_GROUP, 3, "stopping rank 0 with SIGTERM", "stopping rank 0 with SIGKILL"),
    "children in groups of their own": (
        "--timeout 0.4 --grace 0.2",
        "for _ in range(5):\n    fork(lambda: (os.setpgid(0, 0), ignore_signals(), sleep()))\nsleep()", 124),
    "forks twice, ignores signals": (
        "-n 2 --grace 0.2",
        "ignore_signals()\nfork(lambda: (os.setsid(), fork(sleep)))\nos.wait()\nsys.exit(2 * rank)", 2),
    "has no name and no arguments": (
        "", "fork(lambda: (os.setsid(), open('/proc/self/comm', 'w').write(') Z 1 1'), sleep()))", 0),
    "a chain of daemons": ("--grace 0.3", CHAIN, 0),
}  # fmt: skip


@pytest.mark.two_cpus
@pytest.mark.parametrize("name", [*SHELL, *PYTHON_RANKS])
def test_a_run_with_such_ranks_ends_and_leaves_nothing(scene, name):
    options, script, expected, *patterns = {**SHELL, **PYTHON_RANKS}[name]
    command = ("sh", "-c", script) if name in SHELL else (*PYTHON, f"{FORGE}{script}")
    code, messages, _ = scene.run(*options.split(), *scene.command(*command))
    assert code == expected, messages
    assert not [pattern for pattern in patterns if not re.search(pattern, messages)], messages


@pytest.mark.two_cpus
def test_daemons_are_stopped_with_their_rank_only(scene):
    """Rank 0 exits and leaves a daemon, which is stopped or killed; rank 1 and its daemon continue."""
    script = """trap '' TERM; (setsid sleep 300 & echo $! >"$1/.$RANK"); mv "$1/.$RANK" "$1/$RANK"
        while [ ! -e "$1/1" ]; do sleep 0.02; done; [ $RANK = 0 ] && exit 0
        while [ ! -e "$1/over" ]; do sleep 0.02; done; exit 3"""
    process = scene.begin("-n", "2", "--grace", "0.3", *scene.command("sh", "-c", script))
    scene.wait_for("0", "1")
    (first,), (second,) = map(scene.pids, "01")
    wait_until(lambda: not is_alive(first), "the daemon of rank 0 exited", 5)
    time.sleep(0.1)
    assert is_alive(second)
    assert process.poll() is None
    (scene.directory / "over").touch()
    assert scene.end(process)[0] == 3


def test_descendants_may_be_kept(scene):
    script = """setsid sh -c 'echo $$ >"$1/kept"; exec sleep 300' sh "$1" &
        sleep 300 & while [ ! -s "$1/kept" ]; do sleep 0.02; done; exit 3"""
    process = scene.begin("--keep-descendants", *scene.command("sh", "-c", script))
    assert process.wait(10) == 3
    assert list(scene.find()) == scene.pids("kept")
    assert not scene.claims()
