"""`--hold` with real ranks: no thread leaves the CPUs of its rank, whatever asks for other CPUs."""

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from ompbind.execution.seccomp import OWN_SIZE
from tests.live import runtimes
from tests.live.conftest import (
    OMPBIND,
    RUNTIME_DIR,
    SANDBOX,
    is_alive,
    one_line,
    ranks_of,
    required,
    run_program,
    start_program,
    state_of,
    supervisor_of,
    two_cpus,
    wait_until,
    write_program,
)  # fmt: skip
from tests.live.other_user import NOBODY, as_user

pytestmark = pytest.mark.two_cpus

ASK = Path(__file__).with_name("ask_for_cpus.py").read_text()
CALLS = {
    "self": "own - ok own; both - ok own; other - ok own; all - ok own; absent - EINVAL both;"
            "none - EINVAL both; other bad EFAULT both; other far EFAULT both; other empty EINVAL both;"
            "other long EINVAL both; other short ok own; other page ok own; own page ok own",
    "pid": "other - ok own", "thread": "other - ok own; absent - EINVAL both", "long": "other - ok own",
    "absent": "other - ESRCH; own - ESRCH", "negative": "other - ESRCH both",
    "other": "own - ok other; other - ok other; all - ok other", "other's": "own - ok other; all - ok other",
    "outsider": "other - ok other; all - ok both", "supervisor": "other - ok other",
    "session": "other - ok own", "bare": "other - ok own", "daemon": "other - ok own",
    "orphan": "own - ok own; other - ok other",
}  # fmt: skip
"""Thread → CPUs and form of each call, result, affinity mask afterwards; the orphan may be of any rank."""

IN_NAMESPACE = {
    "self": "other - ok own; other bad EFAULT both", "pid": "other - ok own; absent - EINVAL both",
    "thread": "other - ok own", "session": "own - ok own; other - ok both",
}  # fmt: skip
UNREADABLE = {"self": "own - ok own; other - ok own; other bad ok own", "bare": "other - ok own"}


@pytest.mark.parametrize(("user", "before", "calls"), [
    (None, "", CALLS), (NOBODY, "", CALLS), (NOBODY, "", UNREADABLE),
    (None, "unshare -pf", IN_NAMESPACE), (NOBODY, "unshare -Upf", IN_NAMESPACE),
], ids=["", "user", "unreadable", "namespace", "user's namespace"])  # fmt: skip
def test_each_call_sets_what_the_rank_may_have(ompbind, public, request, user, before, calls):
    own, other = two_cpus()
    program = request.getfixturevalue("public_ompbind") if user else OMPBIND
    python = shlex.split(Path(program).read_text().splitlines()[1])[1] if user else sys.executable
    become = as_user(user) if user else []
    if before and run_program(*become, *before.split(), "true", cwd="/").returncode:
        pytest.skip(f"'{before}' is refused here")
    expected = [f"{target} {each.strip()}" for target, text in calls.items() for each in text.split(";")]
    mask = ("-n", "2", "-m", f"{own}|{other}") if not before else ("-m", str(own))
    with start_program(*become, "sleep", "60", cwd="/") as outsider:
        numbers = map(str, (OWN_SIZE, own, other, outsider.pid, int(calls is not UNREADABLE)))
        words = (python, "-c", ASK, *numbers, *(" ".join(line.split()[:3]) for line in expected))
        options = {"program": program, "cwd": "/", "env": {RUNTIME_DIR: str(public)}}
        done = ompbind("run", "--hold", *mask, "--", *before.split(), *words, before=become, **options)
        outsider.kill()
    assert (done.returncode, done.stdout.splitlines()) == (0, expected), done.stderr


SHOW = "grep Cpus_allowed_list /proc/self/status"
REDIS = """
redis-server --port 0 --unixsocket s --server_cpulist {other} --bio_cpulist {other} --save '' >log &
until redis-cli -s s ping >log; do sleep 0.02; done
grep -h Cpus_allowed_list /proc/$!/task/*/status; redis-cli -s s shutdown
"""
ORPHAN = """
rm -f go out; mkfifo go out
(env -i setsid sh -c 'read _ <go; exec taskset -c {other} {show} >out' &)
echo >go; cat out
"""
NODE = "$(ls -d /sys/devices/system/node/node*/cpu{other} | grep -o '[0-9]*/' | tr -d /)"
PROGRAMS = {
    "taskset": "taskset -c {other} {show}",
    "taskset, a shell": "taskset -pc {other} $$ >taskset; {show}",
    "numactl": "numactl -a -C {other} {show}",
    "numactl, a node": f"numactl -N {NODE} {{show}}",
    "hwloc-bind": "hwloc-bind -p pu:{other} {show}",
    "python3": "python3 -c 'import os; os.sched_setaffinity(0, [{other}]); os.system(\"{show}\")'",
    "setsid": "setsid sh -c 'taskset -c {other} {show}'",
    "setsid, without variables": "env -i setsid sh -c 'taskset -c {other} {show}'",
    "setsid, an orphan": ORPHAN,
    "setpriv": "setpriv --reuid=65534 taskset -c {other} {show}",
    "ompbind": "ompbind run -q --share -- taskset -c {other} {show}",
    "ompbind, fixed": "ompbind run -q --share --hold=fixed -- true && taskset -c {other} {show}",
    "gcc": "gcc -m32 -nostdlib -static -DCPU={other} -o program {source} && ./program",
    "libgomp": "env -u OMP_PLACES -u OMP_PROC_BIND GOMP_CPU_AFFINITY={other} {program} none",
    "libiomp5": "KMP_AFFINITY=norespect,compact {program} none",
    "redis-server": REDIS,
    "mpirun.openmpi": "mpirun.openmpi --allow-run-as-root --oversubscribe -n 1 --bind-to core {show}",
}
"""A program → a script that runs it in a rank; its threads print their affinity masks."""

