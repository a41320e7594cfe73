"""SGLang."""

from ompbind.compat.reading import Framework

FRAMEWORK = Framework(
    title="SGLang",
    bind="SGLANG_CPU_OMP_THREADS_BIND",
    automatic="all",
    inside="{cpus}",
    effect="ranks get their CPUs in SGLANG_CPU_OMP_THREADS_BIND, so that SGLang binds threads to them",
    workers="python -m sglang.launch_server --tp",
)
