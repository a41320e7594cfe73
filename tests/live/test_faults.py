"""Ranks that misbehave: whatever they do, the run ends in time, with the right code, and leaves nothing."""

import ctypes
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live.conftest import children_of, is_alive, keeper_of, wait_until
from tests.live.scenes import PYTHON, Scene

FOREVER = "while :; do sleep 0.05; done"


@pytest.fixture
def scene(tmp_path):
    one = Scene(tmp_path)
    yield one
    one.close()


class Case(NamedTuple):
    """Options, the script of all ranks, and how the run must end: its code and what it must say.

    Scripts of the shell have the word of the scene as $0 and its folder as $1.
    """

    options: str
    script: str
    code: int
    told: tuple[str, ...] = ()


DEAF = "trap '' TERM INT HUP QUIT"
READY = 'while [ ! -e "$1/ready" ]; do sleep 0.02; done'
HAS_TOLD = READY.replace("ready", "0").replace("-e", "-s")

SHELL = {
    "deaf, timeout": Case(
        "-n 2 --timeout 0.3 --grace 0.2", f"{DEAF}; {FOREVER}", 124, ("time is up", "with SIGKILL")
    ),
    "deaf, another fails": Case(
        "-n 2 --grace 0.2",
        f'if [ $RANK = 1 ]; then {READY}; exit 9; fi; {DEAF}; touch "$1/ready"; {FOREVER}',
        9,
        ("rank 1 .* exited with 9", "stopping rank 0 with SIGTERM", "stopping rank 0 with SIGKILL"),
    ),
    "deaf, with deaf children": Case(
        "-n 2 --timeout 0.3 --grace 0.2", f"{DEAF}; ({FOREVER}) & ({FOREVER}) & {FOREVER}", 124
    ),
    "a deaf child outlives its rank": Case("--grace 0.2", f"{DEAF}; ({FOREVER}) & exit 0", 0),
    "stops itself": Case("-n 2 --timeout 0.3 --grace 5", "kill -STOP $$", 124, ("with SIGTERM",)),
    "stops itself, alone": Case("--timeout 0.3 --grace 5", "kill -STOP $$", 124),
    "stops itself, deaf": Case("--timeout 0.3 --grace 0.2", f"{DEAF}; kill -STOP $$; {FOREVER}", 124),
    "stops its group": Case("-n 2 --timeout 0.3 --grace 5", "sleep 300 & kill -STOP 0", 124),
    "stops again and again": Case(
        "-n 2 --timeout 0.3 --grace 0.2", "trap 'kill -STOP $$' TERM; while :; do kill -STOP $$; done", 124
    ),
    "a stopped child outlives its rank": Case("", "sh -c 'kill -STOP $$' & sleep 0.1; exit 3", 3),
    "a daemon": Case("", "setsid sleep 300 & exit 0", 0),
    "a daemon of a daemon": Case("", "setsid sh -c 'setsid sleep 300 & sleep 300' & sleep 0.1; exit 0", 0),
    "a daemon with a cleaned environment": Case(
        "-n 2", "env -i setsid sh -c 'sleep 300; :' $0 & sleep 0.05; exit 4", 4
    ),
    "a deaf daemon": Case(
        "--grace 0.2", f"setsid sh -c \"{DEAF}; echo > '$1/ready'; {FOREVER}\" & {READY}; exit 0", 0
    ),
    "a stopped daemon": Case("", "setsid sh -c 'kill -STOP $$' & sleep 0.1; exit 0", 0),
    "orphans of orphans": Case("-n 2", "(((sleep 300 & sleep 300 &) & sleep 300 &) &) ; exit 0", 0),
    "closes its files and runs on": Case(
        "-n 2 --timeout 0.3", "exec <&- >&- 2>&-; sleep 300", 124, ("time is up",)
    ),
    "closes its files and leaves a daemon": Case("-n 2", "exec <&- >&- 2>&-; setsid sleep 300 & exit 0", 0),
    "all die at once": Case("-n 16 --share", "kill -9 $$", 137),
    "all fail at once": Case("-n 16 --share", "exit 6", 6),
    "one of many dies at once": Case("-n 16 --share", "[ $RANK = 5 ] && kill -9 $$; sleep 300", 137),
    "fails during the start of the others": Case(
        "-n 200 --share",
        "[ $RANK = 3 ] && exit 5; sleep 300",
        5,
        ("rank 3 .* exited with 5", "stopping rank"),
    ),
    "fails last, nothing stopped": Case(
        "-n 16 --share --on-failure continue", "[ $RANK = 15 ] && exit 5; exit 0", 5
    ),
    "kills another rank": Case(
        "-n 2",
        f'echo $$ >"$1/$RANK"; {HAS_TOLD}; '
        '[ $RANK = 1 ] && { read other <"$1/0"; kill -9 $other; }; sleep 300',
        137,
        ("rank 0 .* by SIGKILL",),
    ),
    "stops another rank and fails": Case(
        "-n 2",
        f'echo $$ >"$1/$RANK"; {HAS_TOLD}; '
        '[ $RANK = 1 ] && { read other <"$1/0"; kill -STOP $other; exit 3; }; sleep 300',
        3,
    ),
    "terminates the keeper": Case("-n 2", "kill $PPID; sleep 300", 143, ("stopping ranks? .* with SIGTERM",)),
    "kills the keeper": Case(
        "-n 2",
        "setsid sleep 300 & sleep 300 & [ $RANK = 1 ] && sleep 0.1 && kill -9 $PPID; sleep 300",
        125,
        ("process [0-9]+, which held the ranks, was ended by SIGKILL",),
    ),
    "stops and continues the keeper": Case(
        "-n 2", "kill -STOP $PPID; sleep 0.1; kill -CONT $PPID; exit 2", 2
    ),
}


