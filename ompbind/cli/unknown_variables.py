"""Variables that begin as the variables of ompbind, but that ompbind does not read: probably misspelled."""

from __future__ import annotations

from ompbind.cli.options.option import PREFIX
from ompbind.cli.options.table import find_options, find_variables
from ompbind.cli.verbs import VERBS
from ompbind.planning.rank_variables import RANK_VARIABLES
from ompbind.registry.claims import DIRECTORY_VARIABLE

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def warn_of_variables(env: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each variable that ompbind does not know."""
    for name, similar in find_unknown_variables(env):
        yield f"{name} is not a variable of ompbind" + (f"; did you mean {similar}?" if similar else "")


def find_unknown_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that ompbind does not know, and the most similar one that it reads, "" for none."""
    names = [name for name in sorted(env) if name.startswith(PREFIX) and env[name]]
    if not names:
        return
    usual = {*find_variables(), *RANK_VARIABLES, DIRECTORY_VARIABLE}
    unusual = [name for name in names if name not in usual]
    if not unusual:
        return
    from ompbind.text import suggest_name  # late: most environments have no such variable

    known = {option.variable for verb in VERBS for option in find_options(verb)} - {""}
    endings = [name.removeprefix(PREFIX) for name in sorted({*known, DIRECTORY_VARIABLE})]
    for name in unusual:
        if name not in known:
            similar = suggest_name(name.removeprefix(PREFIX), endings)
            yield name, similar and PREFIX + similar
