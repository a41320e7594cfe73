"""Log files: made with their directory; only regular files are overwritten, and only with force."""

import os
import stat
from functools import partial

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.output.log_files import LogDirectory, write_all


def refusal(call, *args, **options):
    with pytest.raises(LaunchError) as caught:
        call(*args, **options)
    return f"{caught.value.message} ({caught.value.hint})"


def test_a_directory_is_made_with_its_parents(tmp_path):
    for _ in range(2):
        LogDirectory(str(tmp_path / "a/b/c"), ["0"], force=False)
    (tmp_path / "file").touch()
    for path, message in (("file", "is not a directory"), ("file/sub", "cannot create or open the log dir")):
        assert message in refusal(LogDirectory, str(tmp_path / path), ["0"], force=False)


def make_link(path):
    path.with_name("target").write_text("precious")
    path.symlink_to("target")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("make", [make_link, os.mkfifo, os.mkdir])
def test_only_regular_files_are_overwritten(tmp_path, make, late):
    path, call = tmp_path / "0.out", partial(LogDirectory, str(tmp_path), ["0"], force=True)
    if late:
        call = partial(call().open, "0", "out")
    make(path)
    assert "is not a regular file" in refusal(call)
    assert not path.is_symlink() or path.read_text() == "precious"


def test_files_are_new_truncated_only_with_force_and_appended_to(tmp_path):
    logs, path = LogDirectory(str(tmp_path), ["3"], force=False), tmp_path / "3.out"
    before = os.umask(0o027)
    try:
        file = logs.open("3", "out")
    finally:
        os.umask(before)
    write_all(file, b"hello")
    os.lseek(file, 0, os.SEEK_SET)
    write_all(file, b" world")
    assert path.read_bytes() == b"hello world"
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o640
    assert not os.get_inheritable(file)
    assert f"cannot open {path}: File exists" in refusal(logs.open, "3", "out")
    again = LogDirectory(str(tmp_path), ["3"], force=True).open("3", "out")
    assert os.get_blocking(again)
    assert path.read_bytes() == b""
    write_all(again, b"new")
    write_all(file, b"old")
    assert path.read_bytes() == b"newold"
    os.close(file)
    os.close(again)
