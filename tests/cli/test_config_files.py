"""Which configuration files are read: real files with owners, modes, links, pipes and sizes."""

import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from ompbind.cli.config_files import (
    SIZE_LIMIT,
    FileKind,
    find_file_risk,
    read_found_files,
    read_named_file,
)
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
    """Return the paths that are read, and (path, reason) of the ignored files."""
    found = read_found_files({"HOME": str(home), **env}, str(home.parent / "etc.toml"))
    return [file.path for file in found.read], [(file.path, file.reason) for file in found.ignored]


def test_all_places_lowest_precedence_first(home, monkeypatch):
    system = write(home.parent / "etc.toml")
    user = write(home / ".config/ompbind/ompbind.toml")
    project = write(home / "work/ompbind.toml")
    (home / "work/deep/er").mkdir(parents=True)
    monkeypatch.chdir(home / "work/deep/er")
    assert read(home) == ([str(system), str(user), str(project)], [])
    other = write(home / "elsewhere/ompbind/ompbind.toml")
    assert read(home, XDG_CONFIG_HOME=str(home / "elsewhere"))[0][1] == str(other)


@pytest.mark.parametrize("name", ["ompbind.toml", "pyproject.toml"])
def test_the_nearest_project_file_is_the_only_project_file(home, monkeypatch, name):
    write(home / "ompbind.toml")
    near = write(home / "a" / name, "[tool.ompbind.defaults]\nranks = 1\n")
    (home / "a/b").mkdir()
    monkeypatch.chdir(home / "a/b")
    assert read(home) == ([str(near)], [])


def test_a_pyproject_without_options_is_no_project_file(home, monkeypatch):
    upper = write(home / "ompbind.toml")
    write(home / "a/pyproject.toml", '[project]\nname = "ompbind"\n', mode=0o666)
    monkeypatch.chdir(home / "a")
    assert read(home) == ([str(upper)], [])


def test_ompbind_toml_is_preferred_to_pyproject(home):
    write(home / "pyproject.toml", "[tool.ompbind.defaults]\n")
    path = write(home / "ompbind.toml")
    assert read(home) == ([str(path)], [])


@pytest.mark.parametrize("marker", [".git", ".hg", ".jj"])
def test_outside_of_the_home_only_repositories_are_searched(home, monkeypatch, marker):
    outside = home.parent / "srv"
    path = write(outside / "repo/ompbind.toml")
    (outside / "repo/deep").mkdir()
    monkeypatch.chdir(outside / "repo/deep")
    assert read(home) == ([], [])
    (outside / "repo" / marker).mkdir()
    assert read(home) == ([str(path)], [])
    path.unlink()
    write(outside / "ompbind.toml")  # above the repository
    assert read(home) == ([], [])


def test_a_home_and_a_file_are_found_once(home, monkeypatch):
    path = write(home / ".config/ompbind/ompbind.toml")
    monkeypatch.chdir(path.parent)
    (file,) = read_found_files({"HOME": str(home)}, "/nowhere").read
    assert (file.path, file.kind) == (str(path), FileKind.USER)
    path.chmod(0o666)
    assert len(read(home)[1]) == 1


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_the_search_stops_at_a_directory_that_others_may_write_to(home, monkeypatch, mode):
    write(home / "ompbind.toml")
    (home / "shared/mine").mkdir(parents=True)
    (home / "shared").chmod(mode)
    monkeypatch.chdir(home / "shared/mine")
    assert read(home) == ([], [])
    path = write(home / "shared/ompbind.toml")
    assert read(home) == ([], [(str(path), OPEN_DIRECTORY)])


@as_root
def test_the_search_stops_at_a_directory_of_another_user(home, monkeypatch):
    write(home / "ompbind.toml")
    path = write(home / "theirs/ompbind.toml")
    os.chown(home / "theirs", NOBODY, NOBODY)
    monkeypatch.chdir(home / "theirs")
    assert read(home) == ([], [(str(path), OPEN_DIRECTORY)])


def put_mode(path):
    write(path).chmod(0o666)


def put_group_mode(path):
    write(path).chmod(0o664)


def put_link(path):
    path.symlink_to(write(path.with_name("target")))


def put_dangling_link(path):
    path.symlink_to("nowhere")


def put_pipe(path):
    os.mkfifo(path, 0o600)


def put_directory(path):
    path.mkdir()


def put_sparse(path):
    path.touch(0o644)
    os.truncate(path, 1 << 30)


def put_long(path):
    write(path, "#" * (SIZE_LIMIT + 1))


def put_others(path):
    os.chown(write(path), NOBODY, NOBODY)


def put_device(path):
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero


OPEN_DIRECTORY = "other users own its directory or may write to it ('chmod go-w DIRECTORY' if it is yours)"
HOSTILE = [
    (put_mode, "other users may write to it (mode 0666, use 'chmod go-w FILE')"),
    (put_group_mode, "other users may write to it (mode 0664, use 'chmod go-w FILE')"),
    (put_link, "it is a symbolic link"),
    (put_dangling_link, "it is a symbolic link"),
    (put_pipe, "it is not a regular file"),
    (put_directory, "it is not a regular file"),
    (put_sparse, "it has more than 256 KiB"),
    (put_long, "it has more than 256 KiB"),
    pytest.param(put_others, f"it belongs to user {NOBODY}", marks=as_root),
    pytest.param(put_device, "it is not a regular file", marks=as_root),
]


def put(how, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        how(path)
    except PermissionError:
        pytest.skip("this container cannot make devices")


@pytest.mark.parametrize(("how", "reason"), HOSTILE)
@pytest.mark.parametrize("place", ["ompbind.toml", ".config/ompbind/ompbind.toml"])
def test_a_found_file_that_others_control_is_ignored(home, how, reason, place):
    put(how, home / place)
    began = time.monotonic()
    assert read(home) == ([], [(str(home / place), reason)])
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(("how", "reason"), HOSTILE)
def test_a_named_file_that_others_control_is_an_error(home, how, reason):
    put(how, home / "x.toml")
    with pytest.raises(ConfigurationError) as caught:
        read_named_file("x.toml", "OMPBIND_CONFIG")
    assert caught.value.message == f"OMPBIND_CONFIG: x.toml: {reason}"
    assert caught.value.hint.startswith("OMPBIND_CONFIG needs a regular file")


def test_a_named_file_that_does_not_exist_is_an_error(home):
    with pytest.raises(ConfigurationError, match="x.toml: No such file or directory"):
        read_named_file("x.toml", "--config")
    assert read_named_file(str(write(home / "y.toml")), "--config").read[0].kind is FileKind.NAMED


def test_a_pyproject_that_others_may_write_to_is_ignored_with_its_reason(home):
    path = write(home / "pyproject.toml", "[tool.ompbind.defaults]\n", mode=0o666)
    assert read(home) == ([], [(str(path), "other users may write to it (mode 0666, use 'chmod go-w FILE')")])


def test_the_largest_file_is_read_completely(home):
    write(home / "ompbind.toml", "#" * SIZE_LIMIT)
    found = read_found_files({"HOME": str(home)}, "/nowhere")
    assert len(found.read[0].data) == SIZE_LIMIT


def test_owners_are_the_user_and_root():
    def status(mode, uid):
        return os.stat_result((mode, 1, 1, 1, uid, 0, 10, 0, 0, 0))

    regular = stat.S_IFREG | 0o644
    assert [bool(find_file_risk(status(regular, uid), {0, 7})) for uid in (0, 7, 8)] == [False, False, True]


def test_a_removed_working_directory_has_no_project_file(home, monkeypatch):
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert read(home) == ([], [])
