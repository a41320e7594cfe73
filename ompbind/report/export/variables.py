"""A plan as variables: of one rank for shells and systemd, of all workers for vLLM and SGLang."""

import re
import shlex
from collections.abc import Sequence

from ompbind.errors import RequestError
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import Variables
from ompbind.planning.request import MemoryMode
from ompbind.report.export.ranks import (
    check_memory,
    check_thread_binding,
    confined_ranks,
    memory_nodes,
    render_compute_lists,
)


def render_sh(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variables of one rank as commands for `eval` in any POSIX shell."""
    (environment,) = variables
    return "\n".join(
        f"unset {name}" if value is None else render_export(name, value)
        for name, value in sorted(environment.items())
    )


def render_env(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variables of one rank as NAME=VALUE lines; variables to unset are left out.

    Raises RequestError for a value of several lines, which the format cannot represent.
    """
    (environment,) = variables
    for name, value in environment.items():
        if value is not None and "\n" in value:
            raise RequestError(
                f"the value of {name} has several lines, but NAME=VALUE lines have only one",
                hint="use --format sh or --format json",
            )
    return "\n".join(f"{name}={value}" for name, value in sorted(environment.items()) if value is not None)


def render_export(name: str, value: str) -> str:
    """Render a variable as a shell command."""
    return f"export {name}={shlex.quote(value)}"


def render_systemd(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a drop-in for the unit of one rank: its CPUs, its memory, and its variables.

    It replaces the CPUs and NUMA nodes of the unit itself. Raises RequestError for values that systemd
    refuses, and for --memory preferred with several nodes.
    """
    (placement,), (environment,) = confined_ranks(plan), variables
    lines = ["[Service]", "CPUAffinity=", f"CPUAffinity={placement.cpuset}"]
    nodes, mode = memory_nodes(plan, placement), plan.request.memory
    if mode is MemoryMode.PREFERRED and len(nodes) > 1:
        raise RequestError(
            f"systemd can prefer a single NUMA node only, rank {placement.rank} has {nodes}",
            hint="use --memory bind or interleave",
        )
    if mode is MemoryMode.WEIGHTED:
        raise RequestError("systemd has no weighted interleave", hint="use --memory interleave")
    if nodes:
        policy = "bind" if mode is MemoryMode.LOCAL else str(mode)
        lines += [f"NUMAPolicy={policy}", "NUMAMask=", f"NUMAMask={nodes}"]
    lines += [_assignment(name, value) for name, value in sorted(environment.items()) if value is not None]
    lines += [f"UnsetEnvironment={name}" for name, value in sorted(environment.items()) if value is None]
    return "\n".join(lines)


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"})
"""Characters with another meaning inside the quotes of a unit file; % begins a specifier there."""


def _assignment(name: str, value: str) -> str:
    """Return the line of one variable, see systemd.exec(5); refuses values that systemd would ignore."""
    illegal = re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", value)
    if illegal:
        raise RequestError(
            f"the value of {name} has the character {illegal[0]!r}, which systemd refuses",
            hint="use UTF-8 without control characters other than tab and newline",
        )
    return f'Environment="{name}={value.translate(_ESCAPES)}"'


VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"


def render_vllm(plan: Plan) -> str:
    """Render the variable with the CPUs of all workers of vLLM, as a shell command.

    vLLM starts one OpenMP thread on each of these CPUs, so they are without service CPUs.
    Its value is "nobind" with --mask none and on machines that cannot bind. Raises RequestError for --bind
    none, because vLLM always binds OpenMP threads to CPUs that it is given, and for --memory.
    """
    check_memory(plan, "vLLM", starts_workers=True)
    if not plan.machine.bindable or plan.request.is_unbound:
        return render_export(VARIABLE, "nobind")
    check_thread_binding(
        plan, "vLLM", hint="leave --bind out, or use --mask none: vLLM then neither binds nor confines"
    )
    return render_export(VARIABLE, render_compute_lists(plan))


def render_sglang(plan: Plan) -> str:
    """Render the variable with the CPUs of all workers of SGLang, as a shell command.

    SGLang starts one OpenMP thread on each of these CPUs, so they are without service CPUs. Raises
    RequestError for --mask none and --bind none, because SGLang always binds OpenMP threads, and for
    --memory.
    """
    check_memory(plan, "SGLang", starts_workers=True)
    if plan.request.is_unbound:
        raise RequestError(
            "SGLang always binds OpenMP threads; --mask none excludes that", hint="leave --mask none out"
        )
    check_thread_binding(plan, "SGLang", hint="leave --bind out")
    return render_export("SGLANG_CPU_OMP_THREADS_BIND", render_compute_lists(plan))
