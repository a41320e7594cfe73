"""A log file that is there when its rank starts: only a regular file is overwritten."""

import os

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.output.log_files import LogDirectory


def make_link(path):
    path.with_name("target").write_text("precious")
    path.symlink_to("target")


@pytest.mark.parametrize("make", [make_link, os.mkfifo, os.mkdir])
def test_only_regular_files_are_overwritten(tmp_path, make):
    path, logs = tmp_path / "0.out", LogDirectory(str(tmp_path), ["0"], force=True)
    make(path)
    with pytest.raises(LaunchError, match="is not a regular file"):
        logs.open("0", "out")
    assert not path.is_symlink() or path.read_text() == "precious"
