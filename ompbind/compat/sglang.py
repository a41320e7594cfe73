"""SGLang."""

from ompbind.compat.framework import Framework, Selection

FRAMEWORK = Framework(
    title="SGLang",
    bind="SGLANG_CPU_OMP_THREADS_BIND",
    automatic="all",
    selections=(Selection(request_fields={"strategy": "nodes", "smt": 1}),),
    inside="{cpus}",
    effect="ranks get their CPUs in SGLANG_CPU_OMP_THREADS_BIND, so that SGLang binds threads to them",
    divided="SGLang stops if there are more ranks than NUMA nodes; ranks divide these evenly",
    workers="python -m sglang.launch_server --tp",
    worker_options=("--tp", "--tp-size", "--tensor-parallel-size", "--pp-size", "--pipeline-parallel-size"),
    replica_options=("--dp", "--dp-size", "--data-parallel-size"),
    joint_replicas="--enable-dp-attention",  # the replicas are then parts of the other workers
)
