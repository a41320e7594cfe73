"""Processes that a test has started through others: find them by a word, and kill them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.live.conftest import is_alive


def find_processes(word):
    """Return the pids of all other processes that have a word among their arguments or variables."""
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _has_word(pid, word)]


def _has_word(pid, word):
    try:
        words = b"\0".join(Path(f"/proc/{pid}/{file}").read_bytes() for file in ("cmdline", "environ"))
    except OSError:
        return False
    return word.encode() in words.split(b"\0") and pid != os.getpid() and is_alive(pid)


def name_of(pid):
    """Return the name of a process, "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def kill_all(pids):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
