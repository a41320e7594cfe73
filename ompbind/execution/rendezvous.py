"""Where the ranks of one run meet (--rendezvous): an address, a free port, and a word of their own.

A rank binds the port itself, some time after it was chosen. Until then nobody else should: ports are drawn
from those that the kernel gives to no outgoing connection and that no administrator has reserved, and a run
keeps others of ompbind from its port by an abstract Unix socket with the port in its name. Such names are
known in the same network as ports are, to all users, and vanish with the last process that has them open.
"""

import errno
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from fcntl import F_DUPFD_CLOEXEC, fcntl

from ompbind.errors import LaunchError
from ompbind.planning.rank_command import Job
from ompbind.planning.rank_variables import OMPBIND_RANK
from ompbind.record import Record

ADDRESS = "127.0.0.1"

AT_START = "chosen at start"
"""What is shown in place of a port that is not chosen yet."""

_CLEARED = "TORCHELASTIC_USE_AGENT_STORE"
"""With this variable of torchrun rank 0 waits for somebody else to bind the port, who does not."""

KERNEL = "/proc/sys/net/ipv4"
_TRIES = 64
_ANY = (0,) * 8  # port 0 is any that is free at the moment; another run of ompbind may have it all the same

_FIRST, _LAST = 1024, 65535


class Rendezvous(Record):
    """A port that is free, a word that no other run has, and the open file that keeps the port from others.

    `held` is -1 on systems that have no such names; closing it gives the port back.
    """

    port: int
    ident: str
    held: int = -1


def open_rendezvous(pools: Sequence[Sequence[int]] | None = None) -> Rendezvous:
    """Choose a free port, of the first pool that has one, and keep it for as long as this process lives.

    What the process forks holds it too, what it executes does not. When all that are tried are busy it is
    any port that the kernel gives. Raises LaunchError.
    """
    reason = ""
    drawn = [port for pool in (read_pools() if pools is None else pools) for port in _draw(pool)]
    for port in (*drawn, *_ANY):
        try:
            return _take(port)
        except OSError as error:
            reason = error.strerror or str(error)
    hint = "leave --rendezvous out, and give ranks MASTER_ADDR and MASTER_PORT by --env"
    raise LaunchError(f"no port was found for ranks to meet at: {reason}", hint=hint)


def read_pools(folder: str = KERNEL) -> tuple[tuple[int, ...], ...]:
    """Read which ports the kernel gives to nobody by itself; none where it does not say, as elsewhere."""
    names = ("ip_local_port_range", "ip_local_reserved_ports", "ip_unprivileged_port_start")
    outgoing, reserved, first = (_read(f"{folder}/{name}") for name in names)
    return make_pools(outgoing, reserved, int(first or _FIRST)) if outgoing else ()


def make_pools(outgoing: str, reserved: str, first: int) -> tuple[tuple[int, ...], ...]:
    """Return the ports above those for outgoing connections, then those below, where most servers are.

    `outgoing` is the first and the last port of that range, `reserved` a list such as "8080,9000-9100".
    """
    low, high = map(int, outgoing.split())
    ranges = (item.split("-") for item in reserved.split(",") if item)
    kept = {port for ends in ranges for port in range(int(ends[0]), int(ends[-1]) + 1)}
    first = max(first, _FIRST)
    pools = (range(max(high + 1, first), _LAST + 1), range(first, low))
    return tuple(tuple(port for port in pool if port not in kept) for pool in pools)


def invite(job: Job, place: Rendezvous | None) -> Job:
    """Tell all ranks of a job where they meet, or that it is not chosen yet; --env has the last word."""
    variables = (
        ("MASTER_ADDR", ADDRESS),
        ("MASTER_PORT", str(place.port) if place else AT_START),
        ("VLLM_DIST_IDENT", place.ident if place else AT_START),
    )
    return job.replace(extra=variables + job.extra, consumed=(*job.consumed, _CLEARED))


def find_replaced(before: Job, after: Job) -> tuple[tuple[str, str], ...]:
    """Return the inherited variables, each with its value, that the ranks of an invited job do not see.

    Those that --env replaces are no news, and neither are those of a run that this one is in.
    """
    if OMPBIND_RANK in before.base:
        return ()
    given, now = dict(before.extra), {_CLEARED: None, **dict(after.extra)}
    return tuple(
        (name, value)
        for name, value in sorted(before.base.items())
        if name in now and name not in given and now[name] != value
    )


def meeting_point(variables: Mapping[str, str]) -> str:
    """Return the address and the port among the variables of a job."""
    return f"{variables['MASTER_ADDR']}, port {variables['MASTER_PORT']}"


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def _draw(pool: Sequence[int]) -> list[int]:
    """Draw some of many ports by chance; runs that start together then seldom try the same ones."""
    tries = min(_TRIES, len(pool))
    return [pool[int.from_bytes(os.urandom(4)) % len(pool)] for _ in range(tries)]


def _take(port: int) -> Rendezvous:
    """Bind a port on all addresses, as servers do, and take its name meanwhile; OSError if it is busy."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("", port))
        port = server.getsockname()[1]
        _check_version_6(port)
        return Rendezvous(port=port, ident=os.urandom(8).hex(), held=_hold(port))


def _check_version_6(port: int) -> None:
    """Find out whether somebody has a port in version 6 of the protocol, if there is one."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            server.bind(("::", port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise


def _hold(port: int) -> int:
    """Take the name of a port, and return the open file that has it; OSError if another run has it.

    The file is none of the standard files, though they may be closed, and closes when a command is executed.
    """
    if sys.platform != "linux":
        return -1
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as name:
        name.bind(f"\0ompbind-port-{port}")
        return fcntl(name, F_DUPFD_CLOEXEC, 3)
