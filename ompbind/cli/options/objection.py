"""Why an option has no effect."""

from __future__ import annotations

from ompbind.record import Record

CONTRADICT = "and {other} contradict each other"
"""The text of an objection if neither option is more important than the other."""


class Objection(Record):
    """Why an option has no effect.

    `other` is the name of the option that prevents it. `text` continues a sentence that begins with the
    option; {other} is that other option. With `warning`, the plan is still what was requested.
    """

    other: str
    text: str = "has no effect with {other}"
    hint: str = "use only one of them"
    warning: bool = False
