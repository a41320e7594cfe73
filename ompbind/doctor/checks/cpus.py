"""Checks of `ompbind doctor`: which CPUs may be used, how much of them, and who else uses them."""

from collections.abc import Iterator
from itertools import compress

from ompbind.cpuset import EMPTY, CpuSet, count, named
from ompbind.doctor.facts import HostFacts, Permission
from ompbind.doctor.issue import HostIssue, error, note, ok
from ompbind.machine.model import Level, Machine
from ompbind.planning.rank_variables import OMPBIND_RANK

SHARED = (
    "two ranks with default threads on the same CPUs: 40-60 times slower on small parallel regions,"
    " 150-220 times with active waiting"
)


def check_machine(here: HostFacts) -> Iterator[HostIssue]:
    """Tell whether the machine can be read, and bind processes at all."""
    machine = here.machine
    if machine is None:
        yield error("machine", here.error, "nothing can be planned", "see 'ompbind topo'")
    elif not machine.bindable:
        why = "ranks get thread counts only, and move between all CPUs"
        yield error("machine", "this system cannot bind processes to CPUs", why, "run on Linux")
    elif machine.remarks:
        why = "plans follow what is told of cores, caches and nodes"
        remedy = "compare 'ompbind topo' with what you know; a mask (-m) names CPUs whatever they share"
        yield note("machine", "; ".join(machine.remarks), why, remedy)
    else:
        yield ok("machine", f"{count(len(machine.at(Level.CORE)), 'core')}, {machine.arch}")


def check_cpus(here: HostFacts) -> Iterator[HostIssue]:
    """Compare the CPUs that may be used with those that are online."""
    machine = here.machine
    if machine is None:
        return
    told = f"{len(machine.allowed)} of {count(len(machine.online), 'online CPU')} may be used"
    if machine.allowed == machine.online:
        yield ok("CPUs", f"all {len(machine.online)} that are online may be used")
        return
    found = f"{told} ({machine.allowed}), because of {_narrowed_by(here, machine)}"
    if len(machine.allowed) > 1 or here.inside:
        why = "Open MPI, MPICH, hwloc-bind and others were seen to bind to forbidden CPUs then; ompbind stays"
        yield note("CPUs", found, f"{why} on these", _widen(here, machine))
    else:
        why = "all ranks and threads take turns on it: two busy threads take twice as long"
        yield error("CPUs", found, why, _widen(here, machine))


def _find_narrowing(here: HostFacts, machine: Machine) -> tuple[bool, bool]:
    """Tell whether the cpuset of the control group leaves CPUs out, and whether the affinity mask does."""
    usable = machine.online if here.cpuset is None else machine.online & here.cpuset
    return usable != machine.online, machine.allowed != usable


def _narrowed_by(here: HostFacts, machine: Machine) -> str:
    if here.inside:
        return f"the run around it (rank {here.env[OMPBIND_RANK]})"
    causes = ("the cpuset of its control group", "the affinity mask that it was started with")
    return " and ".join(compress(causes, _find_narrowing(here, machine)))


def _widen(here: HostFacts, machine: Machine) -> str:
    """Say who can be asked for more CPUs."""
    if here.inside:
        return "none needed: a rank has its own CPUs"
    in_container = "docker and podman: --cpuset-cpus; Kubernetes: CPU requests"
    outside = "AllowedCPUs= of its systemd unit, or more CPUs from the batch system"
    parent = "taskset, numactl, a batch system or launcher, or a parent whose OpenMP has narrowed it"
    ways = (
        in_container if here.kernel.container else outside,
        f"where they are to be used, find who has set it ({parent}): 'taskset -p $$' in the shell",
    )
    return "; ".join(compress(ways, _find_narrowing(here, machine)))


def check_cores(here: HostFacts) -> Iterator[HostIssue]:
    """Look for cores of which only some hardware threads may be used: others may use the rest."""
    machine = here.machine
    if machine is None or machine.allowed == machine.online:
        return
    cores = [core.cpus for core in machine.at(Level.CORE)]
    cut = [core for core in cores if core & machine.allowed and not core <= machine.allowed]
    if cut:
        lost = CpuSet(cpu for core in cut for cpu in core - machine.allowed)
        found = f"{count(len(cut), 'core')} may be used only in part: not {named('CPU', lost)}"
        why = "whoever has the other hardware threads of a core shares its execution units and caches"
        yield note("cores", found, why, "ask for whole cores, or leave these out: -m 'all,^CPUS'")


