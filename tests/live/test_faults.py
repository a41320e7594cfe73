"""Ranks that misbehave: the run always finishes in time, with the right exit code, and leaves no process."""

import re
import time
from typing import NamedTuple

import pytest

from tests.live.conftest import is_alive, wait_until
from tests.live.scenes import PYTHON

FOREVER = "while :; do sleep 0.05; done"

pytestmark = pytest.mark.usefixtures("stranger")


class Case(NamedTuple):
    """Options, the script of all ranks, the exit code of the run, and patterns that its messages match.

    Shell scripts get the word of the scene as $0 and its directory as $1.
    """

    options: str
    script: str
    code: int
    messages: tuple[str, ...] = ()


IGNORE_SIGNALS = "trap '' TERM INT HUP QUIT"
READY = 'while [ ! -e "$1/ready" ]; do sleep 0.02; done'
HAS_WRITTEN = READY.replace("ready", "0").replace("-e", "-s")

SHELL = {
    "ignores signals, timeout": Case(
        "-n 2 --timeout 0.3 --grace 0.2",
        f"{IGNORE_SIGNALS}; ({FOREVER}) & ({FOREVER}) & {FOREVER}",
        124,
        ("timeout after", "with SIGKILL"),
    ),
    "ignores signals, another rank fails": Case(
        "-n 2 --grace 0.2",
        f'if [ $RANK = 1 ]; then {READY}; exit 9; fi; {IGNORE_SIGNALS}; touch "$1/ready"; {FOREVER}',
        9,
        ("rank 1 .* exited with code 9", "stopping rank 0 with SIGTERM", "stopping rank 0 with SIGKILL"),
    ),
    "a child that ignores signals outlives its rank": Case(
        "--grace 0.2", f"{IGNORE_SIGNALS}; ({FOREVER}) & exit 0", 0
    ),
    "stops itself, and again": Case(
        "-n 2 --timeout 0.3 --grace 0.2", "trap 'kill -STOP $$' TERM; while :; do kill -STOP $$; done", 124
    ),
    "stops its group": Case("-n 2 --timeout 0.3 --grace 5", "sleep 300 & kill -STOP 0", 124),
    "a daemon of a daemon": Case("", "setsid sh -c 'setsid sleep 300 & sleep 300' & exit 0", 0),
    "a daemon with a cleaned environment": Case("-n 2", "env -i setsid sh -c 'sleep 300; :' $0 & exit 4", 4),
    "a daemon that ignores signals": Case(
        "--grace 0.2", f"setsid sh -c \"{IGNORE_SIGNALS}; echo > '$1/ready'; {FOREVER}\" & {READY}; exit 0", 0
    ),
    "a stopped daemon": Case("", "setsid sh -c 'kill -STOP $$' & exit 0", 0),
    "closes its files and leaves a daemon": Case("-n 2", "exec <&- >&- 2>&-; setsid sleep 300 & exit 0", 0),
    "one of many dies at once": Case("-n 16 --share", "[ $RANK = 5 ] && kill -9 $$; sleep 300", 137),
    "fails during the start of the others": Case(
        "-n 100 --share",
        "[ $RANK = 3 ] && exit 5; sleep 300",
        5,
        ("rank 3 .* exited with code 5", "stopping rank"),
    ),
    "fails last, nothing stopped": Case(
        "-n 16 --share --on-failure continue", "[ $RANK = 15 ] && exit 5; exit 0", 5
    ),
    "kills another rank": Case(
        "-n 2",
        f'echo $$ >"$1/$RANK"; {HAS_WRITTEN}; '
        '[ $RANK = 1 ] && { read other <"$1/0"; kill -9 $other; }; sleep 300',
        137,
        ("rank 0 .* by SIGKILL",),
    ),
    "terminates the supervisor": Case(
        "-n 2", "kill $PPID; sleep 300", 143, ("stopping ranks? .* with SIGTERM",)
    ),
    "kills the supervisor": Case(
        "-n 2",
        "setsid sleep 300 & sleep 300 & [ $RANK = 1 ] && sleep 0.1 && kill -9 $PPID; sleep 300",
        125,
        (r"the supervisor \(pid [0-9]+\) was killed by SIGKILL",),
    ),
}


@pytest.mark.two_cpus
@pytest.mark.parametrize("case", SHELL.values(), ids=SHELL)
def test_shell(scene, case):
    check(case, scene.run(*case.options.split(), *scene.command("sh", "-c", case.script)))


def check(case, result):
    code, messages, _ = result
    assert code == case.code, messages
    for pattern in case.messages:
        assert re.search(pattern, messages), messages


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

