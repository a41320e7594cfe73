"""A plan as options of other tools: masks, variables, taskset, numactl, srun, systemd, containers, servers.

Other tools take the CPUs of a rank as a set of OS numbers. They know neither the order of CPUs nor which
thread gets which CPU. A format sets the memory policy that `run` sets (none for `--memory local`), and
refuses a policy that its tool does not have. On a system that cannot bind processes, formats that bind raise
RequestError. To add a format: one function, and one row in `cli.plan`.
"""

import json
import re
import shlex
from collections.abc import Iterable, Sequence

from ompbind.commands.rank_variables import NAMES_OF_DEVICES, RANK_VARIABLES, Variables
from ompbind.cpuset import CpuSet, render_sequence
from ompbind.errors import RequestError
from ompbind.machine.devices import AMD, NVIDIA, Device, DeviceKind, sort_by_address
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import KMP_AFFINITY, PLACE_VARIABLES
from ompbind.planning.devices.visible import VENDOR_VARIABLES
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode


def render_mask(plan: Plan) -> str:
    """Render the options of ompbind that give each rank the same CPUs; a line for each group.

    Service CPUs are the last CPUs of a part, as --service-cores takes them. CPUs of several ranks need
    --share, which is an option of the whole run. After several groups, a line has the mask of all their
    ranks, for `exec` under one launcher, if it can say all of it.
    """
    lines, masks = [], []
    for part in plan.parts:
        ranks = _confined_ranks(part)
        cpus = ((*placement.cpus, *placement.service_cpus) for placement in ranks)
        mask = "|".join(",".join(render_sequence(numbers)) for numbers in cpus)
        words = [*(["-n", str(len(ranks))] if len(ranks) > 1 else []), "-m", shlex.quote(mask)]
        if part.request.service_cores:
            words += ["--service-cores", str(part.request.service_cores)]
        if part.request.is_unbound:
            words += ["--bind", "none"]
        lines.append(" ".join(words))
        masks.append(mask)
    if len(masks) > 1 and not any("--service-cores" in line or "--bind" in line for line in lines):
        lines.append(f"-n {len(plan.placements)} -m {shlex.quote('|'.join(masks))}")
    if sum(len(placement.cpuset) for placement in plan.placements) > len(plan.used):
        lines[:: len(masks)] = [f"{line} --share" for line in lines[:: len(masks)]]  # the first one, and all
    return "\n".join(lines)


def render_taskset(plan: Plan) -> str:
    """Render for each rank a line to put before its command: `taskset -c 0-3,8`."""
    _check_memory(plan, "taskset")
    return "\n".join(f"taskset -c {placement.cpuset}" for placement in _confined_ranks(plan))


def render_numactl(plan: Plan) -> str:
    """Render for each rank a line to put before its command: `numactl --physcpubind=0-3`."""
    options = {
        MemoryMode.PREFERRED: "preferred",
        MemoryMode.INTERLEAVE: "interleave",
        MemoryMode.WEIGHTED: "weighted-interleave",  # needs numactl 2.0.19
    }
    lines = []
    for placement in _confined_ranks(plan):
        option, nodes = options.get(plan.request.memory, "membind"), _memory_nodes(placement)
        if option == "preferred" and len(nodes) > 1:
            option = "preferred-many"  # needs numactl 2.0.15
        memory = f" --{option}={nodes}" if nodes else ""
        lines.append(f"numactl --physcpubind={placement.cpuset}{memory}")
    return "\n".join(lines)


SLURM_NODES = 128  # NUMA nodes that --mem-bind can name: Slurm cuts off longer masks without a message


