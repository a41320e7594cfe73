"""What ends the sleep of a run that waits: changes of claims, also by a kill, and nothing else."""

import os
import time
from pathlib import Path

import pytest

from ompbind.registry import directory_watch
from ompbind.registry.directory_watch import DirectoryWatch
from tests.live.other_user import fork_with_pipe


def keep_open(pipe, path):
    file = path.open("r+b")
    pipe.send(None)
    pipe.recv()
    file.close()


def kill_its_holder(path):
    pipe, process = fork_with_pipe(keep_open, path)
    pipe.recv()
    process.kill()
    process.join()


def lose_events(path):
    for number in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) + 1):
        os.close(os.open(path.with_name(f"x{number % 2}"), os.O_WRONLY | os.O_CREAT))


def sleep_s(watch, limit_s=20.0):
    """Sleep, and return for how long."""
    begun = time.monotonic()
    watch.sleep(limit_s, lambda name: name == "" or name.startswith("ompbind-"))
    return time.monotonic() - begun


@pytest.mark.parametrize(
    ("change", "ends"),
    [(Path.unlink, True), (lambda path: path.rename(path.with_name("ompbind-2.run")), True),
     (kill_its_holder, True), (lose_events, True), (lambda path: path.with_name("sem.x").touch(), False)],
    ids=["removed", "renamed", "killed", "lost events", "of another program"],
)  # fmt: skip
def test_changes_of_claims_end_the_sleep(tmp_path, monkeypatch, change, ends):
    monkeypatch.setattr(directory_watch, "_FIRST_DELAY_S", 20.0)  # it does not look again by itself
    path = tmp_path / "ompbind-1.run"
    path.touch()
    watch = DirectoryWatch(str(tmp_path))
    change(path)
    assert sleep_s(watch) < 1 if ends else sleep_s(watch, 0.2) >= 0.2
    watch.close()


def test_without_events_the_sleeps_become_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(directory_watch, "_open_watch", lambda directory: -1)
    watch = DirectoryWatch(str(tmp_path))
    slept = [sleep_s(watch) for _ in range(4)]
    assert [0.02 * 2**number <= s < 0.02 * 2**number + 0.5 for number, s in enumerate(slept)] == [True] * 4
    assert sleep_s(watch, 0.05) < 0.3, "the limit counts"
