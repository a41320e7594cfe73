"""A session without secret values, for results files and exports."""

from ompbind.bench.records import Candidate, Session
from ompbind.planning.secret_values import mask_word


def mask_session(session: Session) -> Session:
    """Return a session with "***" for the values of secret variables in all words, as in reports of `run`."""
    return session.replace(
        command=tuple(map(mask_word, session.command)),
        options=tuple(map(mask_word, session.options)),
        load=tuple(map(mask_word, session.load)),
        candidates=tuple(map(_mask_candidate, session.candidates)),
    )


def _mask_candidate(candidate: Candidate) -> Candidate:
    return candidate.replace(
        choices=tuple((key, mask_word(text)) for key, text in candidate.choices),
        options=tuple(map(mask_word, candidate.options)),
    )
