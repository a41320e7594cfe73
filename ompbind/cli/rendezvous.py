"""The rendezvous of the ranks of one run (--rendezvous): an address, a free port, and a unique identifier.

As torchrun does, ompbind lets the kernel choose a free port, which rank 0 binds itself some time later.
"""

import os
import socket
from contextlib import ExitStack

from ompbind.commands.environment import RunSpec
from ompbind.commands.rank_variables import OMPBIND_RANK
from ompbind.errors import LaunchError

ADDRESS = "127.0.0.1"

AT_START = "chosen at start"  # printed instead of a port that is not chosen yet

_CLEARED = "TORCHELASTIC_USE_AGENT_STORE"
"""A variable of torchrun: with it rank 0 expects torchrun to bind the port, and waits."""


def choose_ports(count: int) -> list[int]:
    """Return different ports that are free on all addresses, IPv4 and IPv6; raises LaunchError."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        with ExitStack() as servers:  # all stay open until the last is chosen, so no port comes twice
            found = (socket.create_server(("", 0), family=family, dualstack_ipv6=both) for _ in range(count))
            return [servers.enter_context(server).getsockname()[1] for server in found]
    except OSError as error:
        hint = "omit --rendezvous, and set MASTER_ADDR and MASTER_PORT with --env"
        raise LaunchError(f"--rendezvous: no free port was found: {error.strerror}", hint=hint) from error


def add_rendezvous(spec: RunSpec, port: int | None) -> RunSpec:
    """Add the variables of a rendezvous at a port, None if it is not chosen yet; --env has precedence."""
    variables = (
        ("MASTER_ADDR", ADDRESS),
        ("MASTER_PORT", str(port) if port else AT_START),
        ("VLLM_DIST_IDENT", os.urandom(8).hex() if port else AT_START),
    )
    return spec.replace(
        added_variables=variables + spec.added_variables,
        removed_variables=(*spec.removed_variables, _CLEARED),
    )


def find_replaced_variables(before: RunSpec, after: RunSpec) -> tuple[tuple[str, str], ...]:
    """Return the inherited variables, with values, that a rendezvous replaces, without --env."""
    if OMPBIND_RANK in before.base:
        return ()
    from_user, new = dict(before.added_variables), {_CLEARED: None, **dict(after.added_variables)}
    return tuple(
        (name, value)
        for name, value in sorted(before.base.items())
        if name in new and name not in from_user and new[name] != value
    )
