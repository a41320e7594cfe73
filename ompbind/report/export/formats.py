"""A plan in the words of others: taskset, numactl, vLLM, srun, mpirun, systemd, docker and podman.

Each of them takes the CPUs of a rank as a set, by the numbers of the OS; their order, and which thread
has which, it cannot carry. `--smt`, `--reserve` and the rest are decided by then: what is reserved is in
no set. NUMA nodes are those that a rank's memory should come from, and left out where they are unknown;
with `--memory` they have the policy that it says, in those formats that know it.
"""

import re
import shlex
from collections.abc import Sequence

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_command import Variables
from ompbind.planning.request import Memory

SLURM_NODES = 128
"""One past the highest NUMA node of --mem-bind: Slurm cuts longer masks off without a word."""

RANKFILE_SLOTS = 48
"""Characters that a list of slots may have: mpirun writes "localhost slot=" and the list into 64 bytes."""


def render_taskset(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a line for each rank that goes before its command: `taskset -c 0-3,8`.

    Raises RequestError where the machine cannot confine a process, and for --memory.
    """
    _check_memory(plan, "taskset")
    return "\n".join(f"taskset -c {one.cpuset}" for one in _confined(plan))


def render_numactl(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a line for each rank that goes before its command: `numactl --physcpubind=0-3 --membind=0`.

    Raises RequestError where the machine cannot confine a process.
    """
    return "\n".join(
        " ".join([f"numactl --physcpubind={one.cpuset}", *_numactl_memory(plan, one)])
        for one in _confined(plan)
    )


def _numactl_memory(plan: Plan, one: Placement) -> list[str]:
    """Write the memory of a rank as an option of numactl; 2.0.15 is the first to prefer several nodes."""
    options = {Memory.PREFERRED: "preferred", Memory.INTERLEAVE: "interleave"}
    option = options.get(plan.request.memory, "membind")
    nodes = _memory(plan, one)
    several = plan.request.memory is Memory.PREFERRED and len(nodes) > 1
    return [f"--{option}{'-many' if several else ''}={nodes}"] if nodes else []


def render_vllm(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variable that tells vLLM the CPUs of all its ranks, as a shell command.

    It is "nobind" where ranks may use everything, or the machine cannot bind. Raises RequestError for
    --bind none: vLLM binds OpenMP wherever it is told CPUs; and for --memory.
    """
    _check_memory(plan, "vLLM")
    lists = "|".join(str(one.cpuset) for one in plan.placements)
    if not plan.machine.bindable or plan.request.is_unbound:
        lists = "nobind"
    elif plan.request.bind is Bind.NONE:
        raise RequestError(
            "vLLM binds OpenMP to the CPUs that it is told, which --bind none rules out",
            hint="leave --bind none away, or use --mask none: then vLLM neither binds nor confines",
        )
    return f"export VLLM_CPU_OMP_THREADS_BIND={shlex.quote(lists)}"


def render_slurm(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the options of an srun that has a whole node, a mask of CPUs and of memory for each task.

    Memory is left out unless all ranks have nodes. Raises RequestError where the machine cannot confine a
    process, for nodes that Slurm has no room for, and for memory that is not to be bound.
    """
    _check_memory(plan, "Slurm", Memory.BIND)
    ranks = _confined(plan)
    words = ["--nodes=1", f"--ntasks={len(ranks)}"]
    if len(ranks) > len(plan.machine.allowed):
        words.append("--overcommit")  # else srun waits for as many CPUs as tasks, for ever
    words.append(f"--cpu-bind=mask_cpu:{_masks([one.cpuset for one in ranks])}")
    memory = [_memory(plan, one) for one in ranks]
    for one, nodes in zip(ranks, memory, strict=True):
        if nodes.bits >> SLURM_NODES:
            raise RequestError(
                f"Slurm binds memory to NUMA nodes 0 to {SLURM_NODES - 1} only, rank {one.rank} has {nodes}",
                hint="let every task bind itself: srun --cpu-bind=none ompbind exec -- COMMAND",
            )
    if all(memory):
        words.append(f"--mem-bind=mask_mem:{_masks(memory)}")
    return " ".join(words)


def render_rankfile(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a rankfile for Open MPI 4; its first line is a comment with the options that go with it.

    Raises RequestError where the machine cannot confine a process, for lists that mpirun has no room for, and
    for --memory.
    """
    _check_memory(plan, "a rankfile")
    ranks = _confined(plan)
    options = f"-n {len(ranks)} --use-hwthread-cpus --mca rmaps_rank_file_physical 1"
    lines = [f"# mpirun {options} --rankfile THIS_FILE COMMAND"]
    for one in ranks:
        slots = str(one.cpuset)
        if len(slots) > RANKFILE_SLOTS:
            raise RequestError(
                f"the CPUs of rank {one.rank} take {len(slots)} characters,"
                f" a rankfile of Open MPI holds {RANKFILE_SLOTS}: {slots}",
                hint=f"let every rank bind itself: mpirun -n {len(ranks)} --bind-to none"
                " ompbind exec -- COMMAND",
            )
        lines.append(f"rank {one.rank}=localhost slot={slots}")
    return "\n".join(lines)


def render_systemd(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a drop-in for the unit of one rank: its CPUs, its memory, and its variables.

    What the unit itself says of CPUs and nodes is replaced. Raises RequestError where the machine cannot
    confine a process, for values that systemd refuses, and for several nodes that are preferred.
    """
    (one,), (only,) = _confined(plan), variables
    lines = ["[Service]", "CPUAffinity=", f"CPUAffinity={one.cpuset}"]
    lines += _unit_memory(plan, one)
    lines += [_assignment(name, value) for name, value in sorted(only.items()) if value is not None]
    lines += [f"UnsetEnvironment={name}" for name, value in sorted(only.items()) if value is None]
    return "\n".join(lines)


def _unit_memory(plan: Plan, one: Placement) -> list[str]:
    """Write the memory of a rank as lines of a unit."""
    nodes, mode = _memory(plan, one), plan.request.memory
    if not nodes:
        return []
    if mode is Memory.PREFERRED and len(nodes) > 1:
        raise RequestError(
            f"systemd prefers memory of one NUMA node only, rank {one.rank} has {nodes}",
            hint="use --memory bind or interleave",
        )
    policy = "bind" if mode is Memory.LOCAL else str(mode)
    return [f"NUMAPolicy={policy}", "NUMAMask=", f"NUMAMask={nodes}"]


def render_docker(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a line of options for each rank that docker and podman take, as words of a shell.

    Variables to unset are left out: a container starts without those of the caller. Raises RequestError
    where the machine cannot confine a process, for a value of several lines, and for memory that is not to be
    bound.
    """
    _check_memory(plan, "a container", Memory.BIND)
    lines = []
    for one, only in zip(_confined(plan), variables, strict=True):
        nodes = _memory(plan, one)
        memory = [f"--cpuset-mems={nodes}"] if nodes else []
        lines.append(" ".join([f"--cpuset-cpus={one.cpuset}", *memory, *_container_variables(only)]))
    return "\n".join(lines)


def _confined(plan: Plan) -> tuple[Placement, ...]:
    """Return the placements of a plan, if its machine can hold processes to them."""
    if not plan.machine.bindable:
        raise RequestError(
            "this system cannot confine a process to CPUs, so there is none to tell others",
            hint="--format sh and --format env have the thread counts of a rank",
        )
    return plan.placements


def _memory(plan: Plan, one: Placement) -> CpuSet:
    """Return the nodes of a rank's memory, none where they are unknown, or no policy can be had for them."""
    if plan.request.memory is Memory.LOCAL:
        return CpuSet(one.memory_nodes)
    return CpuSet(one.memory.nodes) if one.memory else CpuSet()


def _check_memory(plan: Plan, who: str, *known: Memory) -> None:
    """Refuse what a format cannot say of memory, rather than leave it out."""
    if plan.request.memory not in (Memory.LOCAL, *known):
        raise RequestError(
            f"{who} cannot be told --memory {plan.request.memory}",
            hint="leave it out, or let every rank take it itself: ompbind exec"
            f" --memory {plan.request.memory} -- COMMAND",
        )


def _masks(sets: Sequence[CpuSet]) -> str:
    """Write sets as hexadecimal numbers of any length, without the commas that kernels write."""
    return ",".join(f"{one.bits:#x}" for one in sets)


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"})
"""What means something else inside the quotes of a unit file; % begins a specifier there."""


def _assignment(name: str, value: str) -> str:
    """Write one variable as systemd.exec(5) reads it; what is refused here it would ignore."""
    odd = re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", value)
    if odd:
        raise RequestError(
            f"the value of {name} has the character {odd[0]!r}, which systemd refuses",
            hint="it takes UTF-8 without control characters, except tab and line end",
        )
    return f'Environment="{name}={value.translate(_ESCAPES)}"'


def _container_variables(only: Variables) -> list[str]:
    words = []
    for name, value in sorted(only.items()):
        if value is not None and "\n" in value:
            raise RequestError(
                f"the value of {name} has several lines, the options of a rank are one line",
                hint="use --format sh or --format json for it",
            )
        if value is not None:
            words += ["--env", shlex.quote(f"{name}={value}")]
    return words
