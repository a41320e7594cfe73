"""The checks of `ompbind doctor` in one table, and the function that runs them."""

from collections.abc import Mapping

from ompbind.doctor import checks_environment as environment
from ompbind.doctor import checks_machine as machine
from ompbind.doctor import checks_programs as programs
from ompbind.doctor.facts import HostCheck, HostFacts, HostIssue
from ompbind.text import Severity

CHECKS: Mapping[str, HostCheck] = {
    "versions": machine.check_versions,
    "machine": machine.check_machine,
    "cpus": machine.check_cpus,
    "cores": machine.check_cores,
    "offline": machine.check_offline,
    "set-apart": machine.check_excluded,
    "quota": machine.check_quota,
    "task-limit": machine.check_task_limit,
    "bind-call": machine.check_bind_call,
    "hold": machine.check_hold,
    "devices": machine.check_devices,
    "virtual": machine.check_virtual,
    "runs": machine.check_runs,
    "load": machine.check_load,
    "variables": environment.check_variables,
    "options": environment.check_options,
    "preload": environment.check_preloads,
    "command": programs.check_command,
    "wrappers": programs.check_wrappers,
    "runtimes": programs.check_runtimes,
    "preloadable": programs.check_preloadable,
    "pools": programs.check_pools,
    "rebinding": environment.check_rebinding,
    "allowed-memory": machine.check_allowed_memory,
    "memory-call": machine.check_memory_call,
    "numa-balancing": machine.check_balancing,
    "kernel": machine.check_kernel,
}
"""Every check by its name in JSON; their results are reported in this order."""


def run_checks(host: HostFacts) -> tuple[HostIssue, ...]:
    """Run every check and return all results: errors first, then notes, then what is OK."""
    issues = [issue.replace(check_name=name) for name, check in CHECKS.items() for issue in check(host)]
    return tuple(issue for severity in Severity for issue in issues if issue.severity is severity)
