"""What is known of frameworks: their variables, and how they select CPUs; one `Framework` row for each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

from ompbind.cpuset import CpuSet, named
from ompbind.machine.model import Level, Machine
from ompbind.openmp.binding import Bind
from ompbind.planning.request import RANK_LIMIT, Request
from ompbind.record import Record
from ompbind.text import whole_number

Environment = Mapping[str, str]


class FrameworkInput(Record):
    """What a framework reads when it starts: the machine, its variables, the words of its command.

    `for_workers`: the plan becomes the variable `bind`, for the workers of one server.
    """

    machine: Machine
    env: Environment
    command: tuple[str, ...] = ()
    for_workers: bool = False


class Selection(Record):
    """How a framework selects CPUs on some architectures (as in `uname -m`; the first letters are enough).

    Each rank gets a domain, of the first of the `strategies` with several domains on the machine, else a NUMA
    node. `request_fields` are values for fields of `Request`. By default, the framework reserves
    `service_each` CPUs for each rank and `service_total` for all ranks together.
    """

    architectures: tuple[str, ...] = ("",)
    strategies: Mapping[str, Level] = {}
    request_fields: Mapping[str, object]
    service_each: int = 0
    service_total: int = 0


class Framework(Record):
    """The variables of one framework; each is "" if there is none. `title` is its name in messages.

    The variable `bind` selects the CPUs of ranks; with its value `automatic` the framework selects them
    itself, as in the first of `selections` for the architecture; its value `unbound` means no binding.
    `reserve` is the variable for reserved CPUs, `nodes` for NUMA nodes, `slices` for equal parts of the
    machine instead, `memory` for GiB per rank. The option `connector` of its command reserves one more CPU.
    The option `node_option` names NUMA nodes or positions in `nodes`, `first_option` the first node or list.

    In ranks, `bind` has the value `inside`, with fields such as {cpus}; `effect` is the note on it. If a
    runtime that reads KMP variables is preloaded, ranks get `kmp_variables`. `divided` is the note if ranks
    share a domain, and `explain` returns notes on other differences. `workers` is the command line of a
    server with workers, up to their number: the product of the values of `worker_options`, and of
    `replica_options` unless the command has the option `joint_replicas`. If the variable `plugin` is set,
    ompbind places these workers itself.
    """

    title: str
    bind: str
    automatic: str
    selections: tuple[Selection, ...]
    unbound: str = ""
    reserve: str = ""
    nodes: str = ""
    slices: str = ""
    memory: str = ""
    connector: str = ""
    node_option: str = ""
    first_option: str = ""
    inside: str
    effect: str
    kmp_variables: tuple[tuple[str, str], ...] = ()
    divided: str = ""
    explain: Callable[[FrameworkInput, Request], Iterable[str]] = lambda source, request: ()
    workers: str = ""
    worker_options: tuple[str, ...] = ()
    replica_options: tuple[str, ...] = ()
    joint_replicas: str = ""
    plugin: str = ""


def find_selection(names: Framework, machine: Machine) -> Selection | None:
    """Return how a framework selects CPUs on a machine, None if it does not support the architecture."""
    found = (selection for selection in names.selections if machine.arch.startswith(selection.architectures))
    return next(found, None)


def read_options(command: Sequence[str]) -> dict[str, str]:
    """Return the words of a command with their values: after "=", or the next word; the last of several."""
    words = ((word.partition("="), following) for word, following in pairwise([*command, ""]))
    return {name.replace("_", "-"): value or following for (name, _, value), following in words if name}


def count_workers(names: Framework, command: Sequence[str]) -> int:
    """Return the number of workers that a server starts; wrong values of its options do not count."""
    options = names.worker_options
    if names.joint_replicas not in command:
        options += names.replica_options
    values = read_options(command)
    numbers = (whole_number(values[name], RANK_LIMIT) for name in options if name in values)
    return prod(number for number in numbers if number is not None)


def count_own_workers(names: Framework, source: FrameworkInput) -> int:
    """Return how many workers divide the CPUs of each rank: more than 1 if ompbind places them itself."""
    is_placed = names.plugin and source.env.get(names.plugin) and not source.for_workers
    return count_workers(names, source.command) if is_placed else 1


def _explain_differences(source: FrameworkInput, request: Request) -> Iterator[str]:
    """Yield a note for each difference between vLLM's CPUs and the plan, other than the number of ranks."""
    machine = source.machine
    if request.service_total and request.names_each_rank:
        yield f"vLLM itself ignores {_VLLM.reserve} if CPU lists are given"
    if request.mask is not None:
        return
    yield from _explain_architecture(machine, request)
    if request.bind is Bind.EXACT and not source.env.get(_VLLM.reserve):
        yield "vLLM reserves CPUs; ranks do not, because --bind exact leaves no thread that could use them"
    if request.strategy == "compact" and _VLLM.slices in source.env:
        yield "vLLM slices CPUs by number, also within cores; ranks get whole cores that share caches"
    if request.replicas > 1 and request.service_total:
        yield f"each of {request.replicas} replicas has that many service CPUs"
    has_nodes = source.env.get(_VLLM.nodes, "").strip() or _VLLM.node_option in read_options(source.command)
    if request.strategy == "nodes" and not has_nodes:
        yield from _explain_nodes(machine, request)


