"""Checks of `ompbind doctor`: variables that move, bind or multiply threads, and programs that bind again.

Each mistake in a variable is a row of RULES. Most of them matter only without ompbind, or with --keep-env:
ompbind clears the variables that would move or bind the threads of ranks, and sets their thread counts.
Programs that bind themselves do so after ompbind has bound the rank, so they have the last word: these tables
have only facts from the documentation or the source of the programs.
"""

import re
from collections.abc import Callable, Iterator

from ompbind.doctor.checks_machine import SHARING_COST
from ompbind.doctor.facts import HostFacts, HostIssue, error, note, ok
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level
from ompbind.openmp import runtimes
from ompbind.openmp.binding import OR_HOLD
from ompbind.openmp.runtimes import KMP_AFFINITY, SPIN_SETTINGS
from ompbind.openmp.variables import OVERRIDING_VARIABLES, THREAD_COUNTS, find_override, split_words
from ompbind.text import mask_value, whole_number

_SPINS = "waiting threads keep their CPUs busy: other threads and ranks on these CPUs run later"
_OVERRIDES = "it overrides OMP_NUM_THREADS in its library"
_FEWER = "teams get fewer threads than the rank has CPUs"

Predicate = Callable[[str, HostFacts], bool]


def _empty(value: str, host: HostFacts) -> bool:
    return not value.strip()


def _has(*words: str) -> Predicate:
    return lambda value, host: bool(set(words) & split_words(value))


def _yes(value: str, host: HostFacts) -> bool:
    return value.strip().lower() not in {"false", "0", "no", "off", ".f.", ".false."}


def _binds(value: str, host: HostFacts) -> bool:
    return _yes(host.env.get("OMP_PROC_BIND", ""), host)


def _no_number(value: str, host: HostFacts) -> bool:
    return not all(whole_number(word.strip()) for word in value.split(","))


def _too_many(value: str, host: HostFacts) -> bool:
    most = len(host.machine.allowed) if host.machine else 0
    return (whole_number(value.partition(",")[0].strip()) or 0) > most > 0


RULES: tuple[tuple[str, Predicate | None, str], ...] = (
    ("GOMP_CPU_AFFINITY", _empty, "libgomp in wheels (torch) binds all threads to CPU 0"),
    ("GOMP_CPU_AFFINITY", lambda value, host: re.fullmatch(r"[0-9 ,:-]+", value) is None,
     "loading libgomp in wheels (torch) hangs"),
    ("GOMP_CPU_AFFINITY", None,
     "libgomp uses these CPUs and ignores the affinity mask, libomp uses them instead of OMP_PLACES:"
     f" all ranks run on them; {SHARING_COST}"),
    (KMP_AFFINITY, _has(runtimes.NO_RESPECT),
     "the runtimes of LLVM and Intel ignore the affinity mask: all ranks run on the same CPUs"),
    (KMP_AFFINITY, _has(runtimes.DISABLED),
     "the runtimes of LLVM and Intel do not read the affinity mask: they start a thread for each CPU of"
     " the machine; their forked child processes abort (LLVM 18 and later)"),
    (KMP_AFFINITY, lambda value, host: not split_words(value) <= runtimes.KMP_MODIFIERS,
     "it overrides OMP_PLACES and OMP_PROC_BIND, even =false, in the runtimes of LLVM and Intel"),
    *((name, None, "it shrinks the initial thread's affinity mask, even with OMP_PROC_BIND=false")
      for name in runtimes.SUBSET_VARIABLES),
    ("OMP_PLACES", lambda value, host: _binds(value, host) and bool(re.match(r"\s*\{\s*\d+\s*\}", value)),
     "libgomp then binds the initial thread, and all threads that it creates later, to one CPU; all threads"
     " of a second runtime run on that CPU too"),
    ("OMP_PLACES", _binds, f"all processes get the same places; {SHARING_COST}"),
    ("OMP_PROC_BIND", lambda value, host: _yes(value, host) and "OMP_PLACES" not in host.env,
     "without OMP_PLACES every process binds its threads from the first CPU on: all ranks run on the same"
     " CPUs"),
    ("OMP_NUM_THREADS", _empty, "libomp terminates the program if it is empty"),
    ("OMP_NUM_THREADS", _no_number, "libomp may terminate the program; other runtimes use all CPUs"),
    *((name, _too_many, f"more threads than CPUs; {SHARING_COST}") for name in THREAD_COUNTS),
    ("GOTO_NUM_THREADS", None, _OVERRIDES),
    ("MKL_DOMAIN_NUM_THREADS", None, _OVERRIDES),
    ("OMP_DYNAMIC", _yes, f"{_FEWER}, depending on the load"),
    *((name, None, _FEWER) for name in OVERRIDING_VARIABLES
      if name.endswith(("_THREAD_LIMIT", "_ALL_THREADS"))),
    *((name, _has(*words), _SPINS) for name, words in SPIN_SETTINGS),
    ("OMP_DISPLAY_AFFINITY", _yes,
     "the runtimes of LLVM and Intel write lines to the standard output of the program"),
)  # fmt: skip
"""The mistakes in variables: the name, a predicate for a wrong value (None: any) on a host, and why.

For each variable only the first row whose predicate is true is reported.
"""


