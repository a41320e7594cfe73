"""Checks of `ompbind doctor`: the machine, its CPUs, devices and memory, its kernel, other runs."""

from collections.abc import Callable, Iterable, Iterator
from itertools import compress

from ompbind.cpuset import EMPTY, CpuSet, count, named
from ompbind.doctor.facts import UNKNOWN, HostCheck, HostFacts, HostIssue, Permission, error, note, ok
from ompbind.launchers.launchers import LAUNCHERS, render_unbound
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import Level, Machine
from ompbind.planning.devices.locality import find_locality, find_near
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.memory import measure_remote_memory, render_not_allowed
from ompbind.planning.notes import IN_POD, OWN_CPUS, SET_THREADS, render_fewer_cpus

SHARING_COST = (
    "threads that share a CPU take turns, and all threads of a parallel region wait for the last one"
)


def _if_readable(check: Callable[[HostFacts, Machine], Iterable[HostIssue]]) -> HostCheck:
    """Make a check that finds nothing if the machine cannot be read."""
    return lambda host: check(host, host.machine) if host.machine else ()


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


@_if_readable
def check_cpus(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Compare the allowed CPUs with the online CPUs."""
    if machine.allowed == machine.online:
        yield ok("CPUs", f"all {len(machine.online)} online CPUs are allowed")
        return
    rank = host.enclosing[0] if host.enclosing and machine.allowed == host.enclosing[1] else None
    if rank is not None:
        limits, remedy = f"limited by the enclosing run (rank {rank})", "none needed: a rank has its own CPUs"
    else:
        limits = "; ".join(text for _, text in machine.restrictions) or "limited by an affinity mask"
        in_container = "docker and podman: --cpuset-cpus; Kubernetes: CPU requests"
        outside = "change AllowedCPUs= of the systemd unit, or request more CPUs from the batch system"
        origins = "taskset, numactl, a batch system or launcher, or a parent process that OpenMP has bound"
        started_by = (render_unbound(row.name, host.env) for row in LAUNCHERS if row.is_complete(host.env))
        of_mask = f"to use more CPUs, find what has set the mask: {origins}; 'taskset -p $$' shows it"
        if unbound := next(filter(None, started_by), ""):
            of_mask = f"to use more CPUs, start the launcher as '{unbound}'"
        ways = (in_container if host.kernel.container else outside, of_mask)
        remedy = "; ".join(compress(ways, ("cpuset cgroup" in limits, "affinity mask" in limits)))
    online = count(len(machine.online), "online CPU")
    found = f"{len(machine.allowed)} of {online} allowed ({machine.allowed}): {limits}"
    if len(machine.allowed) > 1 or rank is not None:
        why = "programs that count or name all online CPUs get fewer; ompbind uses only the allowed CPUs"
        yield note("CPUs", found, why, remedy)
    else:
        why = "all ranks and threads share this CPU, and only one of them runs at a time"
        yield error("CPUs", found, why, remedy)


@_if_readable
def check_cores(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Look for cores with some hardware threads that are not allowed: other programs may use those."""
    cores = [core.cpus for core in machine.at(Level.CORE)]
    partial = [core for core in cores if core & machine.allowed and not core <= machine.allowed]
    if partial and machine.allowed != machine.online:
        lost = CpuSet(cpu for core in partial for cpu in core - machine.allowed)
        found = f"{count(len(partial), 'core')} only partly allowed: not {named('CPU', lost)}"
        why = "programs on the other hardware threads of a core share its execution units and caches"
        yield note("cores", found, why, "request whole cores, or exclude these: -m 'all,^CPUS'")


@_if_readable
def check_offline(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Look for offline CPUs; siblings that are offline because SMT is off are intended."""
    if not machine.offline:
        return
    found = f"{named('CPU', machine.offline)} present but offline"
    if host.kernel.smt in ("off", "forceoff"):
        yield ok("offline CPUs", f"{found}: SMT is off")
        return
    file = f"/sys/devices/system/cpu/cpu{machine.offline.first}/online"
    why = "masks that name them are refused; plans do not use them"
    yield note("offline CPUs", found, why, f"to use them, as root: echo 1 > {file}")


@_if_readable
def check_excluded(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Look for CPUs that the kernel excludes from scheduling or from its own work."""
    for name, cpus in machine.exclusion_reasons:
        why = "they are used only by masks that name them"
        if name == "isolated":
            why += "; the kernel moves no threads to or between them: threads without a place share one CPU"
        usable = cpus & machine.allowed
        remedy = f"to use them, with a place for every OpenMP thread: -m '{usable}' --bind thread"
        remedy = remedy if usable else "allow them, to use them"
        yield note("excluded CPUs", f"{named('CPU', cpus)}: {name}", why, remedy)


@_if_readable
def check_quota(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Compare the CPU time that the cgroup may use with the number of its CPUs."""
    quota, cpus = machine.quota, len(machine.allowed)
    if quota is None or quota >= cpus:
        found = "none" if quota is None else f"{count(quota, 'CPU')}, enough for all allowed CPUs"
        yield ok("CPU quota", found)
        if quota is None and machine.allowed == machine.online and "KUBERNETES_SERVICE_HOST" in host.env:
            yield note("CPU quota", IN_POD, "pools count all CPUs of the node", SET_THREADS)
        return
    found = f"the cgroup limits CPU time to {quota:g} of {count(cpus, 'allowed CPU')}"
    why = "thread pools sized by CPU count exhaust the quota, and then all threads are throttled"
    where = "docker and podman: --cpus" if host.kernel.container else "CPUQuota= of the systemd unit"
    remedy = "'ompbind run' sets OMP_NUM_THREADS and similar variables (without ompbind,"
    remedy += f" OMP_NUM_THREADS={max(1, int(quota))}); for pools that read no variable (C++, TBB, OpenVINO),"
    remedy += f" 'ompbind run {render_fewer_cpus(machine, quota)}' gives a rank as few CPUs as the quota has;"
    yield note("CPU quota", found, why, f"{remedy} or a larger quota ({where})")
    if host.kernel.container and machine.allowed == machine.online:
        found = "a container with a quota and no cpuset does not see runs of other containers"
        why = f"ranks without -c begin at CPU {machine.allowed.first} in each such container"
        yield note("CPU quota", found, why, OWN_CPUS)


@_if_readable
def check_task_limit(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Compare how many processes and threads may still start with the number of CPUs."""
    limit = machine.task_limit
    if limit is None or limit.left > len(machine.allowed):
        yield ok("processes and threads", "no limit" if limit is None else f"{limit}")
        return
    cpus = count(len(machine.allowed), "allowed CPU")
    why = f"ranks with a thread for each of {cpus} cannot start all threads"
    remedy = "raise it: --pids-limit of docker and podman, TasksMax= of the systemd unit, ulimit -u, sysctl"
    yield note("processes and threads", f"{limit}", why, remedy)


def check_bind_call(host: HostFacts) -> Iterator[HostIssue]:
    """Check that the kernel permits a process to bind itself."""
    if host.may_bind is Permission.REFUSED:
        why = "ranks cannot be bound, so none can be started"
        remedy = "allow sched_setaffinity in the seccomp profile or sandbox; until then use --mask none"
        yield error("sched_setaffinity", "is refused to this process", why, remedy)
    else:
        yield ok("sched_setaffinity", "is permitted" if host.may_bind is Permission.GRANTED else UNKNOWN)


def check_hold(host: HostFacts) -> Iterator[HostIssue]:
    """Report whether --hold works, and why not."""
    yield ok("--hold", host.hold)


def check_runs(host: HostFacts) -> Iterator[HostIssue]:
    """Look for live runs on the same CPUs."""
    if host.runs is None:
        yield ok("other runs")
        return
    allowed = host.machine.allowed if host.machine else EMPTY
    others = [run for run in host.runs if run.claimed & allowed]
    remedy = "use --avoid to plan around it, --exclusive to refuse to start; 'ompbind ps' lists all runs"
    for run in others:
        found = f"{run.run_id} (pid {run.pid}) uses {named('CPU', run.claimed & allowed)}"
        yield note("other runs", found, SHARING_COST, remedy)
    if not others:
        yield ok("other runs", "none on these CPUs")


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


_PROVIDER = "ask the provider of the machine"


@_if_readable
def check_devices(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Look for GPUs that no allowed CPU is near."""
    visible = find_visible_devices(machine.devices, host.env).devices
    gpus = [device for device in visible if device.kind is DeviceKind.GPU]
    if not gpus:
        return
    localities = [(gpu, find_locality(machine, [gpu], machine.allowed)) for gpu in gpus]
    far = [(gpu, locality) for gpu, locality in localities if locality.is_nearest]
    inside = host.kernel.container
    where = "docker and podman: --cpuset-cpus" if inside else "AllowedCPUs= of the systemd unit"
    for gpu, locality in far:
        node = "" if gpu.node is None else f" on NUMA node {gpu.node}"
        found = f"is near {named('CPU', locality.near)}{node}, but only CPUs {machine.allowed} are allowed"
        allow = f"allow some of CPUs {locality.near} ({where}, taskset, or the batch system)"
        why = "every transfer between this GPU and a rank crosses to another NUMA node"
        yield note(f"{gpu.name} ({gpu.address})", found, why, f"{allow}, or use another GPU")
    unknown = [gpu for gpu, locality in localities if not locality.near]
    if unknown and len(machine.at(Level.NODE)) > 1 and not host.kernel.hypervisor:
        found = f"{_list_names(unknown)}: the firmware does not report a NUMA node"
        why = "plans cannot place ranks near these GPUs, and spread them over all NUMA nodes"
        yield note("GPUs", found, why, "name the CPUs with -m; look for a newer firmware (BIOS)")
    elif not far:
        near = "" if unknown else ", all near allowed CPUs"
        yield ok("GPUs", f"{count(len(gpus), 'GPU')}{near}")


def _list_names(devices: Iterable[Device]) -> str:
    return ", ".join(device.name for device in devices)


@_if_readable
def check_virtual(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Look for parts of the topology that a hypervisor has not passed on, or made up."""
    if not host.kernel.hypervisor:
        return
    made_up = [*_find_made_up_cores(machine), *_find_made_up_devices(machine)]
    maker = f"{host.kernel.hypervisor}: "
    yield from (note("virtual machine", maker + found, why, remedy) for found, why, remedy in made_up)
    if not made_up:
        yield ok("virtual machine", f"{maker}cores, caches and NUMA nodes are as the hypervisor reports them")


def _find_made_up_cores(machine: Machine) -> Iterator[tuple[str, str, str]]:
    packages, cpus = machine.at(Level.PACKAGE), len(machine.online)
    if cpus > 1 and packages and all(len(package.cpus) == 1 for package in packages):
        why = "ompbind cannot know which CPUs share a core or a cache: ranks may share them unseen"
        remedy = f"{_PROVIDER} for the real CPU topology (QEMU: -smp sockets=,cores=,threads=)"
        yield f"each of {cpus} CPUs is a package of its own", why, remedy
    elif cpus > 1 and all(len(cache.cpus) == 1 for cache in machine.at(Level.L3)):
        why = "plans do not keep the threads of a rank in one cache, because none is reported"
        remedy = f"{_PROVIDER} for the caches (libvirt: <cache mode='passthrough'/>)"
        yield "no L3 cache is shared", why, remedy


def _find_made_up_devices(machine: Machine) -> Iterator[tuple[str, str, str]]:
    nodes = len(machine.at(Level.NODE))
    gpus = [device for device in machine.devices if device.kind is DeviceKind.GPU and not device.excluded]
    unknown = [gpu for gpu in gpus if not find_near(machine, gpu)]
    remedy = f"{_PROVIDER} for GPUs below a PCI bus of their NUMA node (QEMU: pxb-pcie with numa_node=)"
    if nodes > 1 and unknown:
        why = f"plans cannot place ranks near these GPUs, and spread them over all {nodes} NUMA nodes"
        yield f"the NUMA node of {_list_names(unknown)} is not passed on", why, remedy
    elif nodes > 1 and len(gpus) > 1 and len({gpu.node for gpu in gpus}) == 1:
        found = f"all {len(gpus)} GPUs are on NUMA node {gpus[0].node} of {nodes} nodes"
        why = "the hypervisor may have made this up; plans then divide the CPUs of one node among all ranks"
        yield found, why, f"compare 'nvidia-smi topo -m' on the host; {remedy}"


_FEATURES = (
    ((5, 3), "exits of ranks are noticed by signals only (pidfd: 5.3)"),
    ((5, 15), "memory can be preferred from a single NUMA node only (several: 5.15)"),
    ((6, 2), "a change of the cpuset discards the affinity masks of processes (kept: 6.2)"),
)
"""Versions of the kernel, and what older kernels lack that matters to a binding."""


def check_memory_call(host: HostFacts) -> Iterator[HostIssue]:
    """Check that the kernel permits a process to choose the NUMA nodes of its memory."""
    found = {
        Permission.UNKNOWN: UNKNOWN,
        Permission.GRANTED: "is permitted",
        Permission.ABSENT: "this kernel has no NUMA policies",
        Permission.REFUSED: "is refused; harmless with one NUMA node",
    }[host.may_place_memory]
    if host.may_place_memory is not Permission.REFUSED or len(_nodes_with_memory(host)) < 2:
        yield ok("set_mempolicy", found)
    else:
        why = "memory cannot be bound to nodes; it is allocated where a thread touches it first"
        found, remedy = "is refused, by a seccomp filter", "allow set_mempolicy in the filter of the sandbox"
        if host.kernel.container:
            found = "is refused in this container"
            remedy = "docker and podman: --cap-add SYS_NICE; Kubernetes: capabilities: add: [SYS_NICE]"
        yield note("set_mempolicy", found, why, remedy)


def _nodes_with_memory(host: HostFacts) -> list[int]:
    nodes = host.machine.nodes if host.machine else ()
    return [node.number for node in nodes if node.memory_bytes != 0]


@_if_readable
def check_allowed_memory(host: HostFacts, machine: Machine) -> Iterator[HostIssue]:
    """Look for allowed CPUs on NUMA nodes whose memory is not allowed."""
    remote = CpuSet(measure_remote_memory(machine)) & machine.allowed
    if not remote:
        yield ok("allowed memory", "of the NUMA nodes of all allowed CPUs")
        return
    found = f"{render_not_allowed(machine, remote)}, but {named('CPU', remote)} there are allowed"
    why = "threads there use memory of other nodes, which is slower; plans use these CPUs last"
    inside = host.kernel.container
    where = "docker and podman: --cpuset-mems" if inside else "AllowedMemoryNodes= of the systemd unit"
    yield note("allowed memory", found, why, f"allow this memory too ({where}), or allow only other CPUs")


def check_balancing(host: HostFacts) -> Iterator[HostIssue]:
    """Check whether the kernel moves memory between NUMA nodes on its own."""
    setting, several = host.kernel.numa_balancing, len(_nodes_with_memory(host)) > 1
    if setting and several:
        why = "it causes page faults to find out which CPUs use a page; memory of bound ranks is local anyway"
        yield note("NUMA balancing", "on", why, "as root: sysctl kernel.numa_balancing=0")
    else:
        found = UNKNOWN if setting is None else "off"
        yield ok("NUMA balancing", found if several else "off, or only one node")


def check_kernel(host: HostFacts) -> Iterator[HostIssue]:
    """Look for features that an old kernel lacks."""
    version, release = host.kernel.version, host.kernel.release
    lacks = [text for since, text in _FEATURES if version and version < since]
    if lacks:
        yield note("kernel", release, "; ".join(lacks), "use a newer kernel, if this matters")
    else:
        yield ok("kernel", release or UNKNOWN)


def check_versions(host: HostFacts) -> Iterator[HostIssue]:
    """Report versions, files and variables, for reports of faults."""
    yield from (ok(subject, found) for subject, found in host.report)