def render_slurm(plan: Plan) -> str:
    """Render the options of an srun that has a whole node (machine): CPU and memory masks of all tasks.

    Memory is left out unless all ranks have a policy. Raises RequestError for numbers of NUMA nodes that
    are too high for Slurm, and for a --memory policy other than local and bind.
    """
    _check_memory(plan, "Slurm", MemoryMode.BIND)
    ranks = _confined_ranks(plan)
    words = ["--nodes=1", f"--ntasks={len(ranks)}"]
    if len(ranks) > len(plan.machine.allowed):
        words.append("--overcommit")  # otherwise srun waits forever for as many CPUs as tasks

    def render_masks(sets: Iterable[CpuSet]) -> str:
        return ",".join(f"{members.bits:#x}" for members in sets)  # of any length, without commas inside

    words.append(f"--cpu-bind=mask_cpu:{render_masks(placement.cpuset for placement in ranks)}")
    memory = [_memory_nodes(placement) for placement in ranks]
    for placement, nodes in zip(ranks, memory, strict=True):
        if nodes.bits >> SLURM_NODES:
            text = f"Slurm binds memory to NUMA nodes 0 to {SLURM_NODES - 1} only"
            hint = "let every task bind itself: srun --cpu-bind=none ompbind exec -- COMMAND"
            raise RequestError(f"{text}, rank {placement.rank} has {nodes}", hint=hint)
    if all(memory):
        words.append(f"--mem-bind=mask_mem:{render_masks(memory)}")
    gpus = [_find_gpus(placement.devices) for placement in ranks]
    if any(gpus):
        numbered = sort_by_address(_find_gpus(plan.machine.devices))  # on a whole node
        if len({gpu.vendor for gpu in numbered}) > 1:
            text = "the machine has GPUs of several vendors: their numbers in Slurm are not known"
            hint = "let every rank set its own: ompbind exec --devices gpu -- COMMAND"
            raise RequestError(text, hint=hint)
        masks = render_masks(CpuSet(map(numbered.index, own)) for own in gpus)
        words += [f"--gpus-per-node={len(numbered)}", f"--gpu-bind=mask_gpu:{masks}"]
    return " ".join(words)


