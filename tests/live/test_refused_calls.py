"""System calls that a container filter refuses: ompbind works without them, or reports one clear error."""

import errno
import json
import os
import re
import sys

import pytest

from tests.live.conftest import SANDBOX, children_of, kill_all, wait_until

WORKS, WARNS, UNREGISTERED = "", "daemons of ranks may be left", "cannot register this run in /"
REFUSED = "a system call is refused"
IS_X86 = os.uname().machine == "x86_64"

CALLS = {
    # call: its numbers on x86_64 and others, and what `run` does: it works, or its error names this
    "all since 2019": ("424 434 435 436 437 439 441",) * 2 + (WORKS,),
    "pidfd_open": (434, 434, WORKS),
    "pidfd_send_signal": (424, 424, WORKS),
    "statx": (332, 291, WORKS),
    "memfd_create": (319, 279, WORKS),
    "fsync": (74, 82, WORKS),
    "prctl": (157, 167, WARNS),
    "PR_SET_PDEATHSIG": ("157=1", "167=1", WORKS),
    "get_mempolicy": (239, 236, WORKS),
    "set_mempolicy": (238, 237, WORKS),
    "flock": (73, 32, UNREGISTERED),
    "sched_setaffinity": (203, 122, "sched_setaffinity is refused"),
    "sched_getaffinity": (204, 123, "cannot read the allowed CPUs: sched_getaffinity"),
    "epoll_create1": (291, 20, REFUSED),
    "waitid": (247, 95, WORKS),
    "setpgid": (109, 154, REFUSED),
    "rt_sigtimedwait": (128, 137, "cannot wait for the run"),
}

LEAVES_A_DAEMON = 'echo "cpus $(taskset -cp $$)"; setsid sh -c "sleep 300; :" "$@" & sleep 0.1'


def sandbox(call, error):
    numbers = str(CALLS[call][0 if IS_X86 else 1]).split()
    return [sys.executable, SANDBOX, str(error), *numbers, "--"]


ENOSYS = pytest.param(errno.ENOSYS, marks=pytest.mark.long)


@pytest.mark.two_cpus
@pytest.mark.parametrize("error", [errno.EPERM, ENOSYS], ids=["EPERM", "ENOSYS"])
@pytest.mark.parametrize("call", CALLS)
def test_a_run_works_or_its_error_is_clear(scene, tmp_path, call, error):
    """It binds its ranks, writes the report, and leaves no daemon."""
    expected, report = CALLS[call][2], tmp_path / "run.json"
    ranks = scene.command("sh", "-c", LEAVES_A_DAEMON)
    options = ("-n", "2", "--memory", "bind", "--verify", "--report", str(report), "--output", "tag")
    process = scene.begin(*options, *ranks, before=sandbox(call, error))
    if expected in (WORKS, WARNS, UNREGISTERED):
        if expected is WARNS:
            wait_until(lambda: process.poll() is not None, "the run has exited", 10)
            while left := scene.find():
                kill_all(left)
        code, messages, output = scene.end(process)
        assert (code, expected in messages) == (0, True), messages
        assert "warning" in messages or expected is not WARNS
        masks = re.findall(r"cpus .*: (\S+)\n", output)
        assert sorted(masks) == [str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:2]], output
        assert json.loads(report.read_text())["exit_code"] == 0
    else:
        stderr = process.communicate(timeout=10)[1]
        assert process.returncode == 125
        assert expected in " ".join(stderr.split())
        assert "Traceback" not in stderr
        scene.check_nothing_left(call)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".ompbind")]


OTHERS = {
    "exec": ("exec", "--", "true"),
    "plan": ("plan", "-n", "2"),
    "topo": ("topo",),
    "inspect": ("inspect", "--all"),
    "ps": ("ps",),
    "bench": ("bench", "-n", "2", "--vary", "bind=rank,none", "--max-rounds", "1", "--", "true"),
    "doctor": ("doctor",),
}
NOT_WORKING = {
    "sched_getaffinity": {"exec": 125, "plan": 2, "topo": 2, "bench": 2, "doctor": 2},
    "sched_setaffinity": {"bench": 0, "doctor": 1},
    **{call: {"bench": 1} for call in ("epoll_create1", "setpgid")},
    "rt_sigtimedwait": {"bench": None},
}
"""Calls without which these verbs have another exit code than 0; None: without a fixed one."""


SAMPLE = ("all since 2019", "sched_getaffinity", "sched_setaffinity", "epoll_create1")


@pytest.mark.two_cpus
@pytest.mark.parametrize(
    "call", [pytest.param(call, marks=() if call in SAMPLE else pytest.mark.long) for call in CALLS]
)
def test_other_verbs_work_or_their_error_is_clear(ompbind, tmp_path, call):
    for verb, words in OTHERS.items():
        expected = NOT_WORKING.get(call, {}).get(verb, 0)
        done = ompbind(*words, before=sandbox(call, errno.EPERM), cwd=tmp_path, timeout=20)
        assert "Traceback" not in done.stdout + done.stderr, done
        assert expected in (done.returncode, None), (verb, done)
        is_said = re.search("refused|sched_setaffinity", done.stderr + done.stdout)
        assert is_said or not expected or verb == "bench", done


@pytest.mark.parametrize("call", ["pidfd_open", "pidfd_send_signal"])
def test_a_run_is_stopped(scene, ompbind, call):
    process = scene.begin("--run-id", "sleeper", *scene.command("sh", "-c", "sleep 300; :"))
    wait_until(lambda: scene.claims() and children_of(process.pid), "the run is registered")
    done = ompbind("stop", "sleeper", before=sandbox(call, errno.EPERM))
    assert done.returncode == 0, done.stderr
    assert scene.end(process)[0] == 143
