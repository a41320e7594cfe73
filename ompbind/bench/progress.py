"""How far a session is: the best candidate so far, and how long the session takes at most."""

from statistics import median

from ompbind.bench.records import NextRound, Phase, Session
from ompbind.bench.run_index import make_index
from ompbind.bench.session import estimate_round_s, estimate_run_s


def find_best_so_far(session: Session, candidate: str) -> str:
    """Return the candidate with the best median, among candidates with the same work as this candidate.

    Returns "" without runs. Warm-ups do not count. This claims nothing: see `decision`.
    """
    ranks = {each.name: each.ranks for each in session.candidates}
    values = make_index(session).values
    comparable = [name for name in values if session.rules.same_work or ranks[name] == ranks[candidate]]
    sign = -1 if session.metrics[0].higher else 1
    return min(comparable, key=lambda name: sign * median(values[name]), default="")


def estimate_most_s(session: Session, upcoming: NextRound) -> float | None:
    """Return the seconds that a session takes at most from the start of a round on; None if not known.

    In the confirmation at most two candidates of each number of ranks run.
    """
    round_s = estimate_round_s(session, upcoming)
    if round_s is None:
        return None
    most_s = round_s * (1 + max(0, session.rules.max_rounds - upcoming.round))
    if upcoming.phase is Phase.CONFIRMATION:
        return most_s
    ranks = {each.name: each.ranks for each in session.candidates}
    slowest_s: dict[int, float] = {}
    for name in upcoming.candidates:
        number = 0 if session.rules.same_work else ranks[name]
        slowest_s[number] = max(slowest_s.get(number, 0.0), estimate_run_s(session, name) or 0.0)
    return most_s + session.rules.max_rounds * 2 * sum(slowest_s.values())
