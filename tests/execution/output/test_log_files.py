"""Log files: made with their directory; only regular files are overwritten, and only with force."""

import os
import stat

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.output.log_files import log_path, make_log_directory, open_log, read_tail, write_all


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "logs")


def refusal(call, *args, **options):
    with pytest.raises(LaunchError) as caught:
        call(*args, **options)
    return f"{caught.value.message} ({caught.value.hint})"


def test_a_directory_is_made_with_its_parents(tmp_path):
    make_log_directory(str(tmp_path / "a/b/c"), [0], force=False)
    make_log_directory(str(tmp_path / "a/b/c"), [0], force=False)
    assert (tmp_path / "a/b/c").is_dir()


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "file").touch()
    assert "is not a directory" in refusal(make_log_directory, str(tmp_path / "file"), [0], force=False)
    assert "cannot create or read the log directory " in refusal(
        make_log_directory, str(tmp_path / "file/sub"), [0], force=False
    )


def test_files_of_these_ranks_must_not_exist(tmp_path):
    (tmp_path / "2.err").touch()
    make_log_directory(str(tmp_path), [0, 1], force=False)
    assert refusal(make_log_directory, str(tmp_path), [0, 1, 2], force=False) == (
        f"{tmp_path}/2.err already exists (use --force to overwrite, or choose another --log-dir)"
    )
    for name in ("0.out", "1.out"):
        (tmp_path / name).touch()
    assert f"{tmp_path}/0.out and 2 more log files already exist" in refusal(
        make_log_directory, str(tmp_path), [0, 1, 2], force=False
    )
    make_log_directory(str(tmp_path), [0, 1, 2], force=True)


def make_link(path):
    path.with_name("target").write_text("precious")
    path.symlink_to("target")


@pytest.mark.parametrize("make", [make_link, os.mkfifo, os.mkdir])
def test_only_regular_files_are_overwritten(tmp_path, make):
    path = tmp_path / "0.out"
    make(path)
    assert "is not a regular file" in refusal(make_log_directory, str(tmp_path), [0], force=True)
    assert f"rank 0: cannot open {path}" in refusal(open_log, str(path), 0, force=True) or not path.is_file()
    if path.is_symlink():
        assert path.read_text() == "precious"


def test_a_pipe_with_a_reader_is_not_a_log_file(tmp_path):
    path = str(tmp_path / "0.out")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    assert "is not a regular file" in refusal(open_log, path, 0, force=True)
    os.close(reader)


def test_files_are_new_truncated_only_with_force_and_appended_to(tmp_path):
    path = log_path(str(tmp_path), 3, "out")
    assert path == f"{tmp_path}/3.out"
    before = os.umask(0o027)
    try:
        file = open_log(path, 3, force=False)
    finally:
        os.umask(before)
    write_all(file, b"hello")
    os.lseek(file, 0, os.SEEK_SET)
    write_all(file, b" world")
    assert (tmp_path / "3.out").read_bytes() == b"hello world"
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o640
    assert not os.get_inheritable(file)
    assert f"rank 3: cannot open {path}: File exists" in refusal(open_log, path, 3, force=False)
    again = open_log(path, 3, force=True)
    assert os.get_blocking(again)
    assert (tmp_path / "3.out").read_bytes() == b""
    os.close(file)
    os.close(again)


def test_read_tail(tmp_path):
    path = tmp_path / "0.err"
    assert read_tail(str(path), 4) == (b"", True)
    path.write_bytes(b"abc")
    assert read_tail(str(path), 4) == (b"abc", True)
    path.write_bytes(b"abcdef")
    assert read_tail(str(path), 4) == (b"cdef", False)
    os.mkfifo(tmp_path / "1.err")
    assert read_tail(str(tmp_path / "1.err"), 4) == (b"", True)
