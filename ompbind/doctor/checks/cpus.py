"""Checks of `ompbind doctor`: which CPUs are allowed, how much CPU time, and which runs use them."""

from collections.abc import Iterator
from itertools import compress

from ompbind.cpuset import EMPTY, CpuSet, count, named
from ompbind.doctor.facts import UNKNOWN, HostFacts, HostIssue, Permission, error, note, ok
from ompbind.machine.model import Level

SHARING_COST = (
    "threads that share a CPU take turns, and all threads of a parallel region wait for the last one"
)


def check_machine(host: HostFacts) -> Iterator[HostIssue]:
    """Check that the machine can be read, and that the system can bind processes."""
    machine = host.machine
    if machine is None:
        yield error("machine", host.error, "no plan can be made", "see 'ompbind topo'")
    elif not machine.bindable:
        why = "ranks only get thread counts and move between all CPUs"
        yield error("machine", "this system cannot bind processes to CPUs", why, "use Linux")
    elif machine.remarks:
        why = "plans are made from the cores, caches and NUMA nodes that the system reports"
        remedy = "compare 'ompbind topo' with the real machine; a mask (-m) can name any CPUs"
        yield note("machine", "; ".join(machine.remarks), why, remedy)
    else:
        yield ok("machine", f"{count(len(machine.at(Level.CORE)), 'core')}, {machine.arch}")


def check_cpus(host: HostFacts) -> Iterator[HostIssue]:
    """Compare the allowed CPUs with the online CPUs."""
    machine = host.machine
    if machine is None:
        return
    if machine.allowed == machine.online:
        yield ok("CPUs", f"all {len(machine.online)} online CPUs are allowed")
        return
    usable = machine.online if host.cpuset is None else machine.online & host.cpuset
    limited_by = (usable != machine.online, machine.allowed != usable)  # cgroup, mask
    is_rank = host.enclosing is not None and machine.allowed == host.enclosing.cpus
    if host.enclosing and is_rank:
        limits = f"the enclosing run (rank {host.enclosing.rank})"
        remedy = "none needed: a rank has its own CPUs"
    else:
        causes = ("the cpuset of the cgroup", "the inherited affinity mask")
        limits = " and ".join(compress(causes, limited_by))
        in_container = "docker and podman: --cpuset-cpus; Kubernetes: CPU requests"
        outside = "change AllowedCPUs= of the systemd unit, or request more CPUs from the batch system"
        origins = "taskset, numactl, a batch system or launcher, or a parent process that OpenMP has bound"
        ways = (
            in_container if host.kernel.container else outside,
            f"to use more CPUs, find what has set the mask: {origins}; 'taskset -p $$' shows the mask of a"
            " shell",
        )
        remedy = "; ".join(compress(ways, limited_by))
    online = count(len(machine.online), "online CPU")
    found = f"{len(machine.allowed)} of {online} allowed ({machine.allowed}): limited by {limits}"
    if len(machine.allowed) > 1 or is_rank:
        why = "programs that count or name all online CPUs get fewer; ompbind uses only the allowed CPUs"
        yield note("CPUs", found, why, remedy)
    else:
        why = "all ranks and threads share this CPU, and only one of them runs at a time"
        yield error("CPUs", found, why, remedy)


def check_cores(host: HostFacts) -> Iterator[HostIssue]:
    """Look for cores with some hardware threads that are not allowed: other programs may use those."""
    machine = host.machine
    if machine is None or machine.allowed == machine.online:
        return
    cores = [core.cpus for core in machine.at(Level.CORE)]
    partial = [core for core in cores if core & machine.allowed and not core <= machine.allowed]
    if partial:
        lost = CpuSet(cpu for core in partial for cpu in core - machine.allowed)
        found = f"{count(len(partial), 'core')} only partly allowed: not {named('CPU', lost)}"
        why = "programs on the other hardware threads of a core share its execution units and caches"
        yield note("cores", found, why, "request whole cores, or exclude these: -m 'all,^CPUS'")


def check_offline(host: HostFacts) -> Iterator[HostIssue]:
    """Look for offline CPUs; siblings that are offline because SMT is off are intended."""
    machine = host.machine
    if machine is None or not machine.offline:
        return
    found = f"{named('CPU', machine.offline)} present but offline"
    if host.kernel.smt in ("off", "forceoff"):
        yield ok("offline CPUs", f"{found}: SMT is off")
        return
    file = f"/sys/devices/system/cpu/cpu{machine.offline.first}/online"
    why = "masks that name them are refused; plans do not use them"
    yield note("offline CPUs", found, why, f"to use them, as root: echo 1 > {file}")


