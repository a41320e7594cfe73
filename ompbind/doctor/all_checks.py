"""The checks of `ompbind doctor` in one table, and the function that runs them."""

from collections.abc import Callable, Iterable, Mapping

from ompbind.doctor.checks import command, cpus, devices, environment, kernel, pools, rebinding
from ompbind.doctor.facts import HostFacts, HostIssue
from ompbind.text import Severity

HostCheck = Callable[[HostFacts], Iterable[HostIssue]]

CHECKS: Mapping[str, HostCheck] = {
    "versions": kernel.check_versions,
    "machine": cpus.check_machine,
    "cpus": cpus.check_cpus,
    "cores": cpus.check_cores,
    "offline": cpus.check_offline,
    "set-apart": cpus.check_excluded,
    "smt": cpus.check_smt,
    "quota": cpus.check_quota,
    "bind-call": cpus.check_bind_call,
    "devices": devices.check_devices,
    "virtual": devices.check_virtual,
    "runs": cpus.check_runs,
    "load": cpus.check_load,
    "variables": environment.check_variables,
    "options": environment.check_options,
    "preload": environment.check_preloads,
    "command": command.check_command,
    "wrappers": command.check_wrappers,
    "runtimes": command.check_runtimes,
    "preloadable": command.check_preloadable,
    "pools": pools.check_pools,
    "rebinding": rebinding.check_rebinding,
    "allowed-memory": kernel.check_allowed_memory,
    "memory-call": kernel.check_memory_call,
    "numa-balancing": kernel.check_balancing,
    "memory": kernel.check_memory,
    "swap": kernel.check_swap,
    "huge-pages": kernel.check_huge_pages,
    "frequency": kernel.check_frequencies,
    "stolen": kernel.check_stolen,
    "kernel": kernel.check_kernel,
    "container": kernel.check_container,
}
"""Every check by its name in JSON; their results are reported in this order."""


def run_checks(host: HostFacts) -> tuple[HostIssue, ...]:
    """Run every check and return all results: errors first, then notes, then what is OK."""
    issues = [issue.replace(check_name=name) for name, check in CHECKS.items() for issue in check(host)]
    return tuple(issue for severity in Severity for issue in issues if issue.severity is severity)
