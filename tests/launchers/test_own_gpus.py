"""Ranks that see only the GPUs that their launcher has given them."""

import pytest

from ompbind.cli.exec_identity import keep_own_gpus
from ompbind.commands.environment import RankIdentity, RunSpec
from ompbind.commands.rank_command import make_command
from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.launchers.allocation import request_own_gpus
from ompbind.machine.devices import DeviceKind
from ompbind.masks.mask import parse_mask
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine
from tests.planning.devices.gpus import UUIDS, make_nvidia_gpus

MACHINE = make_machine(Shape(packages=4, cores=4)).replace(devices=make_nvidia_gpus())
"""A GPU near each of four NUMA nodes of four CPUs."""

PAIR = {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "0,1"}
PER_TASK = {"SLURM_GPUS_ON_NODE": "4", "SLURMD_TRES_BIND": "gpu:per_task:1"}


def find(env, ranks=4, *, by_slurm=True, machine=MACHINE, **options):
    values = {"ranks": ranks, "devices": (DeviceKind.GPU,), "smt": "all", **options}
    request = Request(**values, visible=find_visible_devices(machine.devices, env))
    return request_own_gpus(request, machine, ranks, env, by_slurm=by_slurm)


def make_rank_command(plan, rank, index, env):
    identity = RankIdentity(placement_index=index, rank=rank, size=4, local_rank=rank, local_size=4)
    return make_command(plan, identity, RunSpec(argv=("true",), run_id="1", base=env))


def test_ranks_with_one_gpu_each_make_the_same_plan_and_take_the_placement_of_their_gpu():
    plans = []
    for rank, gpu in enumerate((2, 3, 1, 0)):
        env = {**PER_TASK, "CUDA_VISIBLE_DEVICES": str(gpu), "SLURM_STEP_GPUS": str(gpu)}
        request, index, _ = find(env)
        plans.append(make_plan(MACHINE, request))
        command = make_rank_command(plans[0], rank, index, env)
        assert command.cpus == MACHINE.devices[gpu].cpus
        assert command.env["OMPBIND_RANK_DEVICES"] == f"gpu:{gpu}"
        assert command.env["CUDA_VISIBLE_DEVICES"] == str(gpu), "the variables of Slurm stay"
    assert all(plan == plans[0] for plan in plans)


def test_ranks_with_several_gpus_each_where_devices_of_others_are_denied():
    """With ConstrainDevices, a rank has no access to other GPUs, and indices count its own from 0."""
    gpus = [gpu.replace(excluded="" if gpu.index > 1 else "no access") for gpu in MACHINE.devices]
    machine = MACHINE.replace(devices=tuple(gpus))
    env = {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3"}
    request, index, _ = find(env, ranks=2, machine=machine)
    plan = make_plan(machine, request)
    assert (index, plan.placements[index].cpuset) == (1, CpuSet(range(8, 16)))


@pytest.mark.parametrize(("env", "options"), [
    ({"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "0"}, {"ranks": 2}),
    ({**PER_TASK, "SLURMD_TRES_BIND": "gpu:map_gpu:0*4", "CUDA_VISIBLE_DEVICES": "0"}, {}),
    ({**PER_TASK, "CUDA_VISIBLE_DEVICES": "0,2", "SLURM_STEP_GPUS": "0,2"}, {"ranks": 2}),
    (PAIR, {"ranks": 2, "devices_per_rank": 1}), (PAIR, {"ranks": 2, "mask": parse_mask("0-3|4-7")}),
])  # fmt: skip
def test_plans_that_would_differ_between_ranks_are_not_made(env, options):
    request, index, conflict = find(env, **options)
    assert (request.devices, index) == ((), None)
    assert "and cannot plan for the GPUs of the other ranks" in conflict
    assert find(PAIR, ranks=2, devices_per_rank=2)[1] == 0


@pytest.mark.parametrize(("text", "options", "number"), [
    ("2", {}, 1), ("2", {"devices": "auto"}, 1),
    ("2,3", {"ranks": 2, "devices_per_rank": 2}, 2), ("2,3", {"ranks": 2}, None),
    ("2", {"share_devices": True}, None), ("2", {"ranks": 5}, None),
    ("2", {"ranks": 1}, None), ("", {}, None), (None, {}, None),
])  # fmt: skip
def test_other_launchers_have_divided_gpus_if_too_few_are_visible_for_all_ranks(text, options, number):
    env = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    request, index, conflict = find(env, **options, by_slurm=False)
    assert (request.devices == (), index) == (number is not None, None)
    assert conflict.startswith(f"sees {number} GPU" if number else "")


@pytest.mark.parametrize("devices", [(DeviceKind.GPU,), "auto"])
def test_a_bound_rank_keeps_its_gpu(devices):
    """Rank 2 of 4, which Slurm has bound to CPUs near another GPU."""
    machine = MACHINE.replace(allowed=CpuSet(range(4)))
    env = {**PER_TASK, "CUDA_VISIBLE_DEVICES": "2", "SLURM_STEP_GPUS": "2"}
    bound = {"outside_ranks": 3, "local_ranks": (2,), "machine": machine}
    request = find(env, devices=devices, **bound)[0].replace(ranks=1)
    assert request.has_own_devices
    plan = make_plan(machine, request)
    (placement,) = plan.placements
    assert (placement.devices, placement.cpuset) == ((MACHINE.devices[2],), machine.allowed)
    (far,) = [note.text for note in plan.notes if note.code == "device-far"]
    assert "rank 2 has CPUs 0-3" in far
    assert make_rank_command(plan, 2, 0, env).env["CUDA_VISIBLE_DEVICES"] == UUIDS[2]


@pytest.mark.parametrize(("launcher", "local_rank", "quiet"), [
    ("Slurm", 0, False), ("Flux", 0, False), ("Slurm", 0, True), ("Flux", 1, False),
])  # fmt: skip
def test_the_first_rank_says_that_gpus_do_not_count(monkeypatch, capsys, launcher, local_rank, quiet):
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "2")
    visible = find_visible_devices(MACHINE.devices, {"CUDA_VISIBLE_DEVICES": "1"})
    request = Request(ranks=4, devices=(DeviceKind.GPU,), visible=visible)
    own = {"placement_index": local_rank, "rank": 8 + local_rank, "local_rank": local_rank}
    identity = RankIdentity(**own, size=16, local_size=4)
    kept, made = keep_own_gpus(identity, MACHINE, request, launcher, quiet=quiet)
    assert (kept, made.devices) == (identity, ())
    text = " ".join(capsys.readouterr().err.split())
    assert ("warning: rank 8 sees 1 GPU of 4" in text) == (local_rank == 0 and not quiet)
    with pytest.raises(PlanError, match=f"rank {identity.rank} sees 1 GPU of 4"):
        keep_own_gpus(identity, MACHINE, request.replace(strict=True), launcher, quiet=quiet)


def test_a_rank_of_slurm_takes_the_placement_of_its_gpu(monkeypatch):
    env = {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "3", "SLURM_STEP_GPUS": "3"}
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    visible = find_visible_devices(MACHINE.devices, env)
    request = Request(ranks=4, devices=(DeviceKind.GPU,), visible=visible)
    identity = RankIdentity(placement_index=0, rank=8, size=16, local_rank=0, local_size=4)
    assert keep_own_gpus(identity, MACHINE, request, "Slurm", quiet=True)[0].placement_index == 3
