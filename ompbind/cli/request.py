"""The request for a plan, and what all ranks have in common, made from the values of options."""

import os

from ompbind.cli.options.table import find_variables
from ompbind.cli.options.values import Values
from ompbind.errors import RequestError
from ompbind.openmp.binding import DISTRIBUTING_WORDS
from ompbind.openmp.variables import OVERRIDING_VARIABLES
from ompbind.planning.rank_command import RunSpec
from ompbind.planning.request import Request, Sharing
from ompbind.procfs.reader import read_environ
from ompbind.programs.command_analysis import preload_entries, read_workload
from ompbind.programs.workload import Workload


def make_request(values: Values) -> Request:
    """Make the request from the values of options: each field from the option of its name.

    Raises RequestError for options that contradict each other.
    """
    request = Request(
        **{name: values[name] for name in Request.fields if name in values},
        sharing=_sharing(values),
        workload=_make_workload(values),
        user_variables=_user_variables(values),
    )
    return _with_compat(request, values) if values["compat"] else request


def _user_variables(values: Values) -> tuple[tuple[str, str], ...]:
    """Return the binding variables that --env sets and that --keep-env keeps: (name, value) pairs.

    An OMP_PROC_BIND of --env that only distributes threads over the places of the plan is left out.
    """
    assigned = dict(values["env"])
    if assigned.get("OMP_PROC_BIND", "").lower() in DISTRIBUTING_WORDS:
        del assigned["OMP_PROC_BIND"]
    own = {**(os.environ if values["keep_env"] else {}), **assigned}
    return tuple((name, own[name]) for name in OVERRIDING_VARIABLES if name in own)


def _make_workload(values: Values) -> Workload | None:
    """Read what a command would run and preload; None without a command and without preloads."""
    argv, preloads, expected = values.words, values["preload"], values["expect"]
    env = {**os.environ, **dict(values["env"])}
    if not (argv or preloads or expected or env.get("LD_PRELOAD")):
        return None
    workload = read_workload(argv, env)
    if not (preloads or expected):
        return workload
    from ompbind.programs.preload import (  # late: most commands preload nothing
        find_missing_preloads,
        find_preloads,
    )

    preload = find_preloads(preloads, workload, env) if preloads else ()
    if preload:
        workload = read_workload(argv, {**env, "LD_PRELOAD": ":".join(preload)})
    missing = find_missing_preloads(expected, workload, preload or preload_entries(env))
    return workload.replace(preload=preload, preload_warnings=(*workload.preload_warnings, *missing))


def _with_compat(request: Request, values: Values) -> Request:
    """Fill a request from the variables of a framework, where no option is given in any way."""
    from ompbind.compat.reading import fill_request  # late: only --compat needs it

    given = [name for name in values if values.is_given(name)]
    return fill_request(request, values["compat"], os.environ, given)


def _sharing(values: Values) -> Sharing:
    """Return which of --share, --avoid and --exclusive is given; their rules allow one of them."""
    return next((sharing for sharing in Sharing if values.get(sharing)), Sharing.WARN)


def make_run_spec(values: Values, run_id: str) -> RunSpec:
    """Make what all ranks have in common; --run-id overrides `run_id`."""
    hidden, added = _compat_variables(values["compat"])
    return RunSpec(
        argv=values.words,
        run_id=values["run_id"] or run_id,
        base=_caller_environment(),
        removed_variables=find_variables() + hidden,
        added_variables=added + values["env"],
        keep_env=values["keep_env"],
        freeze_directory=_find_shims() if values["freeze_threads"] else "",
    )


def _find_shims() -> str:
    """Return the directory whose sitecustomize freezes thread counts; nothing is imported from it."""
    directory = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "shims")
    if ":" in directory:
        hint = "install ompbind in a directory without a colon, or omit --freeze-threads"
        raise RequestError(f"PYTHONPATH cannot contain {directory}", hint=hint)
    return directory


def _compat_variables(family: str | None) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the variables of a framework that ranks do not inherit, and (name, value) of those they get."""
    if family is None:
        return (), ()
    from ompbind.compat.reading import (  # late: only --compat needs it
        find_hidden_variables,
        make_rank_variables,
    )

    return find_hidden_variables(family), make_rank_variables(family)


def _caller_environment() -> dict[str, str]:
    """Return the environment that ompbind was started with.

    In the C locale Python sets LC_CTYPE for itself; the kernel still has the environment from before.
    """
    env = dict(os.environ)
    if "LC_CTYPE" in env:
        given = read_environ("self")
        if given is None or (given and "LC_CTYPE" not in given):  # {}: it may not be read
            del env["LC_CTYPE"]
    return env