def check_offline(here: HostFacts) -> Iterator[HostIssue]:
    """Look for CPUs that are switched off; siblings that are off together with SMT are meant to be."""
    machine = here.machine
    if machine is None or not machine.offline:
        return
    found = f"{named('CPU', machine.offline)} present but offline"
    if here.kernel.smt in ("off", "forceoff"):
        yield ok("offline CPUs", f"{found}: SMT is switched off")
        return
    file = f"/sys/devices/system/cpu/cpu{machine.offline.first}/online"
    why = "masks that name them are refused; plans are made without them"
    yield note("offline CPUs", found, why, f"if they are wanted, as root: echo 1 > {file}")


def check_excluded(here: HostFacts) -> Iterator[HostIssue]:
    """Look for CPUs that the kernel keeps other work off."""
    reasons = here.machine.exclusion_reasons if here.machine else ()
    for name, cpus in reasons:
        why = "only masks that name them use them"
        if name == "isolated":
            why += "; the kernel moves no threads between isolated CPUs: those of a rank can pile up on one"
        remedy = f"-m '{cpus}' --bind exact to use them, with a place for every thread"
        yield note("CPUs set apart", f"{named('CPU', cpus)}: {name}", why, remedy)


def check_smt(here: HostFacts) -> Iterator[HostIssue]:
    """Tell how many hardware threads cores have, and what ompbind makes of them."""
    machine = here.machine
    if machine is None:
        return
    widths = {len(core.cpus) for core in machine.at(Level.CORE)}
    if widths <= {1}:
        yield ok("SMT", "one hardware thread per core")
    else:
        most = max(widths, default=1)
        used = "4 of them" if most >= 8 else "one of them"
        yield ok("SMT", f"{most} hardware threads per core: ranks get {used}, all with --smt all")


def check_quota(here: HostFacts) -> Iterator[HostIssue]:
    """Compare the CPU time that the control group may use with its CPUs."""
    machine = here.machine
    if machine is None:
        return
    quota, cpus = machine.quota, len(machine.allowed)
    if quota is None or quota >= cpus:
        yield ok("CPU quota", "none" if quota is None else f"{quota:g} CPUs, enough for all that may be used")
        return
    found = f"the control group may use {quota:g} CPUs of time on {count(cpus, 'CPU')}"
    why = "pools sized by CPUs spin that away and are stopped together: 2-5 times slower"
    threads = max(1, int(quota))
    remedy = (
        f"with 'ompbind run' none, its threads stay within; otherwise OMP_NUM_THREADS={threads},"
        " or a larger quota (docker --cpus, CPUQuota= of systemd)"
    )
    yield note("CPU quota", found, why, remedy)


def check_bind_call(here: HostFacts) -> Iterator[HostIssue]:
    """Tell whether the kernel lets a process bind itself."""
    if here.may_bind is Permission.REFUSED:
        why = "no rank can be started on CPUs of its own"
        remedy = "allow sched_setaffinity in the seccomp profile or sandbox; until then --mask none"
        yield error("sched_setaffinity", "is refused to this process", why, remedy)
    else:
        yield ok("sched_setaffinity", *_told(here.may_bind))


def _told(permission: Permission) -> tuple[str, ...]:
    return ("is permitted",) if permission is Permission.GRANTED else ()


def check_runs(here: HostFacts) -> Iterator[HostIssue]:
    """Look for live runs on the same CPUs."""
    if here.runs is None:
        yield ok("other runs")
        return
    allowed = here.machine.allowed if here.machine else EMPTY
    others = [run for run in here.runs if run.held & allowed]
    if not others:
        yield ok("other runs", "none on these CPUs")
    for run in others:
        found = f"{run.run_id} (pid {run.pid}) holds {named('CPU', run.held & allowed)}"
        remedy = "--avoid plans on the others, --exclusive refuses; 'ompbind ps' lists all runs"
        yield note("other runs", found, SHARED, remedy)
