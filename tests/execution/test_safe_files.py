"""What is safe in a directory that other users may write to: decisions on results of stat, then files."""

import os
import stat

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.output.log_files import LogDirectory
from ompbind.execution.safe_files import is_shared, open_parent

ROOT, ME, OTHER = 0, 1000, 1001


@pytest.mark.parametrize(("user", "owner", "mode", "shared"), [
    (ME, ME, 0o755, False), (ME, ROOT, 0o755, False), (ME, OTHER, 0o700, True), (ME, ROOT, 0o1777, True),
    (ME, ME, 0o775, True), (ME, ME, 0o757, True), (ME, ME, 0o2755, False), (ROOT, ME, 0o755, True),
])  # fmt: skip
def test_shared_directories(user, owner, mode, shared):
    status = os.stat_result((stat.S_IFDIR | mode, 7, 5, 2, owner, 100, 0, 0, 0, 0))
    assert is_shared(status, {user, ROOT}) == shared


def test_paths_lead_through_links(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/c").mkdir()
    (tmp_path / "link").symlink_to("a/c/")
    (tmp_path / "absolute").symlink_to(f"{tmp_path}/./link/file")
    for path in ("link/file", "absolute", f"{tmp_path}//a/c/file", "./a/../link/./file"):
        directory, name = open_parent(path)
        assert (name, os.readlink(f"/proc/self/fd/{directory.fd}")) == ("file", f"{tmp_path}/a/c"), path
        assert not directory.shared
        directory.close()


def test_wrong_paths_leave_no_file_open(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    before = os.listdir("/proc/self/fd")
    for path in ("loop/x", "file/x", "no/x"):
        with pytest.raises(OSError, match="symbolic|Not a|No such"):
            open_parent(f"{tmp_path}/{path}")
    assert os.listdir("/proc/self/fd") == before


def test_only_the_expected_file_is_opened(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    directory, name = open_parent(str(path))
    expected = directory.read_entry(name)
    os.close(directory.open_existing(name, expected))
    path.rename(tmp_path / "moved")
    path.write_text("another")
    with pytest.raises(PermissionError, match="another file was put there"):
        directory.open_existing(name, expected)
    path.unlink()
    path.symlink_to("moved")
    with pytest.raises(OSError, match="symbolic links"):
        directory.open_existing(name, expected)
    directory.close()


def make_link(path):
    path.with_name("target").write_text("precious")
    path.symlink_to("target")


@pytest.mark.parametrize("make", [make_link, os.mkfifo, os.mkdir])
def test_only_a_regular_log_file_is_overwritten_although_the_check_was_before(tmp_path, make):
    path, logs = tmp_path / "0.out", LogDirectory(str(tmp_path), ["0"], force=True)
    make(path)
    with pytest.raises(LaunchError, match="is not a regular file"):
        logs.open("0", "out")
    assert not path.is_symlink() or path.read_text() == "precious"
