"""vLLM."""

from collections.abc import Iterator

from ompbind.compat.framework import Framework, FrameworkInput, Selection, find_selection
from ompbind.cpuset import CpuSet, named
from ompbind.machine.model import Level, Machine, find_overlapping
from ompbind.openmp.binding import Bind
from ompbind.planning.request import Request


def _explain_differences(source: FrameworkInput, request: Request) -> Iterator[str]:
    """Yield a note for each difference between vLLM's CPUs and the plan, other than the number of ranks."""
    machine, is_automatic = source.machine, request.mask is None
    if is_automatic and find_selection(FRAMEWORK, machine) is None:
        yield f"vLLM cannot select CPUs on {machine.arch}; ranks get CPUs as without --compat"
    if is_automatic and request.bind is Bind.EXACT and not source.env.get(FRAMEWORK.reserve):
        yield "vLLM reserves CPUs; ranks do not, because --bind exact leaves no thread that could use them"
    if request.service_total and request.names_each_rank:
        yield f"vLLM itself ignores {FRAMEWORK.reserve} if CPU lists are given"
    cores = machine.at(Level.CORE)
    threads = max(len(core.cpus) for core in cores)
    is_idle = any(all(cpu % 8 >= 4 for cpu in core.cpus) for core in cores)
    if request.strategy == "numa" and machine.arch.startswith("ppc") and is_idle:
        yield "vLLM uses the CPUs with number % 8 < 4: on this machine it leaves whole cores idle"
    if is_automatic and request.strategy == "balanced" and request.ranks != 1:
        yield "vLLM takes this machine for one NUMA node, and stops; ranks divide all cores evenly"
    if is_automatic and request.strategy == "compact" and FRAMEWORK.slices in source.env:
        if threads > 1:
            yield "vLLM slices hardware threads, so that ranks can share cores; ranks get whole cores"
        elif not _is_numbered_along(machine):
            yield "vLLM slices CPUs by number; ranks get cores that share packages and caches"
    yield from _explain_nodes(machine, request)


def _explain_nodes(machine: Machine, request: Request) -> Iterator[str]:
    """Explain what vLLM does with NUMA nodes without allowed CPUs, and with several packages in a node."""
    if request.strategy != "numa" or request.mask is not None:
        return
    if _has_split_nodes(machine):
        if request.nodes is not None:
            yield f"vLLM ignores {FRAMEWORK.nodes} if a NUMA node has several packages, books or drawers"
        return
    usable = machine.memory_allowed
    nodes = sorted(
        (node.number, node.cpus.isdisjoint(machine.allowed))
        for node in machine.nodes
        if usable is None or node.number in usable
    )
    empty = CpuSet(number for number, is_empty in nodes[: request.ranks] if is_empty)
    if empty and request.nodes is None:
        yield f"{named('NUMA node', empty)} skipped: no CPU is allowed; vLLM would give a rank no CPU"


def _is_numbered_along(machine: Machine) -> bool:
    """Return whether the cores of each NUMA node have rising CPU numbers in the order of the machine."""
    nodes = [find_overlapping(machine.at(Level.CORE), node.cpus) for node in machine.at(Level.NODE)]
    numbers = [[core.cpus.first for core in cores] for cores in nodes]
    return numbers == [*map(sorted, numbers)]


def _has_split_nodes(machine: Machine) -> bool:
    """Return whether a NUMA node has allowed CPUs of several packages, books or drawers."""
    return any(
        len(find_overlapping(machine.at(level), node.cpus & machine.allowed)) > 1
        for node in machine.at(Level.NODE)
        for level in (Level.PACKAGE, Level.BOOK, Level.DRAWER)
    )


FRAMEWORK = Framework(
    title="vLLM",
    bind="VLLM_CPU_OMP_THREADS_BIND",
    automatic="auto",
    unbound="nobind",
    selections=(
        Selection(
            # "unknown": not every description of a machine says its architecture
            architectures=("x86", "amd64", "i386", "i686", "s390", "unknown"),
            request_fields={"sibling": "last"},  # of one hardware thread per core: --smt auto
            service_total=1,
        ),
        Selection(architectures=("arm", "aarch64"), request_fields={"smt": "all"}, service_each=1),
        Selection(  # vLLM takes the machine for one NUMA node, because lscpu shows no nodes and no cores
            architectures=("riscv",), request_fields={"strategy": "balanced", "smt": "all"}, service_each=1
        ),
        Selection(architectures=("ppc",), request_fields={"smt": 4}, service_total=1),
    ),
    reserve="VLLM_CPU_NUM_OF_RESERVED_CPU",
    nodes="CPU_VISIBLE_MEMORY_NODES",
    slices="VLLM_CPU_SIM_MULTI_NUMA",
    memory="VLLM_CPU_KVCACHE_SPACE",
    connector="--kv-transfer-config",
    inside="nobind",
    effect="ranks get VLLM_CPU_OMP_THREADS_BIND=nobind, so that vLLM does not bind threads again",
    kmp_variables=(("KMP_BLOCKTIME", "5"), ("KMP_TPAUSE", "0")),
    divided="more ranks than NUMA nodes or packages: ranks divide these evenly (vLLM stops, or on s390x "
    "uses CPUs twice)",
    explain=_explain_differences,
    workers="vllm serve -tp",
    worker_options=("-tp", "--tensor-parallel-size", "-pp", "--pipeline-parallel-size"),
    replica_options=("-dp", "--data-parallel-size"),
)