def check_excluded(host: HostFacts) -> Iterator[HostIssue]:
    """Look for CPUs that the kernel excludes from scheduling or from its own work."""
    reasons = host.machine.exclusion_reasons if host.machine else ()
    for name, cpus in reasons:
        why = "they are used only by masks that name them"
        if name == "isolated":
            why += "; the kernel moves no threads to or between them: threads without a place share one CPU"
        remedy = f"to use them, with a place for every OpenMP thread: -m '{cpus}' --bind thread"
        yield note("excluded CPUs", f"{named('CPU', cpus)}: {name}", why, remedy)


def check_smt(host: HostFacts) -> Iterator[HostIssue]:
    """Report how many hardware threads cores have, and how many of them ranks use."""
    machine = host.machine
    if machine is None:
        return
    widths = {len(core.cpus) for core in machine.at(Level.CORE)}
    if widths <= {1}:
        yield ok("SMT", "one hardware thread per core")
    else:
        most = max(widths, default=1)
        used = "4" if most >= 8 else "1"
        yield ok("SMT", f"{most} hardware threads per core: ranks use {used}, or all with --smt all")


def check_quota(host: HostFacts) -> Iterator[HostIssue]:
    """Compare the CPU time that the cgroup may use with the number of its CPUs."""
    machine = host.machine
    if machine is None:
        return
    quota, cpus = machine.quota, len(machine.allowed)
    if quota is None or quota >= cpus:
        found = "none" if quota is None else f"{count(quota, 'CPU')}, enough for all allowed CPUs"
        yield ok("CPU quota", found)
        return
    found = f"the cgroup limits CPU time to {quota:g} of {count(cpus, 'allowed CPU')}"
    why = "thread pools sized by CPU count exhaust the quota, and then all threads are throttled"
    where = "docker and podman: --cpus" if host.kernel.container else "CPUQuota= of the systemd unit"
    remedy = (
        "none for 'ompbind run', whose thread counts stay within the quota; otherwise"
        f" OMP_NUM_THREADS={max(1, int(quota))}, or a larger quota ({where})"
    )
    yield note("CPU quota", found, why, remedy)


def check_bind_call(host: HostFacts) -> Iterator[HostIssue]:
    """Check that the kernel permits a process to bind itself."""
    if host.may_bind is Permission.REFUSED:
        why = "ranks cannot be bound, so none can be started"
        remedy = "allow sched_setaffinity in the seccomp profile or sandbox; until then use --mask none"
        yield error("sched_setaffinity", "is refused to this process", why, remedy)
    else:
        yield ok("sched_setaffinity", "is permitted" if host.may_bind is Permission.GRANTED else UNKNOWN)


def check_runs(host: HostFacts) -> Iterator[HostIssue]:
    """Look for live runs on the same CPUs."""
    if host.runs is None:
        yield ok("other runs")
        return
    allowed = host.machine.allowed if host.machine else EMPTY
    others = [run for run in host.runs if run.claimed & allowed]
    if not others:
        yield ok("other runs", "none on these CPUs")
    for run in others:
        found = f"{run.run_id} (pid {run.pid}) uses {named('CPU', run.claimed & allowed)}"
        remedy = "use --avoid to plan around it, --exclusive to refuse to start; 'ompbind ps' lists all runs"
        yield note("other runs", found, SHARING_COST, remedy)


def check_load(host: HostFacts) -> Iterator[HostIssue]:
    """Look for other processes that use the allowed CPUs now."""
    others = host.others
    if not others.cpus:
        yield ok("other load")
    elif not others.is_much:
        yield ok("other load", f"{100 * max(0.0, others.share):.0f} % of {named('CPU', others.cpus)}")
    else:
        idle = f"idle CPUs with -m '{host.idle}'" if host.idle else "CPUs that are idle"
        remedy = f"stop these processes, or use {idle}; 'top' shows the processes"
        found = f"{others.text} in {others.span_s:.1f} s"
        yield note("other load", found, f"{SHARING_COST}; measurements vary", remedy)
