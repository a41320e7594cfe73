"""The option --rendezvous: variables with which the ranks of `run` find each other."""

from __future__ import annotations

from ompbind.cli.console import print_message
from ompbind.execution.rendezvous import add_rendezvous, find_replaced_variables, open_rendezvous
from ompbind.planning.rank_command import RunSpec

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def set_up_rendezvous(options: Mapping[str, Any], spec: RunSpec) -> RunSpec:
    """Add the rendezvous variables for --rendezvous; the port is reserved from now on."""
    rendezvous = None if options["dry_run"] else open_rendezvous()
    if rendezvous and rendezvous.note and not options["quiet"]:
        print_message(f"--rendezvous: {rendezvous.note}")
    extended_spec = add_rendezvous(spec, rendezvous)
    replaced = ", ".join(f"{name}={value}" for name, value in find_replaced_variables(spec, extended_spec))
    if replaced and not options["quiet"]:
        print_message(f"--rendezvous replaces inherited variables: {replaced}")
    return extended_spec
