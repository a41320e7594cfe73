"""What is known of a framework: its variables, and how it selects CPUs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise

from ompbind.compat.table import FRAMEWORKS
from ompbind.cpuset import count
from ompbind.machine.model import Machine
from ompbind.planning.request import Request
from ompbind.record import Record

Environment = Mapping[str, str]


class FrameworkInput(Record):
    """What a framework reads when it starts: the machine, its variables, the words of its command.

    `for_workers` is true if the plan becomes the variable `bind`, for the workers of one server.
    """

    machine: Machine
    env: Environment
    command: tuple[str, ...] = ()
    for_workers: bool = False


class Selection(Record):
    """How a framework selects CPUs on some architectures (as in `uname -m`; the first letters are enough).

    `request_fields` are values for fields of `Request`. If the variable for reserved CPUs is not set, the
    framework reserves `service_each` CPUs for each rank and `service_total` for all ranks together.
    """

    architectures: tuple[str, ...] = ("",)
    request_fields: Mapping[str, object]
    service_each: int = 0
    service_total: int = 0


class Framework(Record):
    """The variables of one framework; each framework has a module with one such record.

    `title` is its name in messages. The variable `bind` selects the CPUs of ranks; with its value `automatic`
    the framework selects them itself, as in the first of `selections` for the architecture; its value
    `unbound` means no binding ("" if there is no such value). `reserve` is the variable for reserved CPUs,
    `nodes` for NUMA nodes, `slices` for equal parts of the machine instead of NUMA nodes, `memory` for GiB of
    memory per rank, "" if there is none. The option `connector` of its command reserves one more CPU.

    In ranks, `bind` has the value `inside`, with fields such as {cpus}; `effect` is the note on it. The
    variables `others` are removed from ranks, because they contradict a plan. If a runtime that reads KMP
    variables is preloaded, ranks get `kmp_variables`. `divided` is the note if ranks share a domain, and
    `explain` returns notes on other differences. `workers` is the command line of a server with workers, up
    to their number, and `worker_options` are the options of its command whose product is that number; the
    `replica_options` are among them unless the command has the option `joint_replicas`. For these workers,
    `ompbind plan --format` has a format with the name of the framework.
    """

    title: str
    bind: str
    automatic: str
    selections: tuple[Selection, ...]
    unbound: str = ""
    reserve: str = ""
    nodes: str = ""
    slices: str = ""
    memory: str = ""
    connector: str = ""
    others: tuple[str, ...] = ()
    inside: str
    effect: str
    kmp_variables: tuple[tuple[str, str], ...] = ()
    divided: str = ""
    explain: Callable[[FrameworkInput, Request], Iterable[str]] = lambda source, request: ()
    workers: str = ""
    worker_options: tuple[str, ...] = ()
    replica_options: tuple[str, ...] = ()
    joint_replicas: str = ""


def load_framework(name: str) -> Framework:
    """Return the record of a framework, from the module that the table names."""
    framework: Framework = import_module(FRAMEWORKS[name]).FRAMEWORK
    return framework


def find_selection(names: Framework, machine: Machine) -> Selection | None:
    """Return how a framework selects CPUs on a machine, None if it does not support the architecture."""
    found = (selection for selection in names.selections if machine.arch.startswith(selection.architectures))
    return next(found, None)


def make_workers_hint(framework: str, request: Request) -> str:
    """Return what to do if the CPU lists are for the workers of one server; "" without several lists."""
    lists = len(request.mask.parts) if request.mask else 0
    command = load_framework(framework).workers
    if not command or lists < 2:
        return ""
    remedy = _render_remedy(framework, lists)
    what = f"for one server with {lists} workers ({command} {lists}), {remedy}"
    return f"{what}; for {lists} servers, use -n {lists}"


def explain_workers(framework: str, source: FrameworkInput, request: Request) -> Iterator[str]:
    """Yield a warning if the command is a server that starts several workers, and ranks are bound.

    If the plan is for the workers of a server, yield a warning if their number is not the number of ranks.
    """
    workers = _count_workers(load_framework(framework), source.command)
    if workers == 1 or request.is_unbound:
        return
    if not source.for_workers:
        remedy = _render_remedy(framework, workers)
        yield f"each server starts {workers} workers, and a rank has the CPUs of one worker; {remedy}"
    elif request.ranks not in (None, workers):
        lists = count(request.ranks or 0, "CPU list")
        yield f"the server starts {workers} workers, and the plan has {lists}; use -n {workers}"


def _render_remedy(framework: str, workers: int) -> str:
    plan = f"ompbind plan -n {workers} --compat {framework} --format {framework}"
    return f'use eval "$({plan})" instead of ompbind run'


def _count_workers(names: Framework, command: Sequence[str]) -> int:
    """Return the number of workers that a server starts; wrong values of its options do not count."""
    options = names.worker_options
    if names.joint_replicas not in command:
        options += names.replica_options
    workers = 1
    for word, following in pairwise([*command, ""]):
        name, _, value = word.partition("=")
        value = value or following
        if name.replace("_", "-") in options and value.isascii() and value.isdigit():
            workers *= int(value)
    return workers
