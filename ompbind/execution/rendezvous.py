"""The rendezvous of the ranks of one run (--rendezvous): an address, a free port, and a unique identifier.

Rank 0 binds the port itself, some time after ompbind has chosen it. Until then the port must stay free:

- The kernel: only ports outside `ip_local_port_range` and `ip_local_reserved_ports` are chosen, which no
  outgoing connection gets and no administrator has reserved.
- Other runs of ompbind: a run binds an abstract Unix socket named after the port. Such names belong to the
  network namespace, as ports do; they work across users, and vanish with the last process that has them open.
  Any user can bind names. If all names that are tried are bound, a free port is used without a reservation.
"""

import errno
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from fcntl import F_DUPFD_CLOEXEC, fcntl

from ompbind.errors import LaunchError
from ompbind.planning.rank_command import RunSpec
from ompbind.planning.rank_variables import OMPBIND_RANK
from ompbind.record import Record

ADDRESS = "127.0.0.1"

AT_START = "chosen at start"
"""Printed instead of a port that is not chosen yet."""

_CLEARED = "TORCHELASTIC_USE_AGENT_STORE"
"""A variable of torchrun: with it rank 0 expects torchrun to bind the port, and waits."""

SYSCTL_DIRECTORY = "/proc/sys/net/ipv4"
_TRIES = 64
_ANY = (0,) * 8  # port 0: any free port; repeated, as another run of ompbind may have reserved it

_FIRST, _LAST = 1024, 65535


class Rendezvous(Record):
    """A free port, an identifier that is unique to the run, and the socket that reserves the port.

    Closing `reservation` releases the port; -1 on systems without abstract Unix sockets, or if other
    processes have bound the names of all tried ports. `note` then says so.
    """

    port: int
    ident: str
    reservation: int = -1
    note: str = ""


def open_rendezvous(pools: Sequence[Sequence[int]] | None = None) -> Rendezvous:
    """Choose a free port and reserve it while this process runs; the first pool with a free port counts.

    A forked child keeps the reservation, an executed command does not. If all tried ports are busy, the
    kernel chooses the port. A port whose name alone is bound is used if there is no other. Raises LaunchError
    if no port is found.
    """
    reason, fallback = "", None
    drawn = [port for pool in (read_port_pools() if pools is None else pools) for port in _draw(pool)]
    for port in (*drawn, *_ANY):
        try:
            rendezvous = _reserve(port)
        except OSError as error:
            reason = str(error.strerror)
            continue
        if not rendezvous.note:
            return rendezvous
        fallback = fallback or rendezvous
    if fallback:
        return fallback
    hint = "omit --rendezvous, and set MASTER_ADDR and MASTER_PORT with --env"
    raise LaunchError(f"--rendezvous: no free port was found: {reason}", hint=hint)


def read_port_pools(directory: str = SYSCTL_DIRECTORY) -> tuple[tuple[int, ...], ...]:
    """Read the ports that the kernel gives to no outgoing connection; () if it does not report them."""
    names = ("ip_local_port_range", "ip_local_reserved_ports", "ip_unprivileged_port_start")
    outgoing, reserved, first = (_read(f"{directory}/{name}") for name in names)
    return make_port_pools(outgoing, reserved, int(first or _FIRST)) if outgoing else ()


def make_port_pools(outgoing: str, reserved: str, first: int) -> tuple[tuple[int, ...], ...]:
    """Return two pools: the ports above those for outgoing connections, then the ports below.

    `outgoing` is the first and the last port of that range, `reserved` a list such as "8080,9000-9100", and
    `first` the lowest unprivileged port. The upper pool is first, as most servers use ports of the lower one.
    """
    low, high = map(int, outgoing.split())
    ranges = (item.split("-") for item in reserved.split(",") if item)
    excluded = {port for ends in ranges for port in range(int(ends[0]), int(ends[-1]) + 1)}
    first = max(first, _FIRST)
    pools = (range(max(high + 1, first), _LAST + 1), range(first, low))
    return tuple(tuple(port for port in pool if port not in excluded) for pool in pools)


def add_rendezvous(spec: RunSpec, rendezvous: Rendezvous | None) -> RunSpec:
    """Add the variables of a rendezvous, None if it is not chosen yet; variables of --env take precedence."""
    variables = (
        ("MASTER_ADDR", ADDRESS),
        ("MASTER_PORT", str(rendezvous.port) if rendezvous else AT_START),
        ("VLLM_DIST_IDENT", rendezvous.ident if rendezvous else AT_START),
    )
    return spec.replace(
        added_variables=variables + spec.added_variables,
        removed_variables=(*spec.removed_variables, _CLEARED),
    )


def find_replaced_variables(before: RunSpec, after: RunSpec) -> tuple[tuple[str, str], ...]:
    """Return the inherited variables, each with its value, that the rendezvous hides from ranks.

    Variables that --env replaces are left out, and so are variables of an enclosing run.
    """
    if OMPBIND_RANK in before.base:
        return ()
    from_user, new = dict(before.added_variables), {_CLEARED: None, **dict(after.added_variables)}
    return tuple(
        (name, value)
        for name, value in sorted(before.base.items())
        if name in new and name not in from_user and new[name] != value
    )


def render_address(variables: Mapping[str, str]) -> str:
    """Return the address and the port in the variables of a run."""
    return f"{variables['MASTER_ADDR']}, port {variables['MASTER_PORT']}"


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def _draw(pool: Sequence[int]) -> list[int]:
    """Return some random ports of a pool, so that runs that start together seldom try the same ones."""
    tries = min(_TRIES, len(pool))
    return [pool[int.from_bytes(os.urandom(4)) % len(pool)] for _ in range(tries)]


def _reserve(port: int) -> Rendezvous:
    """Reserve a port while it is bound on all addresses, as servers do; raises OSError if it is busy.

    The reservation is a socket with the name of the port. If another process has bound this name, the result
    has a note.
    """
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as name,
    ):
        server.bind(("", port))
        port = server.getsockname()[1]
        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as ipv6_server:
                ipv6_server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                ipv6_server.bind(("::", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            # this system has no IPv6
        ident = os.urandom(8).hex()
        if sys.platform != "linux":
            return Rendezvous(port=port, ident=ident)
        try:
            name.bind(f"\0ompbind-port-{port}")
            # at least 3, even if standard files are closed; the socket closes on exec
            return Rendezvous(port=port, ident=ident, reservation=fcntl(name, F_DUPFD_CLOEXEC, 3))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        note = f"port {port} is free but not reserved: other processes hold the names of all tried ports"
        return Rendezvous(port=port, ident=ident, note=note)
