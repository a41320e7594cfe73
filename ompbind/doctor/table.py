"""The checks of `ompbind doctor`, in one table, and what they say of given surroundings."""

from collections.abc import Callable, Iterable, Mapping

from ompbind import checks_command, checks_cpus, checks_system, checks_variables
from ompbind.findings import Finding, Grade
from ompbind.surroundings import Surroundings

Check = Callable[[Surroundings], Iterable[Finding]]

CHECKS: Mapping[str, Check] = {
    "machine": checks_cpus.check_machine,
    "cpus": checks_cpus.check_cpus,
    "cores": checks_cpus.check_cores,
    "offline": checks_cpus.check_offline,
    "set-apart": checks_cpus.check_apart,
    "smt": checks_cpus.check_smt,
    "quota": checks_cpus.check_quota,
    "bind-call": checks_cpus.check_bind_call,
    "runs": checks_cpus.check_runs,
    "variables": checks_variables.check_variables,
    "options": checks_variables.check_options,
    "preload": checks_variables.check_preloads,
    "command": checks_command.check_command,
    "runtimes": checks_command.check_runtimes,
    "preloadable": checks_command.check_preloadable,
    "pools": checks_command.check_pools,
    "memory-call": checks_system.check_memory_call,
    "numa-balancing": checks_system.check_balancing,
    "memory": checks_system.check_memory,
    "swap": checks_system.check_swap,
    "huge-pages": checks_system.check_huge_pages,
    "frequency": checks_system.check_frequencies,
    "stolen": checks_system.check_stolen,
    "kernel": checks_system.check_kernel,
    "container": checks_system.check_container,
}
"""Every check, by the name that JSON has for it; what they find is told in this order."""


def examine(here: Surroundings) -> tuple[Finding, ...]:
    """Run every check: what they find, problems first, then notes, then what is well."""
    found = [one.replace(by=name) for name, check in CHECKS.items() for one in check(here)]
    return tuple(one for level in Grade for one in found if one.level is level)
