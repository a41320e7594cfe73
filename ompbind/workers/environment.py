"""The environment of one rank, for workers of a Python program, and the variables of a framework."""

import os
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

from ompbind.commands.environment import (
    RunSpec,
    identify_group,
    make_identity_variables,
    make_local_identities,
    make_variables,
)
from ompbind.commands.rank_variables import Variables, apply_variables
from ompbind.compat.frameworks import FRAMEWORKS, FrameworkInput
from ompbind.compat.reading import fill_request, find_hidden_variables, make_rank_variables
from ompbind.cpuset import named
from ompbind.errors import RequestError
from ompbind.machine.model import Machine
from ompbind.machine.read import read_machine
from ompbind.openmp.runtimes import PLACE_VARIABLES
from ompbind.planning.plan import Plan
from ompbind.planning.request import Request

Selection: TypeAlias = Literal["all", "openmp"] | Collection[str]
"""Which variables to set: all that a rank has; all but the number of the rank and similar; or these names."""

_SELECTION_HINT = "use 'all', 'openmp', or a tuple of names"


def make_environment(
    plan: Plan,
    rank: int,
    base: Mapping[str, str] | None = None,
    *,
    run_id: str = "",
    variables: Selection = "all",
    extra: Variables | None = None,
) -> dict[str, str]:
    """Return the whole environment of one rank of a plan, as `ompbind run` gives it to a rank.

    `base` is the environment to start from, by default os.environ as it is now. `run_id` is by default
    "python-" and the pid of this process. `variables` and `extra` select variables as for `placed`. Raises
    RequestError if the plan has no such rank, or for names that ompbind does not set.

    >>> from ompbind import Request, make_plan, read_machine
    >>> plan = make_plan(read_machine("synthetic:pack:2 core:4 pu:2"), Request(ranks=2))
    >>> env = make_environment(plan, 1, {"PATH": "/bin", "OMP_NUM_THREADS": "64"})
    >>> env["PATH"], env["OMP_NUM_THREADS"], env["OMP_PLACES"], env["RANK"]
    ('/bin', '4', '{8,10,12,14}', '1')
    """
    env = dict(os.environ if base is None else base)
    apply_variables(make_changes(plan, rank, env, run_id=run_id, variables=variables, extra=extra), env)
    return env


def make_changes(
    plan: Plan,
    rank: int,
    base: Mapping[str, str],
    *,
    run_id: str,
    variables: Selection,
    extra: Variables | None,
) -> Variables:
    """Return the variables of a rank to set (value) or remove (None) in `base`; raises RequestError.

    `run_id`, `variables` and `extra` are as for `make_environment`. If variables of a framework were read
    (--compat), the variables by which it would bind threads again are removed.
    """
    ranks = len(plan.placements)
    if type(rank) is not int or not 0 <= rank < ranks:  # isinstance would accept True
        hint = f"the plan has {named('rank', range(ranks))}, counted from 0"
        raise RequestError(f"there is no rank {rank!r}", hint=hint)
    first, part = plan.find_part(rank)
    spec = RunSpec(argv=(), run_id=run_id or f"python-{os.getpid()}", base=base)
    spec = spec.replace(group=identify_group(plan, first, part))
    identity = make_local_identities(part)[rank - first]
    if part.request.compat:
        framework = part.request.compat.framework
        spec = spec.replace(
            removed_variables=find_hidden_variables(framework), added_variables=make_rank_variables(framework)
        )
    everything = make_variables(part, identity, spec)
    of_identity = make_identity_variables(plan.placements[rank], identity, spec)
    names = _select_names(variables, everything, of_identity)
    for name, value in (extra or {}).items():
        if value is not None and not isinstance(value, str):  # such as a port as a number
            raise RequestError(
                f"extra: the value of {name!r} is {value!r}, which is not a string",
                hint=f"write extra={{{name!r}: {str(value)!r}}}; None removes a variable",
            )
    selected = {name: everything[name] for name in names}
    return {**selected, **dict(part.request.user_variables), **(extra or {})}


def _select_names(selection: Selection, everything: Variables, of_identity: Variables) -> Collection[str]:
    """Return the names of the selected variables; raises RequestError."""
    if selection == "all":
        return everything
    if selection == "openmp":
        return [name for name in everything if name not in of_identity]
    if isinstance(selection, str):
        raise RequestError(f"variables={selection!r} is unknown", hint=_SELECTION_HINT)
    unknown = sorted(set(selection) - everything.keys())
    if unknown:
        hint = f"give its value: extra={{{unknown[0]!r}: '…'}}"
        raise RequestError(f"variables: ompbind does not set {unknown[0]}", hint=hint)
    missing = set(PLACE_VARIABLES) - set(selection)
    if len(missing) == 1:
        hint = f"name {' and '.join(PLACE_VARIABLES)}: runtimes differ on one without the other"
        raise RequestError(f"variables: {missing.pop()} is missing", hint=hint)
    return selection


def read_compat(
    framework: str,
    env: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
    request: Request | None = None,
) -> dict[str, Any]:
    """Return the fields of a request that the variables of a framework change, as `run --compat` does.

    `framework` is "vllm" or "sglang". `env` is by default os.environ, `machine` is by default this machine.
    A field of `request` that has not its default overrides the variable for the same thing. Raises
    RequestError for an unknown framework, MaskError for a value that is not valid.

    >>> from ompbind import Request, make_plan, read_machine
    >>> machine = read_machine("synthetic:pack:2 core:4 pu:2")
    >>> changes = read_compat("vllm", {"VLLM_CPU_OMP_THREADS_BIND": "0-3|8-11"}, machine=machine)
    >>> print(make_plan(machine, Request(ranks=2, **changes)))
    0: 0-3 | 1: 8-11
    """
    if framework not in FRAMEWORKS:
        raise RequestError(f"unknown framework {framework!r}", hint=f"use {', '.join(FRAMEWORKS)}")
    before = request or Request()
    given = [name for name, default in Request.defaults.items() if getattr(before, name) != default]
    source = FrameworkInput(machine=machine or read_machine(), env=os.environ if env is None else env)
    after = fill_request(before, framework, source, given)
    return {name: value for name, value in after.as_dict().items() if value != getattr(before, name)}
