"""Names of candidates in sessions with several numbers of ranks: "2 ranks, unbound", "2 ranks, smt=2"."""

from ompbind.cpuset import count


def add_ranks(name: str, ranks: int) -> str:
    """Return a name with the number of ranks before it."""
    return f"{_make_prefix(ranks)}{name}"


def drop_ranks(name: str, ranks: int | None) -> str:
    """Return a name without the number of ranks, for a text that is about this number only."""
    return name if ranks is None else name.removeprefix(_make_prefix(ranks))


def _make_prefix(ranks: int) -> str:
    return f"{count(ranks, 'rank')}, "
