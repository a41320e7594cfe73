"""Whether a launcher may have started this process, by the names of variables alone.

Most processes have no launcher: then the records of all launchers are not needed.
"""

from collections.abc import Mapping

IN_LOCAL_RANK = "LOCAL"
"""A part of the name of each variable with the local rank of a process."""

IN_NAMES = (IN_LOCAL_RANK, "RANK", "SIZE", "PROCID", "NTASKS")
"""Parts of names: each variable with a rank or with a number of ranks has one of them."""


def may_have_launcher(env: Mapping[str, str]) -> bool:
    """Return whether a launcher may have set all variables of a rank."""
    return any(IN_LOCAL_RANK in name for name in env)


def may_have_variables(env: Mapping[str, str]) -> bool:
    """Return whether a launcher may have set any variable of a rank, also for the script of a job."""
    return any(part in name for name in env for part in IN_NAMES)
