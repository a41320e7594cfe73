"""vLLM."""

from ompbind.compat.reading import Framework

FRAMEWORK = Framework(
    title="vLLM",
    bind="VLLM_CPU_OMP_THREADS_BIND",
    automatic="auto",
    unbound="nobind",
    reserve="VLLM_CPU_NUM_OF_RESERVED_CPU",
    nodes="CPU_VISIBLE_MEMORY_NODES",
    others=("VLLM_CPU_SIM_MULTI_NUMA",),
    inside="nobind",
    effect="ranks get VLLM_CPU_OMP_THREADS_BIND=nobind, so that vLLM does not bind threads again",
    workers="vllm serve -tp",
)
