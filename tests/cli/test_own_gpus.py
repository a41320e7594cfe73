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