@pytest.mark.parametrize("case", SHELL.values(), ids=SHELL)
def test_shell(scene, case):
    began = time.monotonic()
    code, said, _ = scene.run(*case.options.split(), *scene.command("sh", "-c", case.script))
    check(case, code, said)
    assert time.monotonic() - began < 10


SIGACTION = {"x86_64": 13, "aarch64": 134, "riscv64": 134}
"""The number of the call rt_sigaction."""


def heed(number):
    """Have a signal end this process again, and what it starts; the C library refuses that for its own.

    What was started by posix_spawn, as by make, ignores them. Returns whether it is heeded now.
    """
    ctypes.CDLL(None).syscall(SIGACTION.get(os.uname().machine, -1), number, bytes(32), None, 8)
    status = Path("/proc/self/status").read_text()
    ignored = next(int(line[7:], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    return not ignored & 1 << number - 1


def test_a_signal_without_a_name_ends_the_keeper(scene):
    if not heed(32):
        pytest.skip("signal 32 is ignored here, and cannot be given back")
    script = "sleep 0.1; [ $RANK = 1 ] && kill -32 $PPID; sleep 300"
    code, said, _ = scene.run("-n", "2", *scene.command("sh", "-c", script))
    assert code == 125, said
    assert "was ended by signal 32" in said


def check(case, code, said):
    assert code == case.code, said
    for pattern in case.told:
        assert re.search(pattern, said), said


FORGE = """
import os, signal, sys, time
rank, folder = int(os.environ["OMPBIND_RANK"]), sys.argv[2]
def write(name, text=""):
    with open(f"{folder}/.{name}.{rank}", "w") as file:
        file.write(str(text))
    os.rename(f"{folder}/.{name}.{rank}", f"{folder}/{name}")
def wait(name):
    while not os.path.exists(f"{folder}/{name}"):
        time.sleep(0.01)
    return open(f"{folder}/{name}").read()
def deaf():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
def fork(work):
    if not os.fork():
        work()
        os._exit(0)
def sleep():
    time.sleep(300)
"""
"""What the ranks below begin with: they forge what no shell can."""

BOMB = """
def burst(left=6):
    for _ in range(2 if left else 0):
        try:
            fork(lambda: burst(left - 1))
        except OSError:
            pass
    sleep()
"""
"""A process that becomes 127 ones, each of which starts two more at once."""

CHAIN = """
def chain():
    over = time.monotonic() + 20
    while time.monotonic() < over and not os.fork():
        hide()
    os._exit(0)
"""
"""A process that is never there for long: each one starts the next and ends."""

PYTHON_RANKS = {
    "goes into the group of another rank": Case(
        "-n 2 --grace 0.2",
        """
if rank == 0:
    os.setpgid(0, int(wait("1")))
    write("0")
    deaf(); sleep()
write("1", os.getpid())
wait("0")
sys.exit(3)
""",
        3,
        ("stopping rank 0 with SIGTERM", "stopping rank 0 with SIGKILL"),
    ),
    "goes into the group of another rank, and outlives it": Case(
        "-n 2",
        """
if rank == 0:
    os.setpgid(0, int(wait("1")))
    write("0")
    time.sleep(0.3)
    sys.exit(4)
write("1", os.getpid())
wait("0")
""",
        4,
    ),
    "goes into the group of another rank, all are stopped": Case(
        "-n 2 --timeout 0.4 --grace 5",
        """
if rank == 0:
    os.setpgid(0, int(wait("1")))
write(str(rank), os.getpid())
sleep()
""",
        124,
        ("stopping ranks 0-1 with SIGTERM",),
    ),
    "children in groups of their own": Case(
        "--timeout 0.4 --grace 0.2",
        "for _ in range(5):\n    fork(lambda: (os.setpgid(0, 0), deaf(), sleep()))\nsleep()",
        124,
    ),
    "a child that leads a session": Case("", "fork(lambda: (os.setsid(), sleep()))\nsys.exit(2)", 2),
    "forks twice": Case("-n 2", "fork(lambda: (os.setsid(), fork(sleep)))\nos.wait()\nsys.exit(2 * rank)", 2),
    "forks twice, deaf": Case(
        "-n 2 --grace 0.2",
        "deaf()\nfork(lambda: (os.setsid(), fork(sleep)))\nos.wait()\nsys.exit(2 * rank)",
        2,
    ),
    "adopts orphans itself": Case(
        "--timeout 0.3 --grace 0.2",
        """
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
for _ in range(3):
    fork(lambda: fork(lambda: (os.setsid(), deaf(), sleep())))
sleep()
""",
        124,
    ),
    "has no name and no arguments": Case(
        "", "fork(lambda: (os.setsid(), open('/proc/self/comm', 'w').write(') Z 1 1'), sleep()))", 0
    ),
    "many daemons": Case(
        "-n 4 --share", "for _ in range(20):\n    fork(lambda: (os.setsid(), sleep()))\nsys.exit(3)", 3
    ),
    "a burst of processes": Case("--timeout 0.5 --grace 1", f"{BOMB}burst()", 124),
    "a burst of deaf processes": Case("-n 2 --timeout 0.5 --grace 0.3", f"{BOMB}deaf(); burst()", 124),
    "a burst of deaf daemons": Case(
        "--grace 0.3", f"{BOMB}deaf(); fork(lambda: (os.setsid(), burst()))\nsys.exit(6)", 6
    ),
    "a burst in the midst of which the rank ends": Case("", f"{BOMB}fork(burst)\nsys.exit(6)", 6),
    "a chain of processes": Case("--grace 0.3", f"hide = os.getpid\n{CHAIN}deaf(); fork(chain)", 0),
    "a chain of daemons": Case("--grace 0.3", f"hide = os.setsid\n{CHAIN}deaf(); fork(chain)", 0),
    "terminates the front": Case("-n 2", "if rank: os.kill(front(), signal.SIGTERM)\nsleep()", 143),
    "interrupts the front": Case(
        "-n 2",
        "signal.signal(2, 0)\nwrite(str(rank))\nif rank: wait('0'); os.kill(front(), 2)\nsleep()",
        130,
    ),
    "stops and continues the front": Case(
        "-n 2",
        "if rank: os.kill(front(), 19); time.sleep(0.1); os.kill(front(), 18); sys.exit(5)\nsleep()",
        5,
    ),
    "kills the front": Case("-n 2", "if rank: os.kill(front(), 9)\nsleep()", -9),
    "kills front and keeper": Case("", "os.kill(front(), 9); os.kill(os.getppid(), 9)", -9),
}

FRONT = """
def front(keeper=os.getppid()):
    return int(open(f"/proc/{keeper}/stat").read().rpartition(")")[2].split()[1])
"""


@pytest.mark.parametrize("case", PYTHON_RANKS.values(), ids=PYTHON_RANKS)
def test_python(scene, case):
    script = f"{FORGE}{FRONT}{case.script}"
    if case.code == -9:
        process = scene.begin(*case.options.split(), *scene.command(*PYTHON, script))
        assert process.wait(20) == -9
        scene.check_gone("the end of the front")
        return
    began = time.monotonic()
    code, said, _ = scene.run(*case.options.split(), *scene.command(*PYTHON, script))
    check(case, code, said)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("grace", [0.2, 60])
def test_daemons_of_a_rank_end_with_it_and_nobody_elses(scene, grace):
    """Rank 0 ends and leaves a daemon; rank 1 and its daemon run on, untouched."""
    script = (
        'setsid sleep 300 & echo $! >"$1/.$RANK"; mv "$1/.$RANK" "$1/$RANK"; '
        '[ $RANK = 0 ] || { while [ ! -e "$1/over" ]; do sleep 0.02; done; exit 3; }'
    )
    process = scene.begin("-n", "2", "--grace", str(grace), *scene.command("sh", "-c", script))
    scene.wait_for("0", "1")
    first, second = scene.pids("0")[0], scene.pids("1")[0]
    wait_until(lambda: not is_alive(first), "the daemon of rank 0 ended", 2)
    time.sleep(0.3)
    assert is_alive(second)
    (scene.folder / "over").touch()
    assert scene.end(process)[0] == 3


def test_deaf_daemons_of_a_rank_that_has_ended_are_killed_while_another_runs(scene):
    script = (
        "[ $RANK = 1 ] && exec sleep 300; trap '' TERM; setsid sleep 300 & "
        'echo $! >"$1/.daemon"; mv "$1/.daemon" "$1/daemon"'
    )
    process = scene.begin("-n", "2", "--grace", "0.3", *scene.command("sh", "-c", script))
    scene.wait_for("daemon")
    daemon = scene.pids("daemon")[0]
    wait_until(lambda: not is_alive(daemon), "the daemon ended", 3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert scene.end(process)[0] == 143


def test_ranks_that_end_as_they_were_told_are_one_line(scene):
    """But those that end with a code of their own are told: it may be that of the run."""
    rank = "import os, signal, sys, time\n"
    rank += "os.environ['RANK'] == '3' and signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    rank += "open(f'{sys.argv[2]}/{os.environ[\"RANK\"]}', 'w'); time.sleep(300)"
    process = scene.begin("-n", "8", "--share", *scene.command(*PYTHON, rank))
    scene.wait_for(*"01234567")
    process.send_signal(signal.SIGTERM)
    code, said, _ = scene.end(process)
    assert code in (7, 143)
    told = r"ompbind: stopping ranks 0-7 with SIGTERM ompbind: rank 3 \(pid \d+\) exited with 7"
    assert re.fullmatch(told, said), said


REUSE = """
ompbind run -n 2 --share -- sh -c '
    [ $RANK = 1 ] || { echo $$ >"$1/pid"; sleep 300 & mv "$1/pid" "$1/first"; exit 0; }
    while [ ! -e "$1/go" ]; do sleep 0.02; done
    (sleep 3 &); (sleep 0.3 &); sleep 1' "$@" &
run=$!
while [ ! -e "$2/first" ]; do sleep 0.02; done
number=$(cat "$2/first")
while kill -0 -- -$number; do sleep 0.02; done 2>/dev/null
sleep 0.2
echo $((number - 1)) >/proc/sys/kernel/ns_last_pid || exit 77
setsid sleep 300 &
[ $! = $number ] || exit 77
touch "$2/go"
wait $run
kill $number && echo "the stranger lives"
"""
"""Give a stranger the number of a rank whose group was not empty when it ended, but is by now."""


def test_strangers_that_get_the_number_of_an_ended_rank_live(scene):
    own_numbers = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
    command = [*own_numbers, "bash", "-c", REUSE, "bash", scene.word, str(scene.folder)]
    done = subprocess.run(command, env=scene.environment(), capture_output=True, text=True, timeout=30)
    if done.returncode == 77 or "unshare: " in done.stderr:
        pytest.skip(f"numbers of processes cannot be chosen here: {done.stderr}")
    assert done.stdout == "the stranger lives\n", done.stderr


LOOKING = """
import os, subprocess, sys
from ompbind.execution.orphans import Leavings
leavings = Leavings("run", 1.0, groups_only=False)
leavings.adopt()
rank = {"OMPBIND_RUN_ID": "run", "OMPBIND_RANK": "0"}
one, daemon = (subprocess.Popen(["sleep", "300"], env={**os.environ, **rank}) for _ in range(2))
seen = []
sys.addaudithook(lambda event, args: seen.append(args) if event == "os.listdir" else None)
for _ in range(3):
    assert leavings.look({one.pid: 0}) == "" and daemon.poll() is None
one.kill()
daemon.kill()
print(len(seen))
"""


def test_a_daemon_that_may_live_costs_no_look_at_all_processes(scene):
    command = [*PYTHON[:1], "-c", LOOKING]
    done = subprocess.run(command, env=scene.environment(), capture_output=True, text=True, timeout=30)
    assert done.stdout == "0\n", done.stderr


def test_descendants_may_be_kept(scene):
    """Those that have left the group live on, those in it do not; nor does anything once it is killed."""
    script = 'setsid sleep 300 & echo $! >"$1/kept"; sleep 300 & echo $! >"$1/not"; sleep 0.1; exit 3'
    process = scene.begin("--keep-descendants", *scene.command("sh", "-c", script))
    assert process.wait(10) == 3
    assert list(scene.find()) == scene.pids("kept")
    assert not scene.claims()


def test_a_keeper_that_is_stopped_goes_on_where_it_was(scene):
    process = scene.begin("-n", "2", "--timeout", "0.5", *scene.command("sh", "-c", "sleep 300"))
    supervisor = keeper_of(process)
    os.kill(supervisor, signal.SIGSTOP)
    time.sleep(0.8)
    assert process.poll() is None
    os.kill(supervisor, signal.SIGCONT)
    assert scene.end(process)[0] == 124


def test_a_keeper_that_was_stopped_while_it_waited_gives_time_to_be_killed(scene):
    script = 'trap "" TERM; setsid sh -c "while :; do sleep 0.05; done" & touch "$1/left"; sleep 0.2'
    process = scene.begin("--grace", "0.5", *scene.command("sh", "-c", script))
    supervisor = keeper_of(process)
    scene.wait_for("left")
    time.sleep(0.4)
    os.kill(supervisor, signal.SIGSTOP)
    time.sleep(3)
    os.kill(supervisor, signal.SIGCONT)
    code, said, _ = scene.end(process)
    assert (code, said) == (0, "")


PTRACE_SEIZE = 0x4206


def test_a_rank_whose_end_a_debugger_keeps_to_itself_costs_nothing(scene):
    process = scene.begin(*scene.command("sh", "-c", 'touch "$1/up"; exec sleep 300'))
    supervisor = keeper_of(process)
    scene.wait_for("up")
    (rank,) = children_of(supervisor)
    if ctypes.CDLL(None).ptrace(PTRACE_SEIZE, rank, None, None) != 0:
        pytest.skip("nobody may be traced here")
    os.kill(rank, signal.SIGKILL)
    time.sleep(0.2)
    before = cpu_time_s(supervisor)
    time.sleep(0.5)
    assert cpu_time_s(supervisor) - before < 0.1
    os.waitpid(rank, 0)
    assert scene.end(process)[0] == 137


def cpu_time_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        ticks = file.read().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
