"""Checks of `ompbind doctor`: libraries and programs that bind processes or threads themselves.

They run after ompbind has bound the rank, so they have the last word. The tables have only facts from the
documentation or the source of these programs. To add a program: a row.
"""

from collections.abc import Callable, Iterator

from ompbind.doctor.facts import HostFacts, HostIssue, note, ok
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level
from ompbind.record import Record

_NO = ("", "0", "false", "no", "off", "none", "disable", "n")


class VariableRow(Record):
    """A variable with which a program binds itself; `applies` says for which values.

    `remedy` is the value that turns it off, "" to unset the variable.
    """

    name: str
    program: str
    why: str
    applies: Callable[[str], bool] = lambda value: value.strip().lower() not in _NO
    remedy: str = ""


_REPLACES = "the CPUs that ompbind gives to the rank are replaced"
_LAUNCHER = "a rank that is bound before 'ompbind exec' starts keeps the CPUs of the launcher"

VARIABLES = (
    VariableRow(
        name="NCCL_IGNORE_CPU_AFFINITY", program="NCCL", remedy="0",
        why="NCCL binds its threads to all CPUs near the GPU, not only to CPUs of the rank",
    ),
    VariableRow(
        name="TLLM_NUMA_AWARE_WORKER_AFFINITY", program="TensorRT-LLM", remedy="0",
        applies=lambda value: value == "1",
        why=f"workers bind themselves to all CPUs near the GPU: {_REPLACES}",
    ),
    VariableRow(
        name="SGLANG_SET_CPU_AFFINITY", program="SGLang", remedy="0",
        why=f"each scheduler binds itself to a share of all cores by the number of its GPU: {_REPLACES}",
    ),
    VariableRow(
        name="SGLANG_AUTO_NUMA_BIND", program="SGLang", remedy="0",
        why="with several NUMA nodes, each scheduler binds itself to the node of its GPU: CPUs of other ranks"
        " in early versions",
    ),
    VariableRow(
        name="ACCELERATE_CPU_AFFINITY", program="Accelerate", remedy="0",
        why="each process binds itself to all CPUs near the GPU with the number of its local rank:"
        f" {_REPLACES}",
    ),
    VariableRow(
        name="CCL_WORKER_AFFINITY", program="oneCCL", remedy="auto",
        applies=lambda value: value.strip().lower() not in ("", "auto"),
        why="workers are bound to these CPUs, which may be CPUs of other ranks",
    ),
    VariableRow(
        name="MV2_ENABLE_AFFINITY", program="MVAPICH2", remedy="0",
        why=f"MPI_Init binds each process: {_REPLACES}",
    ),
    VariableRow(
        name="OMPI_MCA_hwloc_base_binding_policy", program="Open MPI 4", remedy="none", why=_LAUNCHER
    ),
    VariableRow(
        name="PRTE_MCA_hwloc_default_binding_policy", program="Open MPI 5", remedy="none", why=_LAUNCHER
    ),
    VariableRow(name="HYDRA_BINDING", program="MPICH", remedy="none", why=_LAUNCHER),
    VariableRow(name="I_MPI_PIN", program="Intel MPI", remedy="0", why=_LAUNCHER),
    VariableRow(
        name="HWLOC_XMLFILE", program="hwloc",
        why="programs with hwloc (Open MPI, MPICH) read this file instead of the machine, and bind by it",
    ),
)  # fmt: skip
"""Variables with which programs bind themselves, or with which launchers bind ranks."""


class OptionRow(Record):
    """An option of a command line with which a program binds its processes itself."""

    option: str
    program: str


OPTIONS = (
    OptionRow(option="--numa-bind", program="vLLM"),
    OptionRow(option="--numa-node", program="SGLang"),
    OptionRow(option="--numa-binding", program="torchrun"),
    OptionRow(option="--bind_cores_to_rank", program="DeepSpeed"),
    OptionRow(option="--enable_cpu_affinity", program="Accelerate"),
    OptionRow(option="--enable-cpu-affinity", program="Accelerate"),
)
"""Options with which programs bind their processes."""


class PackageRow(Record):
    """A Python package that binds by default; `variable` with the value 0 turns this off.

    `needs_gpus`: it does so only with GPUs and several NUMA nodes.
    """

    package: str
    program: str
    why: str
    variable: str = ""
    remedy: str = ""
    needs_gpus: bool = False


PACKAGES = (
    PackageRow(
        package="tensorrt_llm", program="TensorRT-LLM", variable="TLLM_NUMA_AWARE_WORKER_AFFINITY",
        why="without the variable, workers remove an affinity mask that they inherit: they run on all CPUs",
    ),
    PackageRow(
        package="sglang", program="SGLang", variable="SGLANG_AUTO_NUMA_BIND", needs_gpus=True,
        why="schedulers bind themselves to the NUMA node of their GPU with numactl: CPUs of other ranks in"
        " early versions, only CPUs of the rank in later ones",
    ),
    PackageRow(
        package="vllm_ascend", program="vLLM Ascend",
        why=f"workers bind themselves (enable_cpu_binding, since version 0.18): {_REPLACES}",
        remedy="add --additional-config '{\"enable_cpu_binding\": false}'",
    ),
)  # fmt: skip
"""Python packages that bind by default."""


def check_rebinding(host: HostFacts) -> Iterator[HostIssue]:
    """Look for programs that bind themselves, by variables, options or by default."""
    issues = []
    for variable in VARIABLES:
        name, value = variable.name, host.env.get(variable.name)
        if value is not None and variable.applies(value):
            remedy = f"set {name}={variable.remedy}" if variable.remedy else f"unset {name}"
            issues.append(note(name, f"is {value!r}: {variable.program} binds", variable.why, remedy))
    words = {word.partition("=")[0] for word in host.command.argv[1:]} if host.command else set[str]()
    for row in OPTIONS:
        if row.option in words:
            why = f"it starts its workers on CPUs that it chooses itself: {_REPLACES}"
            issues.append(note(row.option, f"{row.program} binds", why, f"omit {row.option}"))
    machine, has_gpus = host.machine, False
    if machine and len(machine.at(Level.NODE)) > 1:
        has_gpus = any(device.kind is DeviceKind.GPU for device in machine.devices)
    installed = {package.name for package in host.command.packages} if host.command else set[str]()
    for package in PACKAGES:
        is_off = bool(package.variable) and package.variable in host.env
        if package.package in installed and not is_off and (has_gpus or not package.needs_gpus):
            remedy = package.remedy or f"add --env {package.variable}=0"
            found = "binds by default, if the command uses it"
            issues.append(note(package.program, found, package.why, remedy))
    yield from issues or [ok("programs that bind again", "none known")]