CAN = {
    "numactl, a node": f"test {NODE}",
    "setpriv": "setpriv --reuid=65534 true",
    "gcc": "uname -m | grep x86_64",
}
PARTS = {"redis-server": "programs", "mpirun.openmpi": "openmpi"}


def read_masks(text):
    """Return the affinity masks that threads have printed: lines of a status file, or of regions.c."""
    return set(re.findall(r'(?:_list:\t|"cpus":")([\d,-]+)', text))


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.part(PARTS[name])] if name in PARTS else []) for name in PROGRAMS
])  # fmt: skip
def test_a_program_stays_on_the_cpus_of_its_rank_only_with_hold(ompbind, tmp_path, name):
    other, own = two_cpus()
    source = shlex.quote(str(Path(__file__).with_name("bind_32_bits.c")))
    words = {"other": other, "show": SHOW, "source": source}
    if name.startswith("lib"):
        words["program"] = shlex.quote(str(runtimes.build_program(name, tmp_path)))
    elif name.partition(",")[0] != "ompbind":
        required(name.partition(",")[0])
    if run_program("sh", "-c", CAN.get(name, "true").format(**words)).returncode:
        pytest.skip(f"fails here: {CAN[name]}")
    for hold in ("", "--hold", "--hold=fixed"):
        options = ("-q", "--share", "-m", str(own), *hold.split(), "--chdir", str(tmp_path))
        done = ompbind("run", *options, "--", "sh", "-c", PROGRAMS[name].format(**words))
        assert done.returncode == 0, done.stderr
        assert (read_masks(done.stdout) == {str(own)}) == bool(hold), (hold, done.stdout, done.stderr)


LEAVE = """
for cpu in {a} {b}; do echo $OMPBIND_CPUS $(taskset -c $cpu {show} | cut -f2); done >>{path}
[ "$1$OMPBIND_ATTEMPT" != again1 ]
"""
"""Ask for each of two CPUs; write the CPUs of the rank, if it is one, and the affinity mask."""

RUNS = {
    "run --hold -n 2 -m {a}|{b} --on-failure restart -- {leave} again": "a a, b b",
    "run --hold=fixed -n 2 -m {a}|{b} -- {leave}": "a a, b b",
    "run --hold --name x -m {a} -- {leave} : --name y -m {b} -- {leave}": "a a, b b",
    "run --hold --until y --name x -m {a} --ready exec:{leave} -- sleep 60 : --name y -- true": "a a, a b",
    "exec --hold -m {a} -- {leave}": "a a",
    "bench --hold -n 2 -m {a}|{b} --vary bind=rank --max-rounds 1 -- {leave}": "a a, b b, a, b",
}
"""What a run writes: checks of --ready and copies without ompbind are not held."""


@pytest.mark.parametrize(("words", "expected"), RUNS.items(), ids=[words.split(" -")[0] for words in RUNS])
def test_each_rank_is_held_on_its_own_cpus(ompbind, tmp_path, words, expected):
    a, b = two_cpus()
    leave = write_program(tmp_path / "leave", LEAVE.format(a=a, b=b, show=SHOW, path=tmp_path / "masks"))
    done = ompbind(*(word.format(a=a, b=b, leave=leave) for word in words.split()))
    expected = {each.replace("a", str(a)).replace("b", str(b)) for each in expected.split(", ")}
    assert (done.returncode, set((tmp_path / "masks").read_text().splitlines())) == (0, expected), done.stderr


OUTER = ("run", "--hold", "-q", "--share", "--", OMPBIND)
REFUSED = (sys.executable, SANDBOX, "1", "317" if os.uname().machine == "x86_64" else "277", "--", OMPBIND)


