"""The request for a plan, and what all ranks have in common, made from the values of options."""

from __future__ import annotations

import os

from ompbind.cli.options.table import find_variables
from ompbind.cli.options.values import Values
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.affinity import WorkingDirectory
from ompbind.machine.model import Machine
from ompbind.openmp.binding import DISTRIBUTING_WORDS
from ompbind.openmp.variables import OVERRIDING_VARIABLES
from ompbind.planning.rank_command import RunSpec
from ompbind.planning.request import Request, Sharing
from ompbind.procfs.reader import read_environ
from ompbind.programs.command_analysis import read_wrapped_workload
from ompbind.programs.workload import Workload

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def make_request(values: Values, spec: RunSpec) -> Request:
    """Make the request from the values of options, without --compat: each field from the option of its name.

    `spec` is what the first rank, or under a launcher this rank, runs as far as is known before the plan.
    Raises RequestError for options that contradict each other.
    """
    return Request(
        **{name: values[name] for name in Request.fields if name in values and name != "compat"},
        sharing=_sharing(values),
        workload=_make_workload(values, spec),
        user_variables=_user_variables(values, spec),
        configuration=values.configuration,
    )


def complete_request(request: Request, machine: Machine, values: Values) -> Request:
    """Complete a request, once the machine is read: visible devices, and what --compat reads."""
    if values.get("plan"):
        from ompbind.cli.plan_file import use_ranks_of_plan  # late: most plans are made anew

        use_ranks_of_plan(values)
    if machine.devices:
        from ompbind.planning.devices.visible import find_visible_devices  # late: most runs use no devices

        request = request.replace(visible=find_visible_devices(machine.devices, os.environ))
    if not values["compat"]:
        return request
    from ompbind.cli.compat_request import fill_from_framework  # late: only --compat needs it

    return fill_from_framework(request, machine, values)


def _user_variables(values: Values, spec: RunSpec) -> tuple[tuple[str, str], ...]:
    """Return the variables of binding and devices that --env sets and --keep-env keeps: (name, value) pairs.

    An OMP_PROC_BIND of --env that only distributes threads over the places of the plan is left out.
    """
    assigned = dict(spec.added_variables)
    if assigned.get("OMP_PROC_BIND", "").lower() in DISTRIBUTING_WORDS:
        del assigned["OMP_PROC_BIND"]
    own = {**(os.environ if values["keep_env"] else {}), **assigned}
    names = OVERRIDING_VARIABLES
    if values["devices"]:
        from ompbind.planning.devices.visible import VENDOR_VARIABLES  # late: most runs use no devices

        names = (*names, *VENDOR_VARIABLES)
    return tuple((name, own[name]) for name in names if name in own)


def _make_workload(values: Values, spec: RunSpec) -> Workload | None:
    """Read what a rank would run and preload; None without a command and without preloads."""
    preloads, expected = values["preload"], values["expect"]
    env = {**os.environ, **dict(spec.added_variables)}
    if not (spec.argv or preloads or expected or env.get("LD_PRELOAD")):
        return None
    workload = _read_workload(spec, env)
    if not (preloads or expected):
        return workload
    from ompbind.programs.preload import (  # late: most commands preload nothing
        find_missing_preloads,
        find_preloads,
    )
    from ompbind.programs.preloaded import preload_entries

    preload = find_preloads(preloads, workload, env) if preloads else ()
    if preload:
        workload = _read_workload(spec, {**env, "LD_PRELOAD": ":".join(preload)})
    missing = find_missing_preloads(expected, workload, preload or preload_entries(env))
    return workload.replace(preload=preload, preload_warnings=(*workload.preload_warnings, *missing))


def _read_workload(spec: RunSpec, env: Mapping[str, str]) -> Workload:
    """Read what a rank would run, from its directory; if that is missing, the start reports it."""
    try:
        with WorkingDirectory(spec.chdir):
            return read_wrapped_workload(spec.wrap, spec.argv, env)
    except LaunchError:
        return read_wrapped_workload(spec.wrap, spec.argv, env)


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
        fill_argv=values.get("fill", False),
        wrap=values.get("wrap") or (),
        wrap_ranks=values.get("wrap_ranks"),
        chdir=values.get("chdir") or "",
        added_variables=(*added, *_read_env_files(values["env_file"]), *values["env"]),
        keep_env=values["keep_env"],
        freeze_directory=_find_shims() if values["freeze_threads"] else "",
    )


def _read_env_files(paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
    if not paths:
        return ()
    from ompbind.cli.env_files import read_env_files  # late: few runs have such files

    return tuple(read_env_files(paths))


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
