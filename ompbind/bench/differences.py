"""What differs between two sessions, so that their runs cannot be mixed, or are compared with care."""

import shlex
from collections.abc import Iterator

from ompbind.bench.records import Candidate, Metric, Session
from ompbind.record import Record


class Difference(Record):
    """One thing that differs: its name, and its text in each of the sessions, "" for none.

    If both texts are equal, `about` says everything.
    """

    about: str
    before: str = ""
    now: str = ""

    @property
    def text(self) -> str:
        """The difference as a part of a sentence: "allowed CPUs: 0-7, now 0-3"."""
        if self.before == self.now:
            return self.about
        return f"{self.about}: {self.before or 'none'}, now {self.now or 'none'}"


def find_differences(before: Session, now: Session) -> tuple[Difference, ...]:
    """Return how the machine, the command, and what is measured differ; the seed, the
    rounds and the options may differ.

    Candidates are compared by `find_candidate_differences`.
    """
    texts = zip(_render_facts(before), _render_facts(now), strict=True)
    return tuple(
        Difference(about=about, before=first, now=second)
        for (about, first), (_, second) in texts
        if first != second
    )


def _render_facts(session: Session) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of everything that must be equal."""
    hardware, duration_s = session.hardware, session.duration_s
    yield "processor", hardware.processor
    yield "topology", f"digest {hardware.digest[:12]}"
    yield "allowed CPUs", hardware.allowed
    yield "CPU quota", "none" if hardware.quota is None else f"{hardware.quota:g} CPUs"
    yield "command", shlex.join(session.command)
    yield "metrics", ", ".join(map(_render_metric, session.metrics))
    yield "--duration", "" if duration_s is None else f"{duration_s:g} s"
    yield "--ready", session.ready
    yield "--load", shlex.join(session.load)
    yield "same work in all candidates", "yes" if session.rules.same_work else "no"
    yield "--matters", f"{session.rules.matters:.2%}"


def _render_metric(metric: Metric) -> str:
    better = "higher" if metric.higher else "lower"
    pattern = f" {metric.pattern!r}" if metric.pattern else ""
    return f"{metric.name}{pattern} ({metric.combine.value}, {better} is better)"


def find_candidate_differences(before: Session, now: Session) -> tuple[Difference, ...]:
    """Return candidates that only one session has, and candidates with another plan or other variables.

    The digest of a plan contains the command, so digests are compared only if the commands are equal.
    """
    old, new = _index_candidates(before), _index_candidates(now)
    names = Difference(about="candidates", before="; ".join(old), now="; ".join(new))
    changed = [name for name in old if name in new and old[name].digest != new[name].digest]
    plans = Difference(about=f"other plans or variables of {'; '.join(changed)}")
    has_plans = bool(changed) and before.command == now.command
    return (*((names,) if old.keys() != new.keys() else ()), *((plans,) if has_plans else ()))


def _index_candidates(session: Session) -> dict[str, Candidate]:
    return {candidate.name: candidate for candidate in session.candidates}
