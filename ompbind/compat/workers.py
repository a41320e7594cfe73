"""Servers that start several workers themselves. Workers are not ranks, and need another command."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ompbind.compat.framework import Framework, FrameworkInput, load_framework
from ompbind.cpuset import count
from ompbind.planning.request import Request


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
