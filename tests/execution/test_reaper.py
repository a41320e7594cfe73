"""The limit for reaping: daemons that exit faster than they can be reaped do not hold up other events."""

import subprocess
import sys

START = """if True:
    import os, signal
    from types import SimpleNamespace
    from ompbind.execution import processes, reaper

    signals = []
    signal.signal(signal.SIGCHLD, lambda number, frame: signals.append(number))
    processes.REAPED_AT_ONCE = reaper.REAPED_AT_ONCE = 2
    zombies = [os.posix_spawnp("true", ["true"], os.environ) for _ in range(3)]
    for pid in zombies:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    signals.clear()
"""
"""Makes three zombies, where two are reaped at once."""


def run_script(script):
    done = subprocess.run([sys.executable, "-c", START + script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_events_come_between_two_parts_of_many_children():
    script = """
    run = SimpleNamespace(children=SimpleNamespace(live={}))
    for _ in range(2):
        reaped = reaper.reap_children(run)
        print(reaped, processes.has_children(), len(signals))
        signals.clear()
    """
    assert run_script(script) == ["2 True 1", "1 False 0"]


def test_children_that_are_killed_are_reaped_in_parts():
    script = """
    for _ in range(3):
        print(processes._reap_zombies(), processes.has_children())
    """
    assert run_script(script) == ["True True", "True False", "False False"]
