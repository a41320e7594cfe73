"""ompbind as one file: ranks start from it without any other package."""

import os
import subprocess
import sys

import pytest

from benchmarks.installation import make_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The start of the command line of ompbind as one file."""
    return make_archive(tmp_path_factory.mktemp("archive"), sys.executable)


@pytest.mark.parametrize(
    ("words", "output"),
    [(("run", "-n", "2", "--share"), "hi\nhi\n"), (("exec",), "hi\n")],
    ids=["run", "exec"],
)
def test_ranks_start_from_one_file_without_other_packages(archive, tmp_path, words, output):
    env = {"PATH": os.environ["PATH"], "OMPBIND_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-S", *archive, *words, "--", "echo", "hi"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == output, done.stderr
    assert done.returncode == 0