def check_variables(host: HostFacts) -> Iterator[HostIssue]:
    """Look for variables that would move, bind or multiply threads."""
    if host.enclosing:
        yield ok("variables", f"set for rank {host.enclosing[0]} by the enclosing run")
        return
    issues: dict[str, HostIssue] = {}
    for name, is_wrong, why in RULES:
        value = host.env.get(name)
        if name not in issues and value is not None and (is_wrong is None or is_wrong(value, host)):
            issues[name] = _make_issue(name, value, why, host)
    yield from issues.values() or [ok("variables", "none that would move, bind or multiply threads")]


def _make_issue(name: str, value: str, why: str, host: HostFacts) -> HostIssue:
    machine, remedy, make_issue = host.machine, f"unset {name}", note
    if name in OVERRIDING_VARIABLES or name in THREAD_COUNTS:
        does = "clears" if name in OVERRIDING_VARIABLES else "replaces"
        remedy += OR_HOLD if OR_HOLD in find_override(name, value, has_places=False, is_held=False) else ""
        remedy += f"; 'ompbind run' {does} it unless --keep-env is given"
    elif name in dict(SPIN_SETTINGS) and machine and (machine.quota or 1e9) < len(machine.allowed):
        why += "; here this exhausts the CPU quota, and all threads are throttled"
        make_issue = error
    return make_issue(name, f"is {value!r}", why, remedy)


def check_options(host: HostFacts) -> Iterator[HostIssue]:
    """Report the variables that are options of every run, and which of them disable binding."""
    for name in host.options:
        value = host.env.get(name)
        if value is None:
            continue
        if name in ("OMPBIND_BIND", "OMPBIND_MASK") and value.strip().lower() in ("none", "nobind"):
            why = "OpenMP threads are not bound" if name == "OMPBIND_BIND" else "ranks are not bound at all"
            yield note(name, f"is {value!r}", why, f"unset {name}")
        else:
            yield ok(name, f"is {mask_value(name, value)!r}: an option of every run")
    for name, hint in host.unknown_options:
        remedy = "; ".join(filter(None, (f"unset {name}", hint)))
        yield note(name, "is not a variable of ompbind", "it has no effect", remedy)


def check_preloads(host: HostFacts) -> Iterator[HostIssue]:
    """Check that the libraries in LD_PRELOAD can be loaded."""
    for warning in host.workload.preload_warnings:
        why = "programs run without this library"
        yield error("LD_PRELOAD", warning.removeprefix("LD_PRELOAD "), why, "correct LD_PRELOAD, or unset it")
    if not host.workload.preload_warnings:
        value = host.env.get("LD_PRELOAD", "")
        yield ok("LD_PRELOAD", f"{value}: can be loaded" if value.strip() else "not set")


_REPLACES = "the CPUs that ompbind gives to the rank are replaced"
_LAUNCHER = "a rank that is bound before 'ompbind exec' starts keeps the CPUs of the launcher"
_NEAR = "all CPUs near the GPU"

