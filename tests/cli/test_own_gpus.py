"""Requests of ranks under launchers that give each rank its own GPUs."""

import pytest

from ompbind.cli.exec_identity import keep_own_gpus
from ompbind.commands.environment import RankIdentity
from ompbind.errors import PlanError
from ompbind.machine.devices import DeviceKind
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine
from tests.planning.devices.gpus import make_nvidia_gpus

MACHINE = make_machine(Shape(packages=4, cores=4)).replace(devices=make_nvidia_gpus())


@pytest.fixture
def keep(monkeypatch):
    def keep(env, launcher="Slurm", local_rank=0, quiet=False, **fields):
        """The placement index and the request of a rank of four, and the request before."""
        for name in ("SLURM_GPUS_ON_NODE", "SLURMD_TRES_BIND"):
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        visible = find_visible_devices(MACHINE.devices, env)
        request = Request(ranks=4, devices=(DeviceKind.GPU,), visible=visible, **fields)
        identity = RankIdentity(
            placement_index=local_rank, rank=8 + local_rank, size=16, local_rank=local_rank, local_size=4
        )
        identity, made = keep_own_gpus(identity, MACHINE, request, launcher, quiet=quiet)
        return identity.placement_index, made, request

    return keep


def test_a_rank_of_slurm_takes_the_placement_of_its_gpu(keep, capsys):
    env = {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "3", "SLURM_STEP_GPUS": "3"}
    index, made, _ = keep(env)
    assert (index, made.devices_per_rank, len(made.visible.devices)) == (3, 1, 4)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("launcher", "local_rank", "quiet"), [
    ("Slurm", 0, False), ("Flux", 0, False), ("Slurm", 0, True), ("Flux", 1, False),
])  # fmt: skip
def test_the_first_rank_says_that_gpus_do_not_count(keep, capsys, launcher, local_rank, quiet):
    env = {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "1"}
    index, made, _ = keep(env, launcher, local_rank, quiet)
    assert (index, made.devices) == (local_rank, ())
    text = " ".join(capsys.readouterr().err.split())
    assert ("warning: rank 8 sees 1 GPU of 4" in text) == (local_rank == 0 and not quiet)


def test_a_strict_rank_does_not_start_far_from_its_gpu(keep):
    with pytest.raises(PlanError, match="rank 8 sees 1 GPU of 4"):
        keep({"CUDA_VISIBLE_DEVICES": "1"}, "Flux", strict=True)
