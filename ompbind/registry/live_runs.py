"""Read the live runs of this machine without the lock on their directory, and without a claim."""

import os

from ompbind.machine.model import Machine
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.request import Request, Sharing
from ompbind.planning.run_relations import find_other_runs
from ompbind.registry.claim_files import ClaimList, read_claims
from ompbind.registry.claim_format import CLAIM_SUFFIXES, list_claims
from ompbind.registry.claims import find_claims_directory, make_run_identity, raise_or_describe


def read_occupied(machine: Machine, request: Request) -> tuple[LiveRun, ...]:
    """Return the other live runs of this machine, without a lock and without a claim of its own.

    A recorded machine has no live runs, and a request that shares CPUs needs none. Raises ClaimError if
    claims cannot be read and `sharing` is strict.
    """
    return try_read_occupied(machine, request)[0]


def try_read_occupied(machine: Machine, request: Request) -> tuple[tuple[LiveRun, ...], str]:
    """Return what `read_occupied` returns, and why claims could not be read, "" if they could."""
    if request.sharing is Sharing.SHARE or machine.source != LIVE:
        return (), ""
    directory = find_claims_directory(os.environ)
    try:
        return find_other_runs(read_live_runs(directory), make_run_identity("")), ""
    except OSError as error:
        return (), raise_or_describe(request.sharing, f"cannot read live runs in {directory}", error)


def read_live_runs(directory: str) -> tuple[LiveRun, ...]:
    """Return the live runs of all users, oldest first; raises OSError if the directory cannot be read."""
    return read_claim_list(directory).runs


def read_claim_list(directory: str, suffixes: tuple[str, ...] = CLAIM_SUFFIXES) -> ClaimList:
    """Return the live runs of all users, and the claims that do not count; raises OSError as above."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_claims(handle, list_claims(handle, suffixes))
    finally:
        os.close(handle)
