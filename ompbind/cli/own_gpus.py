"""Requests of ranks that see only GPUs of their own, because their launcher has divided the GPUs."""

import os

from ompbind.cli.console import print_message
from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.launchers.slurm import SLURM
from ompbind.machine.model import Machine
from ompbind.planning.devices.own_gpus import find_own_gpus, request_all_gpus
from ompbind.planning.rank_command import RankIdentity
from ompbind.planning.request import Request


def keep_own_gpus(
    identity: RankIdentity, machine: Machine, request: Request, launcher: str, *, quiet: bool
) -> tuple[RankIdentity, Request]:
    """Return the identity of a rank and a request in which the rank has the GPUs that only this rank sees.

    Both stay as they are if all ranks see the same GPUs. If the request is for several ranks, the variables
    of vendors stay; if their plan cannot have the GPUs, the first rank prints a warning, unless `quiet`.
    Raises PlanError for that if the request is strict.
    """
    by_slurm = launcher == SLURM.name
    own = find_own_gpus(request, machine, identity.local_size, os.environ, by_slurm=by_slurm)
    if own is None:
        return identity, request
    if request.outside_ranks:
        return identity, request.replace(has_own_devices=True)
    if found := request_all_gpus(request, own):
        request, index = found
        return identity.replace(placement_index=index), request
    text = f"rank {identity.rank} sees {count(len(own.gpus), 'GPU')} of {len(own.all_gpus)}"
    text += ", and cannot plan for the GPUs of the other ranks"
    hint = "let all ranks on the machine see the same GPUs, with Slurm by --gpu-bind=none"
    if request.strict:
        raise PlanError(text, hint=hint)
    if identity.local_rank == 0 and not quiet:
        print_message(f"warning: {text}: ranks keep their GPUs, and get CPUs as without --devices ({hint})")
    return identity, request.replace(devices=())
