"""The option --rendezvous: variables with which the ranks of `run` find each other."""

from ompbind.cli.console import print_message
from ompbind.cli.settings import RunSettings
from ompbind.execution.rendezvous import (
    add_rendezvous,
    find_replaced_variables,
    open_rendezvous,
)
from ompbind.planning.rank_command import RunSpec


def set_up_rendezvous(settings: RunSettings, spec: RunSpec) -> RunSpec:
    """Add the rendezvous variables for --rendezvous; the port is reserved from now on."""
    rendezvous = None if settings.dry_run else open_rendezvous()
    if rendezvous and rendezvous.note and not settings.planning.quiet:
        print_message(f"--rendezvous: {rendezvous.note}")
    extended_spec = add_rendezvous(spec, rendezvous)
    replaced = ", ".join(f"{name}={value}" for name, value in find_replaced_variables(spec, extended_spec))
    if replaced and not settings.planning.quiet:
        print_message(f"--rendezvous replaces inherited variables: {replaced}")
    return extended_spec
