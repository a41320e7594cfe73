"""Scenes: runs of ompbind whose processes can all be found, even if they leave their session or parent.

Each process of a scene has a unique marker in its environment, or in its arguments if it clears that.
"""

import os
import re
import sys
import time

from ompbind.registry.registry import find_claims_directory, read_live_runs
from tests.live.conftest import clean_environment, find_processes, kill_all, start_program, wait_until

CLEANUP_S = 10.0
"""Seconds after which no process of a killed run may be left, also on a busy machine; 0.1 s is usual."""

PYTHON = (sys.executable, "-I", "-S", "-c")


class Scene:
    """Runs, one after the other, whose processes all have `marker`; ranks write files to `directory`."""

    def __init__(self, directory):
        self.directory = directory
        self.marker = f"scene-{os.getpid()}-{time.monotonic_ns()}"
        self.started = []

    def command(self, *script):
        """Return the command of a rank: a script and its interpreter, with the marker as first argument."""
        return ["--", *script, self.marker, str(self.directory)]

    def environment(self, **extra):
        return clean_environment(**extra, SCENE=self.marker, DIRECTORY=str(self.directory))

    def begin(self, *args, before=(), env=None, program="ompbind", **options):
        env = self.environment() if env is None else env
        self.started.append(start_program(*before, program, "run", *args, env=env, **options))
        return self.started[-1]

    def end(self, process, timeout_s=20.0):
        """Wait until a run exits; check that no process is left and no message is repeated.

        Returns its exit code, its messages without line breaks, and its standard output.
        """
        stdout, stderr = process.communicate(timeout=timeout_s)
        left = self.find()
        assert not left, f"left behind by {process.args}: {left}; {stderr}"
        assert not self.claims(), "a claim outlives its run"
        return process.returncode, check_messages(stderr or ""), stdout or ""

    def run(self, *args, timeout_s=20.0, **options):
        return self.end(self.begin(*args, **options), timeout_s)

    def find(self):
        return find_processes(self.marker)

    def claims(self):
        return read_live_runs(find_claims_directory(os.environ))

    def check_nothing_left(self, what, within_s=CLEANUP_S):
        """Check that in time no process of this scene is left, and no claim."""
        deadline = time.monotonic() + within_s
        while left := self.find() or self.claims():  # an exiting process loses its memory before its locks
            assert time.monotonic() < deadline, f"left behind after {what}: {left}"
            time.sleep(0.005)

    def wait_for(self, *names):
        wait_until(lambda: all((self.directory / name).exists() for name in names), f"{names} written")

    def pids(self, name):
        path = self.directory / name
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def close(self):
        for process in self.started:
            process.kill()
        while left := self.find():
            kill_all(left)
        for process in self.started:
            with process:  # closes its pipes and waits
                pass


def check_messages(text):
    """Check that messages have no traceback and no repetition; return them without line breaks."""
    assert "Traceback" not in text, text
    messages = [message for message in re.split(r"^(?=ompbind: )", text, flags=re.MULTILINE) if message]
    assert len(messages) == len(set(messages)), text
    return " ".join(text.split())
