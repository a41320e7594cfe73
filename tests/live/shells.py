"""Real shells in a terminal, which complete command lines."""

import os
import select
import shutil
import signal
import time

from ompbind.cli.completion import make_script
from tests.live.conftest import clean_environment, start_in_terminal

PACKAGE = "/usr/share/bash-completion/bash_completion"
"""The completions of other commands, which users of bash may have installed."""

BASH = ["bash", "--noprofile", "--norc", "-i"]
START = {
    "bash": (BASH, ""),
    "bash-completion": (BASH, f". {PACKAGE}\n"),
    "zsh": (["zsh", "-f", "-i"], ""),
    "fish": (["fish", "--no-config", "-i"], ""),
}
"""Each shell: its command line without the user's configuration, and what it executes first."""

SHOW = """#!/bin/sh
printf '%s\\n' "$@" >found
mv found answer
"""

TIME_LIMIT_S = 30


class Shell:
    """A shell in a terminal, in a directory of its own, with the completion of ompbind."""

    def __init__(self, name, directory):
        self.name = name
        self.directory = directory
        self.output = b""
        argv, first = START[name]
        (directory / "script").write_text(first + make_script(argv[0]))
        (directory / "show").write_text(SHOW)
        (directory / "show").chmod(0o755)
        own = {"HOME": str(directory), "XDG_RUNTIME_DIR": str(directory), "USER": "user"}  # fish needs them
        env = clean_environment(TERM="dumb", COLUMNS="200", LC_ALL="C.UTF-8", **own)
        self.pid, self.terminal = start_in_terminal(["env", f"--chdir={directory}", *argv], env)
        self._send("source ./script; echo >ready\r")
        self._wait_for("ready")

    @staticmethod
    def is_installed(name):
        return bool(shutil.which(START[name][0][0])) and (
            name != "bash-completion" or os.path.exists(PACKAGE)
        )

    def complete(self, line):
        """Return the words of a command line after the Tab key, as the shell reads them."""
        before, after = "\x01", "\x05"  # the keys that go to the start and to the end of the line
        self._send(f"{line}\t{before}./show {after}\r")
        return self._wait_for("answer").splitlines()

    def close(self):
        os.close(self.terminal)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _send(self, keys):
        os.write(self.terminal, keys.encode())

    def _wait_for(self, name):
        """Return the text of a file as soon as the shell has written it; the terminal is read meanwhile."""
        path, until = self.directory / name, time.monotonic() + TIME_LIMIT_S
        while not path.exists():
            assert time.monotonic() < until, self.output.decode(errors="replace")
            if select.select([self.terminal], [], [], 0.01)[0]:
                self.output += os.read(self.terminal, 1 << 16)
        text = path.read_text()
        path.unlink()
        return text
