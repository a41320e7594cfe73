"""Read the CPU variables of a framework for a Python program."""

import os
from collections.abc import Mapping
from typing import Any

from ompbind.compat.frameworks import FRAMEWORKS, FrameworkInput
from ompbind.compat.reading import fill_request
from ompbind.errors import RequestError
from ompbind.machine.model import Machine
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.request import Request


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
