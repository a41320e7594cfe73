"""Read the live runs of this machine: the other runs, and the rank that this process belongs to."""

from collections.abc import Iterable, Mapping

from ompbind.doctor.facts import EnclosingRank, HostFacts
from ompbind.planning.other_runs import LiveRun, find_other_runs
from ompbind.planning.rank_variables import OMPBIND_RUN_ID, find_rank
from ompbind.registry.registry import find_claims_directory, make_run_identity, read_live_runs
from ompbind.text import clean_name


def read_runs(env: Mapping[str, str]) -> HostFacts:
    """Return facts with the live runs; their `runs` are None if claims cannot be read."""
    identity = make_run_identity("")
    try:
        live = read_live_runs(find_claims_directory(env))
    except OSError:
        return HostFacts(env=env)
    own = (run for run in live if run.uid == identity.uid)
    return HostFacts(env=env, runs=find_other_runs(live, identity), enclosing=find_enclosing(own, env))


def find_enclosing(runs: Iterable[LiveRun], env: Mapping[str, str]) -> EnclosingRank | None:
    """Return the rank that variables name, if it belongs to one of these runs.

    Variables alone are no proof: `ompbind plan --format sh` prints them, and a run may have exited.
    """
    name, rank = clean_name(env.get(OMPBIND_RUN_ID, "")), find_rank(env)
    ranks = (found for run in runs if run.run_id == name for found in run.ranks)
    return next((EnclosingRank(rank=number, cpus=cpus) for number, cpus in ranks if number == rank), None)
