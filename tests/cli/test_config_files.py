"""Which configuration files are read: real files with owners, modes, links, pipes and sizes."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from ompbind.cli.config_files import SIZE_LIMIT, FileKind, read_found_files, read_named_file
from ompbind.errors import ConfigurationError
from tests.live.other_user import NOBODY

TEXT = "[defaults]\nranks = 2\n"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def home(monkeypatch):
    """The home of the user, below a directory that nobody else can write to; the working directory."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve() / "home"
        path.mkdir()
        monkeypatch.chdir(path)
        yield path


def write(path, text=TEXT, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def read(home, **env):
    found = read_found_files({"HOME": str(home), **env})
    return [file.path for file in found.read], [(file.path, file.reason) for file in found.ignored]


def test_both_places_lowest_precedence_first(home, monkeypatch):
    user = write(home / ".config/ompbind/ompbind.toml")
    project = write(home / "work/ompbind.toml")
    (home / "work/deep").mkdir()
    monkeypatch.chdir(home / "work")
    assert read(home) == ([str(user), str(project)], [])
    other = write(home / "elsewhere/ompbind/ompbind.toml")
    assert read(home, XDG_CONFIG_HOME=str(home / "elsewhere"))[0] == [str(other), str(project)]
    monkeypatch.chdir(user.parent)
    assert read(home) == ([str(user)], [])
    monkeypatch.chdir(home / "work/deep")  # directories above are not searched
    assert read(home) == ([str(user)], [])
    path = write(home / "work/deep/ompbind.toml")
    path.parent.chmod(0o1777)  # nobody else can put a file there that belongs to this user
    assert read(home) == ([str(user), str(path)], [])


HOSTILE = [
    (lambda path: write(path, mode=0o666), "mode 0666"), (lambda path: write(path, mode=0o664), "mode 0664"),
    (lambda path: path.symlink_to(write(path.with_name("target"))), "symbolic link"),
    (lambda path: os.mkfifo(path, 0o600), "not a regular file"),
    (lambda path: path.mkdir(), "not a regular file"),
    (lambda path: os.truncate(write(path), 1 << 30), "more than 256 KiB"),
    (lambda path: write(path, "#" * (SIZE_LIMIT + 1)), "more than 256 KiB"),
    pytest.param(lambda path: os.chown(write(path), NOBODY, NOBODY), f"belongs to user {NOBODY}",
                 marks=as_root),
    pytest.param(lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),  # /dev/zero
                 "not a regular file", marks=as_root),
]  # fmt: skip


@pytest.mark.parametrize(("put", "reason"), HOSTILE)
def test_a_file_that_others_control_is_ignored_or_if_it_is_named_an_error(home, put, reason):
    """A pipe, or a device without an end, would block."""
    for place in ("ompbind.toml", ".config/ompbind/ompbind.toml", "x.toml"):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        try:
            put(home / place)
        except PermissionError:
            pytest.skip("needs root outside of a container: device files cannot be made here")
    found, ignored = read(home)
    assert found == []
    assert {path for path, why in ignored if reason in why} == {
        str(home / place) for place in ("ompbind.toml", ".config/ompbind/ompbind.toml")
    }
    with pytest.raises(ConfigurationError, match=f"^OMPBIND_CONFIG: x.toml: .*{reason}"):
        read_named_file("x.toml", "OMPBIND_CONFIG")


def test_a_named_file(home):
    with pytest.raises(ConfigurationError, match=r"x.toml: No such file or directory"):
        read_named_file("x.toml", "--config")
    path = write(home / "y.toml", "#" * SIZE_LIMIT)
    (file,) = read_named_file(str(path), "--config").read
    assert (file.kind, len(file.data)) == (FileKind.NAMED, SIZE_LIMIT)
