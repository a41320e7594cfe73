"""What ends the sleep of a run that waits: changes of claims, also by a kill, and nothing else."""

import os
import time
from pathlib import Path

import pytest

from ompbind.registry import directory_watch
from ompbind.registry.directory_watch import DirectoryWatch
from tests.live.other_user import fork_with_pipe

LONG_S = 20.0
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """A watch that does not look again by itself."""
    monkeypatch.setattr(directory_watch, "_FIRST_DELAY_S", LONG_S)
    (tmp_path / "ompbind-1.run").touch()
    new = DirectoryWatch(str(tmp_path))
    yield new
    new.close()


def sleep_s(watch, limit_s=LONG_S):
    """Sleep, and return for how long."""
    begun = time.monotonic()
    watch.sleep(limit_s, lambda name: name == "" or name.startswith("ompbind-"))
    return time.monotonic() - begun


def keep_open(pipe, path):
    file = path.open("r+b")
    pipe.send(None)
    pipe.recv()
    file.close()


@pytest.mark.parametrize(
    "change",
    [lambda path: path.unlink(), lambda path: path.rename(path.with_name("ompbind-2.run"))],
    ids=["removed", "renamed"],
)
def test_a_change_before_or_during_the_sleep_ends_it(tmp_path, watch, change):
    change(tmp_path / "ompbind-1.run")
    assert sleep_s(watch) < 1


def test_the_kill_of_a_process_that_has_a_claim_open_ends_the_sleep(tmp_path, watch):
    pipe, process = fork_with_pipe(keep_open, tmp_path / "ompbind-1.run")
    pipe.recv()
    process.kill()
    assert sleep_s(watch) < 1
    process.join()


def test_files_of_other_programs_do_not_end_the_sleep(tmp_path, watch):
    (tmp_path / "sem.x").touch()
    (tmp_path / "sem.x").unlink()
    assert sleep_s(watch, 0.2) >= 0.2


def test_lost_events_end_the_sleep(tmp_path, watch):
    for number in range(int(QUEUE.read_text()) + 1):
        os.close(os.open(tmp_path / f"x{number % 2}", os.O_WRONLY | os.O_CREAT))
    assert sleep_s(watch) < 1


def test_without_events_the_sleeps_become_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(directory_watch, "_open_watch", lambda directory: -1)
    watch = DirectoryWatch(str(tmp_path))
    slept = [sleep_s(watch) for _ in range(4)]
    assert [0.02 * 2**number <= s < 0.02 * 2**number + 0.5 for number, s in enumerate(slept)] == [True] * 4
    assert sleep_s(watch, 0.05) < 0.3, "the limit counts"
