"""A plan as options of tools that start ranks: ompbind, taskset, numactl, mpirun (rankfile), srun, docker."""

import shlex
from collections.abc import Sequence

from ompbind.cpuset import CpuSet, render_sequence
from ompbind.errors import RequestError
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import Variables
from ompbind.planning.request import MemoryMode
from ompbind.report.export.ranks import (
    check_memory,
    confined_ranks,
    find_gpus,
    make_container_options,
    memory_nodes,
    number_gpus,
    select_container_variables,
)


def render_mask(plan: Plan) -> str:
    """Render the options of ompbind that give each rank the same CPUs; a line for each group.

    Service CPUs are the last CPUs of a part, as --service-cores takes them. CPUs of several ranks need
    --share, which is an option of the whole run.
    """
    lines = []
    for part in plan.parts:
        ranks = confined_ranks(part)
        cpus = ((*placement.cpus, *placement.service_cpus) for placement in ranks)
        mask = "|".join(",".join(render_sequence(numbers)) for numbers in cpus)
        words = [*(["-n", str(len(ranks))] if len(ranks) > 1 else []), "-m", shlex.quote(mask)]
        if part.request.service_cores:
            words += ["--service-cores", str(part.request.service_cores)]
        if part.request.is_unbound:
            words += ["--bind", "none"]
        lines.append(" ".join(words))
    if sum(len(placement.cpuset) for placement in plan.placements) > len(plan.used):
        lines[0] += " --share"
    return "\n".join(lines)


def render_taskset(plan: Plan) -> str:
    """Render for each rank a line to put before its command: `taskset -c 0-3,8`."""
    check_memory(plan, "taskset")
    return "\n".join(f"taskset -c {placement.cpuset}" for placement in confined_ranks(plan))


def render_numactl(plan: Plan) -> str:
    """Render for each rank a line to put before its command: `numactl --physcpubind=0-3 --membind=0`."""
    options = {
        MemoryMode.PREFERRED: "preferred",
        MemoryMode.INTERLEAVE: "interleave",
        MemoryMode.WEIGHTED: "weighted-interleave",  # needs numactl 2.0.19
    }
    lines = []
    for placement in confined_ranks(plan):
        option, nodes = options.get(plan.request.memory, "membind"), memory_nodes(plan, placement)
        if option == "preferred" and len(nodes) > 1:
            option = "preferred-many"  # needs numactl 2.0.15
        memory = f" --{option}={nodes}" if nodes else ""
        lines.append(f"numactl --physcpubind={placement.cpuset}{memory}")
    return "\n".join(lines)


RANKFILE_SLOTS = 48
"""Characters of the longest list of slots: mpirun copies "localhost slot=" and the list into 64 bytes."""


def render_rankfile(plan: Plan) -> str:
    """Render a rankfile for Open MPI 4; its first line is a comment with the options of mpirun that it needs.

    Raises RequestError for lists that are too long for mpirun, and for --memory.
    """
    check_memory(plan, "a rankfile")
    ranks = confined_ranks(plan)
    options = f"-n {len(ranks)} --use-hwthread-cpus --mca rmaps_rank_file_physical 1"
    lines = [f"# mpirun {options} --rankfile THIS_FILE COMMAND"]
    for placement in ranks:
        if placement.devices:
            names = ",".join(map(str, placement.devices))
            lines.append(f"# rank {placement.rank} is near {names}, which a rankfile cannot give it")
        slots = str(placement.cpuset)
        if len(slots) > RANKFILE_SLOTS:
            raise RequestError(
                f"the CPU list of rank {placement.rank} has {len(slots)} characters,"
                f" a rankfile of Open MPI has space for {RANKFILE_SLOTS}: {slots}",
                hint=f"let every rank bind itself: mpirun -n {len(ranks)} --bind-to none"
                " ompbind exec -- COMMAND",
            )
        lines.append(f"rank {placement.rank}=localhost slot={slots}")
    return "\n".join(lines)


SLURM_NODES = 128  # NUMA nodes that --mem-bind can name: Slurm cuts off longer masks without a message


def render_slurm(plan: Plan) -> str:
    """Render the options of an srun that has a whole node (machine): CPU and memory masks of all tasks.

    Memory is left out unless all ranks have NUMA nodes. Raises RequestError for numbers of NUMA nodes that
    are too high for Slurm, and for a --memory policy other than local and bind.
    """
    check_memory(plan, "Slurm", MemoryMode.BIND)
    ranks = confined_ranks(plan)
    words = ["--nodes=1", f"--ntasks={len(ranks)}"]
    if len(ranks) > len(plan.machine.allowed):
        words.append("--overcommit")  # otherwise srun waits forever for as many CPUs as tasks
    words.append(f"--cpu-bind=mask_cpu:{_masks([placement.cpuset for placement in ranks])}")
    memory = [memory_nodes(plan, placement) for placement in ranks]
    for placement, nodes in zip(ranks, memory, strict=True):
        if nodes.bits >> SLURM_NODES:
            raise RequestError(
                f"Slurm binds memory to NUMA nodes 0 to {SLURM_NODES - 1} only,"
                f" rank {placement.rank} has {nodes}",
                hint="let every task bind itself: srun --cpu-bind=none ompbind exec -- COMMAND",
            )
    if all(memory):
        words.append(f"--mem-bind=mask_mem:{_masks(memory)}")
    gpus = [find_gpus(placement) for placement in ranks]
    if any(gpus):
        numbers = number_gpus(plan)  # on a whole node
        sets = [CpuSet(numbers[gpu.name] for gpu in own) for own in gpus]
        words += [f"--gpus-per-node={len(numbers)}", f"--gpu-bind=mask_gpu:{_masks(sets)}"]
    return " ".join(words)


def _masks(sets: Sequence[CpuSet]) -> str:
    """Return sets as hexadecimal numbers of any length, without the commas of kernel masks."""
    return ",".join(f"{members.bits:#x}" for members in sets)


def render_docker(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a line of options for each rank that docker and podman take, as words of a shell.

    Variables to unset are left out: a container does not inherit the variables of the caller. Raises
    RequestError for a value of several lines, and for a --memory policy other than local and bind.
    """
    check_memory(plan, "a container", MemoryMode.BIND)
    lines = []
    for placement, environment in zip(confined_ranks(plan), variables, strict=True):
        nodes = memory_nodes(plan, placement)
        memory = [f"--cpuset-mems={nodes}"] if nodes else []
        cpus = f"--cpuset-cpus={placement.cpuset}"
        devices = make_container_options(plan, placement)
        own = _container_variables(select_container_variables(plan, environment))
        lines.append(" ".join([cpus, *memory, *devices, *own]))
    return "\n".join(lines)


def _container_variables(environment: Variables) -> list[str]:
    words = []
    for name, value in sorted(environment.items()):
        if value is not None and "\n" in value:
            raise RequestError(
                f"the value of {name} has several lines, but the options of a rank are one line",
                hint="use --format sh or --format json",
            )
        if value is not None:
            words += ["--env", shlex.quote(f"{name}={value}")]
    return words
