"""A plan for vLLM: the variable that names the CPUs of all its ranks."""

import shlex

from ompbind.errors import RequestError
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Plan
from ompbind.report.export.ranks import check_memory


def render_vllm(plan: Plan) -> str:
    """Render the variable with the CPUs of all ranks of vLLM, as a shell command.

    vLLM starts one OpenMP thread on each of these CPUs, so they are without service CPUs.
    Its value is "nobind" with --mask none and on machines that cannot bind. Raises RequestError for --bind
    none, because vLLM always binds OpenMP threads to CPUs that it is given, and for --memory.
    """
    check_memory(plan, "vLLM")
    lists = "|".join(str(placement.compute) for placement in plan.placements)
    if not plan.machine.bindable or plan.request.is_unbound:
        lists = "nobind"
    elif plan.request.bind is Bind.NONE:
        raise RequestError(
            "vLLM binds OpenMP threads to the CPUs that it is given; --bind none excludes that",
            hint="leave --bind out, or use --mask none: vLLM then neither binds nor confines",
        )
    return f"export VLLM_CPU_OMP_THREADS_BIND={shlex.quote(lists)}"