BINDING_VARIABLES: tuple[tuple[str, str, str, str], ...] = (
    ("NCCL_IGNORE_CPU_AFFINITY", "NCCL", "0",
     f"NCCL binds its threads to {_NEAR}, not only to CPUs of the rank"),
    ("TLLM_NUMA_AWARE_WORKER_AFFINITY", "TensorRT-LLM", "0",
     f"workers bind themselves to {_NEAR}: {_REPLACES}"),
    ("SGLANG_SET_CPU_AFFINITY", "SGLang", "0",
     f"each scheduler binds itself to a share of all cores by the number of its GPU: {_REPLACES}"),
    ("SGLANG_AUTO_NUMA_BIND", "SGLang", "0",
     "with several NUMA nodes, each scheduler binds itself to the node of its GPU: CPUs of other ranks in"
     " early versions"),
    ("ACCELERATE_CPU_AFFINITY", "Accelerate", "0",
     f"each process binds itself to {_NEAR} with the number of its local rank: {_REPLACES}"),
    ("CCL_WORKER_AFFINITY", "oneCCL", "auto",
     "workers are bound to these CPUs, which may be CPUs of other ranks"),
    ("JULIA_EXCLUSIVE", "Julia", "0",
     "the first thread is bound to CPU 0, the second to CPU 1 and so on, in each rank"),
    ("MV2_ENABLE_AFFINITY", "MVAPICH2", "0", f"MPI_Init binds each process: {_REPLACES}"),
    ("OMPI_MCA_hwloc_base_binding_policy", "Open MPI 4", "none", _LAUNCHER),
    ("PRTE_MCA_hwloc_default_binding_policy", "Open MPI 5", "none", _LAUNCHER),
    ("HYDRA_BINDING", "MPICH", "none", _LAUNCHER),
    ("I_MPI_PIN", "Intel MPI", "0", _LAUNCHER),
    ("HWLOC_XMLFILE", "hwloc", "",
     "programs with hwloc (Open MPI, MPICH) read this file instead of the machine, and bind by it"),
)  # fmt: skip
"""Variables by which programs bind themselves, or launchers bind ranks: name, program, value that turns it
off ("": unset the variable), reason."""

BINDING_OPTIONS = {
    "--numa-bind": "vLLM", "--numa-node": "SGLang", "--numa-binding": "torchrun",
    "--bind_cores_to_rank": "DeepSpeed", "--enable_cpu_affinity": "Accelerate",
    "--enable-cpu-affinity": "Accelerate",
}  # fmt: skip
"""Options with which programs bind their processes, each with the program."""

BINDING_PACKAGES: tuple[tuple[str, str, str, str], ...] = (
    ("tensorrt_llm", "TensorRT-LLM", "TLLM_NUMA_AWARE_WORKER_AFFINITY=0",
     "without the variable, workers remove an affinity mask that they inherit: they run on all CPUs"),
    ("sglang", "SGLang", "SGLANG_AUTO_NUMA_BIND=0",
     "schedulers bind themselves to the NUMA node of their GPU with numactl: CPUs of other ranks in early"
     " versions, only CPUs of the rank in later ones"),
    ("vllm_ascend", "vLLM Ascend", "",
     f"workers bind themselves (enable_cpu_binding, since version 0.18): {_REPLACES}"),
)  # fmt: skip
"""Python packages that bind by default: package, program, variable that turns it off, reason."""


def _turns_on(name: str, value: str) -> bool:
    if name == "TLLM_NUMA_AWARE_WORKER_AFFINITY":
        return value == "1"
    off = ("auto",) if name == "CCL_WORKER_AFFINITY" else ("0", "false", "no", "off", "none", "disable", "n")
    return value.strip().lower() not in ("", *off)


def check_rebinding(host: HostFacts) -> Iterator[HostIssue]:
    """Look for programs that bind themselves, by variables, options or by default."""
    issues = []
    for name, program, off, why in BINDING_VARIABLES:
        value = host.env.get(name)
        if value is not None and _turns_on(name, value):
            remedy = f"set {name}={off}" if off else f"unset {name}"
            remedy += "" if why == _LAUNCHER else OR_HOLD
            issues.append(note(name, f"is {value!r}: {program} binds", why, remedy))
    command, machine = host.command, host.machine
    words = {word.partition("=")[0] for word in command.argv[1:]} if command else ()
    for option in filter(words.__contains__, BINDING_OPTIONS):
        why = f"it starts its workers on CPUs that it chooses itself: {_REPLACES}"
        issues.append(note(option, f"{BINDING_OPTIONS[option]} binds", why, f"omit {option}{OR_HOLD}"))
    devices = machine.devices if machine and len(machine.at(Level.NODE)) > 1 else ()
    has_gpus = any(device.kind is DeviceKind.GPU for device in devices)
    installed = command.packages if command else {}
    for package, program, variable, why in BINDING_PACKAGES:
        is_off = variable.partition("=")[0] in host.env or (package == "sglang" and not has_gpus)
        if package in installed and not is_off:
            remedy = "add --additional-config '{\"enable_cpu_binding\": false}'"
            remedy = f"add --env {variable}" if variable else remedy
            issues.append(note(program, "binds by default, if the command uses it", why, remedy + OR_HOLD))
    is_named = any(wrapper.rebinds for wrapper in host.workload.wrappers)  # by another check
    yield from issues or ([] if is_named else [ok("programs that bind again", "none known")])
