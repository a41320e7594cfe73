"""How the help describes a verb."""

from __future__ import annotations

from ompbind.record import Record


class Description(Record):
    """The texts about one verb.

    - `help`, `summary`: its description, and the line about it in the list of verbs
    - `examples`: pairs of a description and a command line; `details` only the complete help shows
    """

    help: str
    summary: str
    examples: tuple[tuple[str, str], ...]
    details: str = ""
