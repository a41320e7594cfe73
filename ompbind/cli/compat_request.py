"""The option --compat: a request from the variables of a framework."""

from __future__ import annotations

import os

from ompbind.cli.options.values import Values
from ompbind.compat.framework import FrameworkInput
from ompbind.compat.reading import fill_request
from ompbind.machine.model import Machine
from ompbind.planning.request import Request


def fill_from_framework(request: Request, machine: Machine, values: Values) -> Request:
    """Fill a request from the variables of the framework of --compat, where no option is given in any way."""
    given = [name for name in values if values.is_given(name)]
    framework = values["compat"]
    for_workers = values.get("format") == framework
    source = FrameworkInput(machine=machine, env=os.environ, command=values.words, for_workers=for_workers)
    return fill_request(request, framework, source, given)
