"""Whether a launcher may have started this process, without the records of the launchers."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping

IN_LOCAL_RANK = "LOCAL"
"""A part of the name of each variable with the local rank of a process."""


def may_have_launcher(env: Mapping[str, str]) -> bool:
    """Return whether a launcher may have started this process, before its variables are read.

    Importing the records of all launchers takes 2 ms, and most runs have none.
    """
    return any(IN_LOCAL_RANK in name for name in env)