def render_docker(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a line of options for each rank that docker and podman take, as words of a shell.

    Variables to unset are left out: a container does not inherit the variables of the caller. Raises
    RequestError for a value of several lines, and for a --memory policy other than local and bind.
    """
    _check_memory(plan, "a container", MemoryMode.BIND)
    lines = []
    for placement, environment in zip(_confined_ranks(plan), variables, strict=True):
        nodes = _memory_nodes(placement)
        memory = [f"--cpuset-mems={nodes}"] if nodes else []
        quota = _find_quota(plan, placement)
        cpus = f"--cpuset-cpus={placement.cpuset}" + (f" --cpus={quota:g}" if quota else "")
        words = plan.request.visible.words if plan.request.visible else ()  # indices count its own GPUs
        indices = {word.variable for word in words if not word.word.startswith(("GPU-", "MIG-"))}
        values = _list_values(environment, indices, form="the options of a rank are one line")
        own = [f"--env {shlex.quote(f'{name}={value}')}" for name, value in values]
        lines.append(" ".join([cpus, *memory, *_make_container_options(plan, placement), *own]))
    return "\n".join(lines)


def _find_quota(plan: Plan, placement: Placement) -> float | None:
    """Return the part of a rank in the CPU quota, in CPUs; None if its CPUs are no more than that."""
    share = len(placement.cpus) / sum(len(rank.cpus) for rank in plan.placements)  # as for its threads
    quota = plan.machine.quota and max(0.01, round(plan.machine.quota * share, 2))  # 0 is no limit
    return quota if quota and quota < len(placement.cpuset) else None


def render_compose(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a service of Compose for each rank; raises RequestError for memory as `render_docker`."""
    _check_memory(plan, "Compose", MemoryMode.BIND)
    lines = ["services:"]
    for placement, environment in zip(_confined_ranks(plan), variables, strict=True):
        lines += [f"  rank-{placement.rank}:", f'    cpuset: "{placement.cpuset}"']
        lines += [f"    cpus: {quota:g}"] if (quota := _find_quota(plan, placement)) else []
        if nodes := _memory_nodes(placement):
            lines.append(f"    # not here: memory of NUMA nodes {nodes} (Compose has no cpuset_mems)")
        values = _list_values(environment, _OF_DEVICES)
        lines += ["    environment:", *(f"      {_quote(name)}: {_quote(value)}" for name, value in values)]
    return "\n".join(lines)


_KUBERNETES_HEAD = """\
# Containers get CPUs of their own from a kubelet with cpuManagerPolicy: static, in pods of
# QoS class Guaranteed: integers of CPUs, and requests = limits, of memory too (add it).
# The kubelet chooses the CPUs: OMP_PLACES and others with numbers of CPUs are left out, and
# 'ompbind run -t N -- COMMAND' binds. With SMT, full-pcpus-only needs whole cores.
containers:"""


def render_kubernetes(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a container of Kubernetes for each rank: the number of CPUs of its cores, or its quota."""
    _check_memory(plan, "Kubernetes")
    lines = [_KUBERNETES_HEAD]
    for placement, environment in zip(_confined_ranks(plan), variables, strict=True):
        cpus = plan.machine.table.whole(placement.cpuset) - (plan.used - placement.cpuset)
        number = max(1, int(_find_quota(plan, placement) or len(cpus)))
        lines += [f"  - name: rank-{placement.rank}", "    resources:"]
        lines += [f'      {word}: {{cpu: "{number}"}}' for word in ("requests", "limits")] + ["    env:"]
        values = _list_values(environment, _OF_DEVICES | _OF_CPUS)
        lines += (f"      - {{name: {_quote(name)}, value: {_quote(value)}}}" for name, value in values)
    return "\n".join(lines)


_OF_DEVICES = {*VENDOR_VARIABLES, *NAMES_OF_DEVICES}
_OF_CPUS = {name for name in RANK_VARIABLES if name.endswith("CPUS")}
_OF_CPUS |= {*PLACE_VARIABLES, KMP_AFFINITY, "SGLANG_CPU_OMP_THREADS_BIND"}
"""Variables that a container with other devices, or with other CPUs, must not have."""


def _quote(text: str) -> str:
    """Return a text as a string of JSON that is YAML too; to Compose and Kubernetes, $$ means $."""
    quoted = json.dumps(text.replace("$", "$$"), ensure_ascii=False)
    illegal = "[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"  # in YAML
    return re.sub(illegal, lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _list_values(environment: Variables, hidden: Iterable[str] = (), form: str = "") -> list[tuple[str, str]]:
    """Return the variables that are set, by name; raises RequestError for several lines if `form` has one."""
    for name, value in environment.items():
        if form and value is not None and "\n" in value:
            hint = "use --format sh or --format json"
            raise RequestError(f"the value of {name} has several lines, but {form}", hint=hint)
    return sorted((key, text) for key, text in environment.items() if text is not None and key not in hidden)


def render_sh(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variables of one rank as commands for `eval` in any POSIX shell."""
    (environment,) = variables
    return "\n".join(
        f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
        for name, value in sorted(environment.items())
    )


def render_env(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variables of one rank as NAME=VALUE lines; variables to unset are left out.

    Raises RequestError for a value of several lines, which the format cannot represent.
    """
    (environment,) = variables
    values = _list_values(environment, form="NAME=VALUE lines have only one")
    return "\n".join(f"{name}={value}" for name, value in values)


def render_systemd(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a drop-in for the unit of one rank: its CPUs, its memory, and its variables.

    It replaces the CPUs of the unit itself, and with --memory its NUMA nodes. Raises RequestError for values
    that systemd refuses, and for --memory preferred with several nodes.
    """
    (placement,), (environment,) = _confined_ranks(plan), variables
    lines = ["[Service]", "CPUAffinity=", f"CPUAffinity={placement.cpuset}"]
    nodes, mode = _memory_nodes(placement), plan.request.memory
    if mode is MemoryMode.PREFERRED and len(nodes) > 1:
        text = f"systemd can prefer a single NUMA node only, rank {placement.rank} has {nodes}"
        raise RequestError(text, hint="use --memory bind or interleave")
    if mode is MemoryMode.WEIGHTED:
        raise RequestError("systemd has no weighted interleave", hint="use --memory interleave")
    if nodes:
        lines += [f"NUMAPolicy={mode}", "NUMAMask=", f"NUMAMask={nodes}"]
    for name, value in sorted(environment.items()):  # see systemd.exec(5)
        if value is None:
            lines.append(f"UnsetEnvironment={name}")
            continue
        if illegal := re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", value):
            text = f"the value of {name} has the character {illegal[0]!r}, which systemd refuses"
            raise RequestError(text, hint="use UTF-8 without control characters other than tab and newline")
        lines.append(f'Environment="{name}={value.translate(_ESCAPES)}"')
    return "\n".join(lines)


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"})
"""Characters with another meaning inside the quotes of a unit file; % begins a specifier there."""


def render_vllm(plan: Plan) -> str:
    """Render the variables with the CPUs and NUMA nodes of all workers of vLLM, as shell commands.

    The first is "nobind" with --mask none and on machines that cannot bind. Raises RequestError for --bind
    none, because vLLM always binds OpenMP threads to CPUs that it is given, and for --memory.
    """
    variable = "VLLM_CPU_OMP_THREADS_BIND"
    if not plan.machine.bindable or plan.request.is_unbound:
        _check_memory(plan, "vLLM", starts_workers=True)
        return f"export {variable}=nobind"
    hint = "leave --bind out, or use --mask none: vLLM then neither binds nor confines"
    lists = _render_workers(plan, "vLLM", variable, hint)
    nodes = ",".join(str(min(placement.memory_nodes, default=0)) for placement in plan.placements)
    return lists if "," not in nodes else f"{lists}\nexport CPU_VISIBLE_MEMORY_NODES={nodes}"


def render_sglang(plan: Plan) -> str:
    """Render the variable with the CPUs of all workers of SGLang, as a shell command.

    Raises RequestError for --mask none and --bind none, because SGLang always binds OpenMP threads, and for
    --memory.
    """
    hint = "leave --mask none out" if plan.request.is_unbound else "leave --bind out"
    return _render_workers(plan, "SGLang", "SGLANG_CPU_OMP_THREADS_BIND", hint)


def _render_workers(plan: Plan, tool: str, variable: str, hint: str) -> str:
    """Render a variable with the CPUs of each rank; `hint` is for --mask none and --bind none.

    The programs start one OpenMP thread on each of these CPUs, so they are without service CPUs, and only as
    many as the rank has threads.
    """
    _check_memory(plan, tool, starts_workers=True)
    if plan.request.is_unbound or plan.request.bind is Bind.NONE:
        option = "--mask none" if plan.request.is_unbound else "--bind none"
        raise RequestError(f"{tool} always binds OpenMP threads; {option} excludes that", hint=hint)
    lists = (str(CpuSet(placement.cpus[: placement.threads])) for placement in _confined_ranks(plan))
    return f"export {variable}={shlex.quote('|'.join(lists))}"


def _confined_ranks(plan: Plan) -> tuple[Placement, ...]:
    """Return the placements of a plan; raises RequestError if its machine cannot confine processes."""
    if not plan.machine.bindable:
        text = "this system cannot confine a process to CPUs, so there are no CPUs to pass to other tools"
        raise RequestError(text, hint="use --format sh or --format env for the thread count of a rank")
    return plan.placements


def _memory_nodes(placement: Placement) -> CpuSet:
    return CpuSet(placement.memory.nodes) if placement.memory else CpuSet()


def _check_memory(plan: Plan, tool: str, *supported: MemoryMode, starts_workers: bool = False) -> None:
    """Raise RequestError for a --memory policy that a tool does not support; `local` needs no support.

    `starts_workers`: the tool starts the processes of all ranks itself, so `ompbind exec` cannot start them.
    """
    mode = plan.request.memory
    if mode not in (MemoryMode.LOCAL, *supported):
        other = f", or start each rank with: ompbind exec --memory {mode} -- COMMAND"
        hint = "leave --memory out" + (f": {tool} starts its workers itself" if starts_workers else other)
        raise RequestError(f"{tool} has no option for --memory {mode}", hint=hint)


def _find_gpus(devices: Iterable[Device]) -> list[Device]:
    return [device for device in devices if device.kind is DeviceKind.GPU]


def _make_container_options(plan: Plan, placement: Placement) -> list[str]:
    """Return the options of docker that give a container the GPUs of a rank, as words of a shell.

    NVIDIA's runtime takes UUIDs, or numbers by PCI address. Other GPUs have device files.
    """
    gpus = _find_gpus(placement.devices)
    nvidia = [gpu for gpu in gpus if gpu.vendor == NVIDIA]
    words = []
    if nvidia:
        numbered = sort_by_address([g for g in _find_gpus(plan.machine.devices) if g.vendor == NVIDIA])
        for gpu in nvidia:
            if gpu.partition is not None and not gpu.uuid:
                hint = "name it yourself: --gpus device=MIG-…"
                raise RequestError(f"the UUID of {gpu}, a MIG instance, is not known", hint=hint)
        names = ",".join(gpu.uuid or str(numbered.index(gpu)) for gpu in nvidia)
        words += ["--gpus", shlex.quote(f'"device={names}"')]  # the option is a CSV row, which needs quotes
    files = [file for gpu in gpus if gpu.vendor != NVIDIA for file in _find_files(gpu)]
    return words + [f"--device={file}" for file in dict.fromkeys(files)]


def _find_files(gpu: Device) -> list[str]:
    nodes = [name for name in gpu.names if name.startswith("renderD")]
    if not nodes:
        text = f"the device file of {gpu} is not known, so a container cannot get it"
        raise RequestError(text, hint="make the plan on the machine itself, or use --format sh")
    return [*(["/dev/kfd"] if gpu.vendor == AMD else []), f"/dev/dri/{nodes[0]}"]
