"""A plan for vLLM: the variable that names the CPUs of all its workers."""

from ompbind.errors import RequestError
from ompbind.planning.plan import Plan
from ompbind.report.export.ranks import check_memory, check_thread_binding, render_compute_lists
from ompbind.report.export.shell import render_export

VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"


def render_vllm(plan: Plan) -> str:
    """Render the variable with the CPUs of all workers of vLLM, as a shell command.

    vLLM starts one OpenMP thread on each of these CPUs, so they are without service CPUs.
    Its value is "nobind" with --mask none and on machines that cannot bind. Raises RequestError for --bind
    none, because vLLM always binds OpenMP threads to CPUs that it is given, and for --memory.
    """
    check_memory(plan, "vLLM")
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
    check_memory(plan, "SGLang")
    if plan.request.is_unbound:
        raise RequestError(
            "SGLang always binds OpenMP threads; --mask none excludes that", hint="leave --mask none out"
        )
    check_thread_binding(plan, "SGLang", hint="leave --bind out")
    return render_export("SGLANG_CPU_OMP_THREADS_BIND", render_compute_lists(plan))
