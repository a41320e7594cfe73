"""The file of --plan: its JSON is read here; `planning.saved_plan` checks what it has."""

import json

from ompbind.cpuset import count
from ompbind.errors import OptionError, RequestError
from ompbind.planning.rank_command import RankIdentity
from ompbind.planning.request import Request, SavedPlan
from ompbind.planning.saved_plan import parse_saved_plan

_MOST_BYTES = 64 << 20
"""Bytes of a plan at most; a rank has some 3,000, most of them variables."""


def read_plan_file(path: str) -> SavedPlan:
    """Read a plan that `ompbind plan --format json` wrote; "-" is standard input. Raises OptionError."""
    opened: str | int = path
    if path == "-":
        path, opened = "standard input", 0
    try:
        with open(opened, "rb", closefd=opened != 0) as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise OptionError(f"cannot read {path}: {reason}", hint=_HINT) from error
    if len(data) > _MOST_BYTES:
        raise OptionError(f"{path} is larger than {_MOST_BYTES >> 20} MiB", hint=_HINT)
    if not data.strip():
        raise OptionError(f"{path} is empty", hint=_HINT)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise OptionError(f"{path}, line {line}: the text is not UTF-8", hint=_HINT) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        reason = f"{error.msg[:1].lower()}{error.msg[1:]}"
        raise OptionError(f"{path} is not JSON: {where}: {reason}", hint=_HINT) from None
    except (ValueError, RecursionError):
        raise OptionError(f"{path}: a value is too long or too deep", hint=_HINT) from None
    return parse_saved_plan(value, path)


_HINT = "name a file with the output of 'ompbind plan --format json'"


def fit_plan(request: Request, identity: RankIdentity) -> Request:
    """Return the request of a launcher's rank with a plan for as many ranks as are on this machine.

    A rank that the launcher has bound plans for itself alone. Raises RequestError for another number.
    """
    saved = request.plan
    if saved is None:
        return request
    if len(saved.ranks) != identity.local_size:
        has = f"{saved.name} is a plan for {count(len(saved.ranks), 'rank')}"
        text = f"--plan: {has}, but this machine has {count(identity.local_size, 'rank')} of the job"
        raise RequestError(text, hint=f"make the plan with -n {identity.local_size}")
    return request.replace(plan=saved.choose(identity.local_rank)) if request.outside_ranks else request
