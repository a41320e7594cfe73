"""Tickets: the queue of the runs that wait until CPUs are free.

A *ticket* is a file as a claim is, locked for as long as its process lives. It claims no CPUs, and names the
CPUs that its run may get.

    lock the directory → read the tickets there → write x.wait → unlock
    sleep until no earlier ticket is live → plan and register → remove x.wait

Tickets are written under the lock of the directory, so the tickets that a run finds there are the earlier
tickets: they need no numbers. A run waits for earlier tickets whose CPUs overlap its own. It remembers their
names, and only looks whether the latest of them is still live: many waiting runs cost little.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from ompbind.cpuset import CpuSet
from ompbind.planning.other_runs import LiveRun, RunIdentity, find_job_runs, find_other_runs, must_wait_for
from ompbind.planning.request import Sharing
from ompbind.registry.claim_files import Claim, read_claims, write_claim
from ompbind.registry.claim_format import CLAIM_SUFFIX, TICKET_SUFFIX, list_claims, make_waiting_run
from ompbind.registry.directory_watch import DirectoryWatch
from ompbind.registry.registry import Registry, raise_or_describe


class Ticket:
    """The ticket of this run, and the earlier tickets for which it waits, by file name."""

    def __init__(self, claim: Claim, identity: RunIdentity, wanted: CpuSet, earlier: list[str]) -> None:
        self._claim = claim
        # not a duplicate of another descriptor, which would share its lock
        self._handle = os.open(claim.directory, os.O_RDONLY | os.O_DIRECTORY)
        self._watch = DirectoryWatch(claim.directory)
        self._identity = identity
        self._wanted = wanted
        self._earlier = earlier

    def is_first(self) -> bool:
        """Return whether no earlier ticket is live, or a rank of the same job has got its CPUs."""
        while self._earlier and not self._read_named(self._earlier[-1:]):
            self._earlier.pop()
        if not self._earlier:
            return True
        in_job = self._identity.placement_index is not None  # each rank registers the CPUs of all ranks
        return in_job and bool(find_job_runs(self._read_claims(), self._identity))

    def read_blockers(self) -> tuple[LiveRun, ...]:
        """Return the other runs that use the wanted CPUs, and the earlier runs that still wait for them."""
        others = find_other_runs(self._read_claims(), self._identity)
        users = (run for run in others if not run.claimed.isdisjoint(self._wanted))
        return (*users, *self._read_named(self._earlier))

    def sleep(self, limit_s: float) -> None:
        """Sleep until this run may be first, or may find CPUs if it is; or for `limit_s` seconds.

        Each run is woken by the ticket before it, and only the first run by claims.
        """
        watches_claims = not self._earlier or self._identity.placement_index is not None

        def is_awaited(name: str) -> bool:
            """Return whether a change of a file matters; "" if it is not known which files have changed."""
            return name in ("", *self._earlier[-1:]) or (watches_claims and name.endswith(CLAIM_SUFFIX))

        self._watch.sleep(limit_s, is_awaited)

    def remove(self) -> None:
        """Remove the ticket."""
        self._claim.release()
        self._watch.close()
        os.close(self._handle)

    def _read_claims(self) -> tuple[LiveRun, ...]:
        try:
            return self._read_named(list_claims(self._handle))
        except OSError:  # too many; this is an error once this run plans
            return ()

    def _read_named(self, names: Collection[str]) -> tuple[LiveRun, ...]:
        return read_claims(self._handle, names, with_ranks=False).runs


@contextmanager
def take_ticket(identity: RunIdentity, wanted: CpuSet, sharing: Sharing) -> Iterator[Ticket]:
    """Join the queue of waiting runs with a ticket for the `wanted` CPUs, and leave it in the end.

    `sharing` is AVOID or EXCLUSIVE. Raises ClaimError if claims cannot be read or written.
    """
    with Registry(sharing, identity) as registry:
        try:
            names = list_claims(registry.handle, (TICKET_SUFFIX,))
            found = read_claims(registry.handle, names, with_ranks=False)
            run = make_waiting_run(identity, wanted)
            pairs = zip(found.names, found.runs, strict=True)
            earlier = [name for name, other in pairs if must_wait_for(other, run, identity, registry.live)]
            claim = write_claim(run, registry.handle, registry.directory, TICKET_SUFFIX)
            ticket = Ticket(claim, identity, wanted, earlier)
        except OSError as error:
            raise_or_describe(sharing, f"cannot wait in {registry.directory}", error)
            raise
    try:
        yield ticket
    finally:
        ticket.remove()
