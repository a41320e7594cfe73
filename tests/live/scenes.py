"""Scenes: runs of ompbind whose every process can be found, whatever it does to hide.

Each process of a scene has a word of its own in its environment, and in its arguments where it cleans that.
"""

import os
import re
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

from ompbind.registry.claims import read_live_runs
from tests.live.conftest import OMPBIND, RUNTIME_DIR, clean_environment, is_alive, wait_until

LEFT_S = 2.0
"""Seconds after which nothing may be left of a run that was killed."""

PYTHON = (sys.executable, "-I", "-S", "-c")

_numbers = count()


class Scene:
    """One run after the other, all of whose processes have `word`; `folder` is for what ranks write."""

    def __init__(self, folder):
        self.folder = folder
        self.word = f"scene-{os.getpid()}-{next(_numbers)}-{time.monotonic_ns()}"
        self.started = []

    def command(self, *script):
        """A command of ranks: a script and its interpreter, with the word as its first argument."""
        return ["--", *script, self.word, str(self.folder)]

    def environment(self, **extra):
        return {**clean_environment(**extra), "SCENE": self.word, "FOLDER": str(self.folder)}

    def begin(self, *args, before=(), env=None, **options):
        settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [*before, OMPBIND, "run", *args],
            env=self.environment() if env is None else env,
            text=True,
            **{**settings, **options},
        )
        self.started.append(process)
        return process

    def end(self, process, timeout_s=20.0):
        """Wait for the end of a run: it is in time, nothing of it lives any more, and nothing was said twice.

        Returns its exit code and what it said, without breaks of lines.
        """
        told, said = process.communicate(timeout=timeout_s)
        left = self.find()
        assert not left, f"left behind by {process.args}: {left}; {said}"
        assert not self.claims(), "a claim outlives its run"
        return process.returncode, check_said(said or ""), told or ""

    def run(self, *args, timeout_s=20.0, **options):
        return self.end(self.begin(*args, **options), timeout_s)

    def find(self):
        """The processes of this scene that live, with their command lines."""
        return find_marked(self.word)

    def claims(self):
        return read_live_runs(os.environ[RUNTIME_DIR])

    def check_gone(self, what, within_s=LEFT_S):
        """Nothing of this scene is left, in time, and nobody believes that it holds CPUs."""
        deadline = time.monotonic() + within_s
        while left := self.find():
            assert time.monotonic() < deadline, f"left behind after {what}: {left}"
            time.sleep(0.005)
        assert not self.claims(), f"a claim is left after {what}"

    def wait_for(self, *names):
        """Wait until ranks have written some files."""
        wait_until(lambda: all((self.folder / name).exists() for name in names), f"{names} written")

    def pids(self, name):
        """The numbers that ranks have written into a file."""
        path = self.folder / name
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def close(self):
        """End what a failed test has left, process by process."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
        while left := self.find():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for process in self.started:
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()


def find_marked(word):
    """The living processes, by pid, that have a word in their arguments or their environment."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            line, environment = read_bytes(f"/proc/{name}/cmdline"), read_bytes(f"/proc/{name}/environ")
            if word.encode() in line + environment and is_alive(name):
                found[int(name)] = line.replace(b"\0", b" ").decode(errors="replace")[:200]
    return found


def read_bytes(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def check_said(text):
    """What ompbind says holds no traceback and nothing twice; each thing begins with its name."""
    assert "Traceback" not in text, text
    things = [thing for thing in re.split(r"^(?=ompbind: )", text, flags=re.MULTILINE) if thing]
    assert len(things) == len(set(things)), text
    return " ".join(text.split())
