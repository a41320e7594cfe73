"""Access to the files of GPUs, with device files and a device cgroup of the kernel."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.sources.linux.devices import find_denial

CGROUPS = Path("/sys/fs/cgroup/devices")
ZERO = os.makedev(1, 5)
GPU = Device(kind=DeviceKind.GPU, index=0, address="0000:06:00.0", names=("card0", "renderD128"))


@pytest.fixture
def device_files():
    """A directory like /dev, open to all users: its GPU is the device /dev/zero."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "dri").mkdir()
        try:
            os.mknod(directory / "dri/renderD128", stat.S_IFCHR | 0o600, ZERO)
        except PermissionError:
            pytest.skip("this process may not make device files")
        yield directory


@pytest.fixture
def cgroup():
    """A device cgroup that forbids /dev/zero."""
    directory = CGROUPS / f"ompbind-test-{os.getpid()}"
    try:
        directory.mkdir()
        (directory / "devices.deny").write_text("c 1:5 rwm")
    except OSError:
        pytest.skip(f"no device cgroup (version 1) can be made in {CGROUPS}")
    yield directory
    directory.rmdir()


def in_child(work):
    """Return the text that a function returns in a child process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def test_a_device_cgroup_that_forbids_a_device_excludes_it(device_files, cgroup):
    def ask():
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        return find_denial(GPU, str(device_files))

    assert find_denial(GPU, str(device_files)) == ""
    assert in_child(ask) == f"no access to {device_files}/dri/renderD128"


def test_a_user_without_permission_for_a_device_file_cannot_use_it(device_files):
    def ask():
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        return find_denial(GPU, str(device_files))

    assert in_child(ask) == f"no access to {device_files}/dri/renderD128"
    (device_files / "dri/renderD128").chmod(0o666)
    assert in_child(ask) == ""
    (device_files / "dri").chmod(0o700)
    assert in_child(ask) == f"no access to {device_files}/dri/renderD128"
