"""Reports in real files: replaced atomically or unchanged; most errors are found before the start."""

import fcntl
import os
import select
import shlex
import socket
import stat
import subprocess
import sys
import threading

import pytest

from ompbind.cli.report_file import prepare_report, write_report
from ompbind.errors import LaunchError, OmpbindError, RequestError
from tests.live.conftest import required
from tests.live.other_user import NOBODY, call_as_nobody

ROOT = os.geteuid() == 0


def write(path, text):
    write_report(prepare_report(str(path)), text)


def test_a_new_file_has_the_mode_of_umask(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = os.umask(0o027)
    try:
        file = prepare_report("run.json")
        assert os.listdir(tmp_path) == []
        monkeypatch.chdir("/")
        write_report(file, "{}")
    finally:
        os.umask(old)
    assert (tmp_path / "run.json").read_text() == "{}\n"
    assert stat.filemode((tmp_path / "run.json").stat().st_mode) == "-rw-r-----"
    assert os.listdir(tmp_path) == ["run.json"]


def test_an_existing_file_is_replaced_and_keeps_its_mode_and_owner(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("before")
    path.chmod(0o604)
    owner = NOBODY if ROOT else os.geteuid()
    if ROOT:
        os.chown(path, NOBODY, NOBODY)
    other = tmp_path / ".ompbind-0123456789abcdef.tmp"  # a temporary file of another run
    other.write_text("other")
    with path.open() as before, other.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        write(path, "after")
        assert before.read() == "before"  # a process that reads the old file is not disturbed
    assert (path.read_text(), path.stat().st_uid) == ("after\n", owner)
    assert stat.filemode(path.stat().st_mode) == "-rw----r--"
    assert sorted(os.listdir(tmp_path)) == [other.name, "run.json"]
    assert other.read_text() == "other"


def test_what_a_killed_run_has_left_is_removed(tmp_path):
    names = [".ompbind-0123456789abcdef.tmp", ".ompbind-notes.tmp", ".ompbind-fedcba9876543210.tmp"]
    for name in names[:2]:
        (tmp_path / name).write_text("left")
    (tmp_path / names[2]).symlink_to(names[1])
    theirs = tmp_path / ".ompbind-0000000000000000.tmp"
    theirs.touch()
    os.chown(theirs, *[NOBODY if ROOT else -1] * 2)
    write(tmp_path / "run.json", "{}")
    assert sorted(os.listdir(tmp_path)) == sorted([theirs.name] * ROOT + [*names[1:], "run.json"])


@pytest.mark.parametrize(("name", "why", "hint"), [
    ("", "''", "choose a file"), ("directory/", "it is a directory", "run.json"),
    ("new/", "No such file or directory", "choose a file"), ("loop", "symbolic links", ""),
    ("nowhere/run.json", "No such file or directory", "mkdir -p {}/nowhere"),
    ("socket", "socket or block device", "choose a file"), ("a\0b", "null", ""),
    ("/dev/fd/77", "Bad file descriptor", "N>FILE"), ("/dev/fd/99999999999", "Bad file descriptor", "N>FILE"),
])  # fmt: skip
def test_a_file_that_cannot_be_written_is_an_error_before_the_start(tmp_path, monkeypatch, name, why, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(RequestError) as caught:
            prepare_report(name)
    assert why.format(tmp_path) in caught.value.message
    assert hint.format(tmp_path) in caught.value.hint
    assert caught.value.launch_code == 125


def try_to_write(path):
    try:
        write(path, "after")
    except OmpbindError as error:
        return type(error), error.message


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
@pytest.mark.parametrize(("directory_mode", "file_mode", "text"), [
    (0o755, 0o644, "before"), (0o755, 0o666, "after\n"), (0o777, 0o644, "before"), (0o1777, 0o666, "after\n"),
])  # fmt: skip
def test_permissions_of_the_user_count(public, directory_mode, file_mode, text):
    path = public / "run.json"
    write(path, "before")  # loads all modules
    path.chmod(file_mode)
    public.chmod(directory_mode)
    refused = RequestError, f"the report cannot be written to {path}: Permission denied"
    assert call_as_nobody(try_to_write, path) == (None if text == "after\n" else refused)
    assert path.read_text().startswith(text)
    assert os.listdir(public) == ["run.json"]


STANDARD = """
import os, sys
from ompbind.cli.report_file import prepare_report, write_report
file = prepare_report(sys.argv[1])
print("from a rank", flush=True)
for number in (0, 1):
    os.dup2(os.open("/dev/null", os.O_RDWR), number)  # as both processes of ompbind do
write_report(file, "{}")
"""


@pytest.mark.parametrize(("name", "where"), [
    ("-", ">out"), ("-", "| cat >out"), ("/proc/self/fd/1", "| cat >out"), ("link", ">out"),
    ("/dev/fd/5", "5>out"),
])  # fmt: skip
def test_the_report_follows_the_output_of_ranks(tmp_path, name, where):
    (tmp_path / "link").symlink_to("/dev/stdout")
    script = f"{shlex.quote(sys.executable)} -c '{STANDARD}' {name} {where}"
    subprocess.run(script, shell=True, check=True, cwd=tmp_path, timeout=60)
    assert (tmp_path / "out").read_text() == ("{}\n" if "5" in name else "from a rank\n{}\n")


def test_a_full_pipe_is_waited_for(tmp_path):
    path, received = tmp_path / "pipe", []
    os.mkfifo(path)
    file = prepare_report(str(path))  # it needs no reader yet
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        writer = threading.Thread(target=write_report, args=(file, "x" * 300_000))  # more than a pipe holds
        writer.start()
        select.select([stream], [], [], 20)
        os.set_blocking(stream.fileno(), True)
        received.append(stream.read())
        writer.join(20)
    assert received == [b"x" * 300_000 + b"\n"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_what_disappears_meanwhile_is_an_error(tmp_path):
    (tmp_path / "gone").mkdir()
    file = prepare_report(str(tmp_path / "gone/run.json"))
    (tmp_path / "gone").rmdir()
    with pytest.raises(LaunchError, match="No such file or directory"):
        write_report(file, "{}")


def test_a_full_disk_leaves_the_file_unchanged(tmp_path):
    if not ROOT:
        pytest.skip("only root can mount")
    command = [required("mount"), "-t", "tmpfs", "-o", "size=64k", "none", tmp_path]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        pytest.skip(f"needs a mount, which takes root: {done.stderr}")
    path = tmp_path / "run.json"
    try:
        for before in ([], ["run.json"]):
            file = prepare_report(str(path))
            with pytest.raises(LaunchError, match="No space left"):
                write_report(file, "x" * 100_000)
            assert os.listdir(tmp_path) == before
            assert not before or path.read_text() == "short\n"
            write(path, "short")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
