"""SGLang."""

from ompbind.compat.framework import Framework, Selection

FRAMEWORK = Framework(
    title="SGLang",
    bind="SGLANG_CPU_OMP_THREADS_BIND",
    automatic="all",
    selections=(Selection(request_fields={"strategy": "nodes"}),),
    inside="{cpus}",
    effect="ranks get their CPUs in SGLANG_CPU_OMP_THREADS_BIND, so that SGLang binds threads to them",
)
