"""A plan for vLLM: the variable that names the CPUs of all its ranks."""

import shlex

from ompbind.errors import RequestError
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Plan
from ompbind.report.export.ranks import check_memory


def render_vllm(plan: Plan) -> str:
    """Render the variable that tells vLLM the CPUs of all its ranks, as a shell command.

    It is "nobind" where ranks may use everything, or the machine cannot bind. Raises RequestError for
    --bind none: vLLM binds OpenMP wherever it is told CPUs; and for --memory.
    """
    check_memory(plan, "vLLM")
    lists = "|".join(str(one.cpuset) for one in plan.placements)
    if not plan.machine.bindable or plan.request.is_unbound:
        lists = "nobind"
    elif plan.request.bind is Bind.NONE:
        raise RequestError(
            "vLLM binds OpenMP to the CPUs that it is told, which --bind none rules out",
            hint="leave --bind none away, or use --mask none: then vLLM neither binds nor confines",
        )
    return f"export VLLM_CPU_OMP_THREADS_BIND={shlex.quote(lists)}"