@pytest.mark.parametrize(("before", "words", "text"), [
    ((OMPBIND, *OUTER), "run --hold", "another program already answers system calls .* use --hold=fixed"),
    (REFUSED, "run --hold", "seccomp is refused here: Operation not permitted"),
    (REFUSED, "run --hold=fixed", "seccomp is refused here"), (REFUSED, "exec --hold", "seccomp is refused"),
], ids=["nested", "refused", "refused, fixed", "exec"])  # fmt: skip
def test_if_ranks_cannot_be_held_the_error_says_why(before, words, text):
    done = run_program(*before, *words.split(), "--", "echo", "started")
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert re.search(text, one_line(done.stderr)), done.stderr


ASK_FOREVER = """
import os, signal, sys
cpu, count, failed = int(sys.argv[1]), 0, []
signal.signal(signal.SIGALRM, lambda number, frame: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while True:
    os.sched_setaffinity(0, {cpu})
    if (count := count + 1) % 100 == 0:
        os.write(1, b"%d\\n" % len(os.sched_getaffinity(0) & {cpu}))
"""


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_a_rank_that_asks_all_the_time(start, how):
    """It gets signals all the time, too: no call fails."""
    own, other = two_cpus()
    command = ("-m", str(own), "--", sys.executable, "-c", ASK_FOREVER, str(other))
    process = start("run", "--hold", *command, process_group=0)
    (rank,) = wait_until(lambda: ranks_of(process), "the rank")
    assert process.stdout.readline() == "0\n", process.stderr.read()
    if how == "killed":
        os.kill(supervisor_of(process), signal.SIGKILL)
        wait_until(lambda: not is_alive(rank), "the rank was killed", 5)
    else:
        process.send_signal(signal.SIGTSTP)
        for pid in (process.pid, rank):
            wait_until(lambda pid=pid: state_of(pid) == "T", "stopped")
        process.send_signal(signal.SIGCONT)
        assert [process.stdout.readline() for _ in range(100)] == ["0\n"] * 100, process.stderr.read()


REGION = """
import ctypes, os, sys, threading, time
def work(_):
    os.write(1, b"%d %d\\n" % (os.getpid() != threading.get_native_id(), len(os.sched_getaffinity(0))))
    time.sleep(2)
ctypes.CDLL(sys.argv[1]).GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(work), None, 2, 0)
"""


@pytest.mark.parametrize("bind", ["thread", "exact"])
@pytest.mark.parametrize("name", ["libgomp", "libomp 19", "libiomp5"])
def test_verify_finds_openmp_threads_of_held_ranks_on_their_places(ompbind, name, bind):
    options = ("--hold", "--share", "--verify=strict", "-m", ",".join(map(str, two_cpus())), "--bind", bind)
    done = ompbind("run", *options, "--", sys.executable, "-c", REGION, runtimes.path_of(name))
    masks = ["0 1" if bind == "exact" else "0 2", "1 1"]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, masks), done.stderr


@pytest.mark.parametrize(("hold", "code"), [("--hold", 0), ("--hold -q", 0), ("", 125)])
def test_verify_and_the_report_show_what_was_held(ompbind, tmp_path, hold, code):
    """A message comes once for each program, none for a request for all CPUs, and another one at the end."""
    own, other = two_cpus()
    all_cpus = f"{shlex.quote(sys.executable)} -c 'import os; os.sched_setaffinity(0, range(1024))'"
    script = f"{all_cpus}; taskset -pc {other} $$; taskset -pc {own} $$; taskset -c {other} sleep 2"
    options = ("--share", "-m", str(own), "--verify=strict", "--report", str(tmp_path / "run.json"))
    done = ompbind("run", *hold.split(), *options, "--", "sh", "-c", script)
    assert done.returncode == code, done.stderr
    held = json.loads((tmp_path / "run.json").read_text())["held"]
    outside = [{"rank": 0, "program": "taskset", "calls": 2}]
    assert held == ({"mode": "answered", "calls": 4, "outside": outside} if hold else None)
    begins = [line.partition(" (")[0] for line in done.stderr.splitlines() if re.search("--hold[:)]", line)]
    first = f"ompbind: rank 0: taskset asked for CPU {other}, and stays on CPU {own}"
    last = "ompbind: --hold: 2 calls for other CPUs, by taskset of rank 0"
    assert begins == ([first, last] if hold == "--hold" else [])


def test_a_rank_gets_no_cpus_that_are_added_to_the_cpuset(ompbind, cgroup):
    own, other = two_cpus()
    nodes = re.search(r"Mems_allowed_list:\t(.*)", Path("/proc/self/status").read_text())[1]
    tops = ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup")  # by version of cgroups
    directory, before = cgroup(dict.fromkeys(tops, ("cpuset.mems", nodes)))
    (directory / "cpuset.cpus").write_text(str(own))
    script = f"echo {own},{other} >{directory}/cpuset.cpus; taskset -c {other} {SHOW}"
    done = ompbind("run", "--hold", "--share", "--", "sh", "-c", script, before=before)
    assert read_masks(done.stdout) == {str(own)}, done.stderr
