"""Devices of ranks from the command line to the environment of processes."""

import json
import os
import subprocess
import sys

import pytest

from ompbind import make_environment, make_plan, read_machine
from ompbind.machine.devices import DeviceKind
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.request import Request
from ompbind.report.topology import render_json
from tests.machines import Shape, make_machine
from tests.planning.devices.gpus import UUIDS, make_nic, make_nvidia_gpus

SHOW = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


@pytest.fixture
def recording(tmp_path):
    """A recorded machine of 4 NUMA nodes with a GPU near each of them, and two network interfaces."""
    devices = (*make_nvidia_gpus(), make_nic(0, "mlx5_0", "ib0"), make_nic(1, "mlx5_1", "ib1"))
    machine = make_machine(Shape(packages=4, cores=4)).replace(devices=devices)
    path = tmp_path / "machine.json"
    path.write_text(render_json(machine))
    return str(path)


def read_env(done):
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("env", "rank", "expected", "cpus"),
    [
        ({}, 1, UUIDS[1], "4-7"),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, 0, UUIDS[3], "12-15"),
        ({"CUDA_VISIBLE_DEVICES": f"GPU-7,{UUIDS[0]},-1,1"}, 1, UUIDS[0], "0-3"),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3"}, 0, UUIDS[2], "8-11"),
        ({"NVIDIA_VISIBLE_DEVICES": "1,2", "CUDA_VISIBLE_DEVICES": "1,0"}, 1, UUIDS[1], "4-7"),
    ],
)
def test_a_rank_gets_the_gpu_that_the_inherited_variables_leave_and_the_cpus_near_it(
    ompbind, recording, env, rank, expected, cpus
):
    words = ["--topology", recording, "--devices", "gpu", "-n", "auto", "--format", "env"]
    found = read_env(ompbind("plan", *words, "--rank", str(rank), env=env))
    assert (found["CUDA_VISIBLE_DEVICES"], found["OMPBIND_CPUS"]) == (expected, cpus)
    assert found["OMPBIND_RANK_DEVICES"] == f"gpu:{UUIDS.index(expected)}"
    assert "CUDA_DEVICE_ORDER" not in found


def test_ranks_never_get_a_gpu_that_is_hidden(ompbind, recording):
    words = ["--topology", recording, "--devices", "gpu", "-n", "3", "--format", "json"]
    done = ompbind("plan", *words, env={"CUDA_VISIBLE_DEVICES": "0,2"})
    assert "3 ranks need 3 GPUs, but 2 are visible" in " ".join(done.stderr.split())
    done = ompbind("plan", *words, "--share-devices", env={"CUDA_VISIBLE_DEVICES": "0,2"})
    ranks = json.loads(done.stdout)["ranks"]
    assert {rank["env"]["CUDA_VISIBLE_DEVICES"] for rank in ranks} == {UUIDS[0], UUIDS[2]}


def test_no_gpu_is_visible_with_an_empty_variable(ompbind, recording):
    words = ["--topology", recording, "--devices"]
    done = ompbind("plan", *words, "gpu", env={"CUDA_VISIBLE_DEVICES": ""})
    assert "CUDA_VISIBLE_DEVICES is empty: it hides all NVIDIA GPUs" in " ".join(done.stderr.split())
    done = ompbind("plan", *words, "auto", env={"CUDA_VISIBLE_DEVICES": ""})
    assert "CUDA_VISIBLE_DEVICES is empty" in " ".join(done.stdout.split())


def test_near_a_device_leaves_all_variables(ompbind, recording):
    env = {"CUDA_VISIBLE_DEVICES": "3", "NCCL_IB_HCA": "mlx5_1"}
    words = ["--topology", recording, "--devices", "none", "--near", "gpu:2", "--format", "env"]
    found = read_env(ompbind("plan", *words, env=env))
    assert found["OMPBIND_CPUS"] == "8-11"
    assert not {name for name in found if "DEVICE" in name or "NCCL" in name or "NIC" in name}


def test_network_interfaces_are_named_on_request(ompbind, recording):
    words = ["--topology", recording, "--devices", "gpu,nic", "--nic-variables", "NCCL_IB_HCA,PSM3_NIC"]
    found = read_env(ompbind("plan", *words, "-n", "1", "--format", "env"))
    assert (found["OMPBIND_NICS"], found["NCCL_IB_HCA"]) == ("mlx5_0,mlx5_1", "=mlx5_0,mlx5_1")
    assert "UCX_NET_DEVICES" not in found


@pytest.mark.parametrize("name", ["taskset", "numactl", "vllm", "sglang", "rankfile"])
def test_formats_without_devices_warn(ompbind, recording, name):
    words = ["plan", "-n", "2", "--topology", recording, "--format", name]
    done = ompbind(*words, "--devices", "gpu")
    assert f"--format {name} cannot give ranks their devices" in " ".join(done.stderr.split())
    assert "devices" not in ompbind(*words).stderr


def test_variables_of_the_user_stay_and_a_warning_says_so(ompbind, recording):
    words = ["plan", "-n", "2", "--topology", recording, "--devices", "gpu", "--format", "env", "--rank", "1"]
    done = ompbind(*words, "--env", "CUDA_VISIBLE_DEVICES={rank}")
    assert read_env(done)["CUDA_VISIBLE_DEVICES"] == "1"
    assert "will override the devices of the plan" in " ".join(done.stderr.split())
    done = ompbind(*words, "--keep-env", env={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert "CUDA_VISIBLE_DEVICES" not in read_env(done)
    assert "will override the devices of the plan" in " ".join(done.stderr.split())


def test_a_run_inside_a_rank_keeps_the_gpus_and_forgets_their_names(ompbind):
    env = {"CUDA_VISIBLE_DEVICES": UUIDS[1], "OMPBIND_RANK_DEVICES": "gpu:1", "OMPBIND_NICS": "mlx5_1"}
    done = ompbind("run", "--share", "-n", "1", "--", *SHOW, env=env)
    found = json.loads(done.stdout)
    assert found["CUDA_VISIBLE_DEVICES"] == UUIDS[1]
    assert not {"OMPBIND_RANK_DEVICES", "OMPBIND_NICS"} & found.keys()
    assert done.stderr == ""


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_a_rank_finds_the_network_interface_of_this_machine(ompbind, verb):
    nics = [nic for nic in read_machine(devices=True).devices if nic.kind is DeviceKind.NIC]
    if not find_visible_devices(nics, {}).devices:
        pytest.skip("this machine has no network interface on PCI")
    done = ompbind(verb, "--share", "--devices", "nic", "--", *SHOW)
    found = json.loads(done.stdout)
    names = found["OMPBIND_RANK_DEVICES"].split(",")
    assert set(names) <= {nic.name for nic in nics}
    known = {name for nic in nics for name in (*nic.names, nic.address)}
    assert set(found["OMPBIND_NICS"].split(",")) <= known


def test_python_gives_children_the_gpus_that_their_environment_leaves():
    machine = read_machine().replace(devices=make_nvidia_gpus(2))
    plan = make_plan(machine, Request(ranks=1, devices=(DeviceKind.GPU,), devices_per_rank=1))
    env = make_environment(plan, 0, {**os.environ, "CUDA_VISIBLE_DEVICES": "1,0"})
    done = subprocess.run(SHOW, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["CUDA_VISIBLE_DEVICES"] == UUIDS[0]
