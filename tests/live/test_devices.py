"""Devices of ranks from the command line to the environment of processes, and access to their files."""

import json
import os
import stat
import sys

import pytest

from ompbind import read_machine
from ompbind.cli.topo import render_json
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.read.linux_devices import find_denial
from ompbind.planning.devices.visible import find_visible_devices
from tests.cli.command_lines import call
from tests.live.conftest import one_line
from tests.live.other_user import call_as_nobody
from tests.machines import Shape, make_machine
from tests.planning.devices.gpus import UUIDS, make_nic, make_nvidia_gpus

SHOW = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


@pytest.fixture
def plan(tmp_path):
    """Plan for a machine of 4 NUMA nodes with a GPU near each of them, and two network interfaces."""
    devices = (*make_nvidia_gpus(), make_nic(0, "mlx5_0", "ib0"), make_nic(1, "mlx5_1", "ib1"))
    machine = make_machine(Shape(packages=4, cores=4)).replace(devices=devices)
    path = tmp_path / "machine.json"
    path.write_text(render_json(machine))
    options = ("plan", "--topology", str(path))
    return lambda words, *more, **env: call(*options, *words.split(), *more, **env)


@pytest.mark.parametrize(("env", "rank", "expected"), [
    ({}, 1, 1), ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3"}, 0, 2),
])  # fmt: skip
def test_a_rank_gets_the_gpu_that_inherited_variables_leave_and_the_cpus_near_it(plan, env, rank, expected):
    done = plan(f"--devices gpu -n auto --format env --rank {rank}", **env)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert found["CUDA_VISIBLE_DEVICES"] == UUIDS[expected]
    assert found["OMPBIND_CPUS"] == f"{4 * expected}-{4 * expected + 3}"
    assert found["OMPBIND_RANK_DEVICES"] == f"gpu:{expected}"
    assert "CUDA_DEVICE_ORDER" not in found


def test_formats_without_devices_warn(plan):
    for name in ("numactl", "vllm"):
        done = plan(f"-n 2 --format {name} --devices gpu")
        assert f"--format {name} cannot give ranks their devices" in one_line(done.stderr)
    assert "devices" not in plan("-n 2 --format taskset").stderr


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_a_rank_finds_the_network_interface_of_this_machine(ompbind, verb):
    nics = [nic for nic in read_machine(devices=True).devices if nic.kind is DeviceKind.NIC]
    if not find_visible_devices(nics, {}).devices:
        pytest.skip("needs a network interface on PCI")
    found = json.loads(ompbind(verb, "--share", "--devices", "nic", "--", *SHOW).stdout)
    assert set(found["OMPBIND_RANK_DEVICES"].split(",")) <= {nic.name for nic in nics}
    known = {name for nic in nics for name in (*nic.names, nic.address)}
    assert set(found["OMPBIND_NICS"].split(",")) <= known


@pytest.mark.skipif(os.geteuid() != 0, reason="needs device files, which takes root")
def test_a_process_without_access_to_the_file_of_a_gpu_cannot_use_it(public):
    """The GPU is the device /dev/zero here, in a directory like /dev, open to all users."""
    gpu = Device(kind=DeviceKind.GPU, index=0, address="0000:06:00.0", names=("card0", "renderD128"))
    file = public / "dri/renderD128"
    file.parent.mkdir()
    file.parent.chmod(0o755)
    try:
        os.mknod(file, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this container cannot make device files")
    assert find_denial(gpu, str(public)) == ""
    denied = f"no access to {file}"
    for path, mode, expected in ((file, 0o600, denied), (file, 0o666, ""), (file.parent, 0o700, denied)):
        path.chmod(mode)
        assert call_as_nobody(find_denial, gpu, str(public)) == expected