def _explain_architecture(machine: Machine, request: Request) -> Iterator[str]:
    cores = machine.at(Level.CORE)
    if find_selection(_VLLM, machine) is None:
        yield f"vLLM cannot select CPUs on {machine.arch}; ranks get CPUs by -s {request.strategy}"
    elif machine.arch.startswith("ppc") and any(all(cpu % 8 >= 4 for cpu in core.cpus) for core in cores):
        yield "vLLM uses the CPUs with number % 8 < 4: on this machine it leaves whole cores idle"
    elif machine.arch.startswith("riscv") and request.strategy == "balanced" and request.ranks != 1:
        yield "vLLM takes this machine for one NUMA node, and stops; ranks divide all cores evenly"


def _explain_nodes(machine: Machine, request: Request) -> Iterator[str]:
    usable = machine.memory_allowed
    nodes = sorted(
        (node.number, node.cpus.isdisjoint(machine.allowed))
        for node in machine.nodes
        if usable is None or node.number in usable
    )
    empty = CpuSet(number for number, is_empty in nodes[: request.rank_count] if is_empty)
    if empty:
        yield f"{named('NUMA node', empty)} skipped: no CPU is allowed; vLLM would give a rank no CPU"


_VLLM = Framework(
    title="vLLM",
    bind="VLLM_CPU_OMP_THREADS_BIND",
    automatic="auto",
    unbound="nobind",
    selections=(  # as vLLM 0.33.0
        Selection(  # "unknown": not every description of a machine says its architecture
            architectures=("x86", "amd64", "i386", "i686", "unknown"), service_each=1,
            request_fields={"sibling": "last", "smt": 1},
        ),
        Selection(
            architectures=("s390",), strategies={"books": Level.BOOK, "packages": Level.PACKAGE},
            request_fields={"sibling": "last", "smt": 1}, service_total=1,
        ),
        Selection(architectures=("arm", "aarch64"), request_fields={"smt": "all"}, service_each=1),
        Selection(  # vLLM takes the machine for one NUMA node, because lscpu shows no nodes and no cores
            architectures=("riscv",), request_fields={"strategy": "balanced", "smt": "all"}, service_each=1,
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
    divided="more ranks than NUMA nodes: ranks divide these evenly (vLLM stops)",
    explain=_explain_differences,
    workers="vllm serve -tp",
    node_option="--device-ids",
    worker_options=("-tp", "--tensor-parallel-size", "-pp", "--pipeline-parallel-size",
                    "-pcp", "--prefill-context-parallel-size"),
    replica_options=("-dp", "--data-parallel-size"),
    plugin="OMPBIND_VLLM",  # as in plugins/vllm.py, which imports nothing of ompbind
)  # fmt: skip

_SGLANG = Framework(
    title="SGLang",
    bind="SGLANG_CPU_OMP_THREADS_BIND",
    automatic="all",
    selections=(Selection(request_fields={"smt": 1}),),
    inside="{cpus}",
    effect="ranks get their CPUs in SGLANG_CPU_OMP_THREADS_BIND, so that SGLang binds threads to them",
    divided="SGLang stops if there are more ranks than NUMA nodes; ranks divide these evenly",
    first_option="--base-gpu-id",
    workers="python -m sglang.launch_server --tp",
    worker_options=("--tp", "--tp-size", "--tensor-parallel-size", "--pp-size", "--pipeline-parallel-size"),
    replica_options=("--dp", "--dp-size", "--data-parallel-size"),
    joint_replicas="--enable-dp-attention",  # the replicas are then parts of the other workers
)

FRAMEWORKS: Mapping[str, Framework] = {"vllm": _VLLM, "sglang": _SGLANG}
"""The frameworks by their names for --compat."""