BOMB = """
def burst(left=6):
    for _ in range(2 if left else 0):
        try:
            fork(lambda: burst(left - 1))
        except OSError:
            pass
    sleep()
"""
"""A process that becomes 127 processes: each starts two more at once."""

PYTHON_RANKS = {
    "goes into the group of another rank": Case(
        "-n 2 --grace 0.2",
        """
if rank == 0:
    os.setpgid(0, int(wait("1")))
    write("0")
    ignore_signals(); sleep()
write("1", os.getpid())
wait("0")
sys.exit(3)
""",
        3,
        ("stopping rank 0 with SIGTERM", "stopping rank 0 with SIGKILL"),
    ),
    "children in groups of their own": Case(
        "--timeout 0.4 --grace 0.2",
        "for _ in range(5):\n    fork(lambda: (os.setpgid(0, 0), ignore_signals(), sleep()))\nsleep()",
        124,
    ),
    "forks twice, ignores signals": Case(
        "-n 2 --grace 0.2",
        "ignore_signals()\nfork(lambda: (os.setsid(), fork(sleep)))\nos.wait()\nsys.exit(2 * rank)",
        2,
    ),
    "has no name and no arguments": Case(
        "", "fork(lambda: (os.setsid(), open('/proc/self/comm', 'w').write(') Z 1 1'), sleep()))", 0
    ),
    "many daemons": Case(
        "-n 4 --share", "for _ in range(20):\n    fork(lambda: (os.setsid(), sleep()))\nsys.exit(3)", 3
    ),
    "a burst of daemons that ignore signals": Case(
        "--grace 0.3", f"{BOMB}ignore_signals(); fork(lambda: (os.setsid(), burst()))\nsys.exit(6)", 6
    ),
    "a chain of daemons": Case(
        "--grace 0.3",
        """
def chain():
    over = time.monotonic() + 20
    while time.monotonic() < over and not os.fork():
        os.setsid()
    os._exit(0)
ignore_signals(); fork(chain)
""",
        0,
    ),
    "interrupts the foreground process": Case(
        "-n 2",
        "signal.signal(2, 0)\nwrite(str(rank))\nif rank: wait('0'); os.kill(foreground(), 2)\nsleep()",
        130,
    ),
    "kills the foreground process": Case("-n 2", "if rank: os.kill(foreground(), 9)\nsleep()", -9),
    "kills both processes": Case("", "os.kill(foreground(), 9); os.kill(os.getppid(), 9)", -9),
}

FOREGROUND = """
def foreground(supervisor=os.getppid()):
    return int(open(f"/proc/{supervisor}/stat").read().rpartition(")")[2].split()[1])
"""


@pytest.mark.two_cpus
@pytest.mark.parametrize("case", PYTHON_RANKS.values(), ids=PYTHON_RANKS)
def test_python(scene, case):
    words = [*case.options.split(), *scene.command(*PYTHON, f"{FORGE}{FOREGROUND}{case.script}")]
    if case.code == -9:
        process = scene.begin(*words)
        assert process.wait(20) == -9
        scene.check_nothing_left("the exit of the foreground process")
    else:
        check(case, scene.run(*words))


@pytest.mark.two_cpus
def test_daemons_are_stopped_with_their_rank_only(scene):
    """Rank 0 exits and leaves a daemon, which is stopped or killed; rank 1 and its daemon continue."""
    script = (
        "trap '' TERM; (setsid sleep 300 & "
        'echo $! >"$1/.$RANK"); mv "$1/.$RANK" "$1/$RANK"; '
        'while [ ! -e "$1/1" ]; do sleep 0.02; done; [ $RANK = 0 ] && exit 0; '
        'while [ ! -e "$1/over" ]; do sleep 0.02; done; exit 3'
    )
    process = scene.begin("-n", "2", "--grace", "0.3", *scene.command("sh", "-c", script))
    scene.wait_for("0", "1")
    first, second = scene.pids("0")[0], scene.pids("1")[0]
    wait_until(lambda: not is_alive(first), "the daemon of rank 0 exited", 5)
    time.sleep(0.1)
    assert is_alive(second)
    assert process.poll() is None
    (scene.directory / "over").touch()
    assert scene.end(process)[0] == 3


def test_descendants_may_be_kept(scene):
    """Processes that have left the group of their rank continue; processes in the group are stopped."""
    script = """setsid sh -c 'echo $$ >"$1/kept"; exec sleep 300' sh "$1" &
        sleep 300 & while [ ! -s "$1/kept" ]; do sleep 0.02; done; exit 3"""
    process = scene.begin("--keep-descendants", *scene.command("sh", "-c", script))
    assert process.wait(10) == 3
    assert list(scene.find()) == scene.pids("kept")
    assert not scene.claims()
