"""What other users do: functions and programs that run as another user, and directories that all users reach.

Without root, the functions run as the user of the tests.
"""

import multiprocessing
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from tests.packaging.scripts import ROOT

NOBODY = 65534


@contextmanager
def public_directory(mode=0o755):
    """Yield a new directory that all users can enter, also if TMPDIR is in a private directory."""
    places = [Path(place).resolve() for place in (tempfile.gettempdir(), "/tmp", "/var/tmp")]
    found = [place for place in places if all(path.stat().st_mode & 1 for path in (place, *place.parents))]
    if not found:
        unavailable(f"other users can enter none of {', '.join(map(str, places))}")
    with tempfile.TemporaryDirectory(dir=found[0], ignore_cleanup_errors=True) as name:
        os.chmod(name, mode)
        yield Path(name)


def unavailable(what):
    """Skip a test for which something is missing on this machine; in CI it fails."""
    assert not os.environ.get("OMPTEST_ALL"), f"CI must run this test: {what}"
    pytest.skip(what, allow_module_level=True)


def make_public_ompbind(directory):
    """Copy ompbind and what it imports to a directory, and return a program that all users can run.

    Other users can often read neither the Python of the tests nor this tree, as in a home of mode 700.
    """
    if not shutil.which("setpriv"):
        unavailable("setpriv is not installed: it is in the package util-linux")
    program, modules = directory / "ompbind", directory / "modules"
    for name in ("ompbind", "click", "rich"):
        unfinished = shutil.ignore_patterns("*.pyc.*")  # another process compiles a module
        shutil.copytree(Path(import_module(name).__file__).parent, modules / name, ignore=unfinished)
    shutil.copy(ROOT / "packaging/start_zipapp.py", modules / "__main__.py")
    errors = []
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        command = shlex.join([python, "-I", "-S", str(modules)])
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        for path in directory.rglob("*"):
            path.chmod(0o755)
        command = [*as_user(NOBODY), str(program), "--version"]
        tried = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60)
        if tried.returncode == 0:
            return str(program)
        errors.append(f"{python}: {tried.stderr.strip()}")
    return unavailable(f"user {NOBODY} can run no Python: {'; '.join(errors)}")


def become_nobody():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def as_user(uid):
    """Return the words before a command that run it as a user, and as no other group."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


def fork_with_pipe(function, *args):
    """Run a function in a child with one end of a pipe; return the other end and the child.

    Locks and queues of multiprocessing would need /dev/shm.
    """
    context = multiprocessing.get_context("fork")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=function, args=(child_end, *args), daemon=True)
    process.start()
    child_end.close()
    return parent_end, process


def start_as_nobody(function, *args):
    """Run a function in a child, as another user if possible; return the pipe to it and the child.

    The child sends the result, and exits after the next message.
    """

    def work(pipe):
        become_nobody()
        pipe.send(function(*args))
        pipe.recv()

    return fork_with_pipe(work)


def finish(pipe, process):
    pipe.send(None)
    process.join(60)
    pipe.close()


def call_as_nobody(function, *args):
    """Return the result of a function that another user calls, who may not read modules that it imports."""
    pipe, process = start_as_nobody(function, *args)
    result = pipe.recv()
    finish(pipe, process)
    return result
