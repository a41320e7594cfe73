"""The plan for the workers of a vLLM server, made as `ompbind exec` makes a plan from variables and files.

With data parallelism, several processes of vLLM start workers. Each of them makes the same plan, for all
workers on the machine. In a rank of ompbind, the workers divide the CPUs of this rank, which is registered.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ompbind.cli.main import load_verb
from ompbind.cli.register import make_local_plan, read_planning_machine, register_run
from ompbind.cli.request import make_request, make_run_spec
from ompbind.cli.settings import PlanningSettings, make_planning_settings
from ompbind.cli.verbs import PREFIX
from ompbind.compat.frameworks import FRAMEWORKS, count_workers
from ompbind.cpuset import CpuSet, count, named
from ompbind.errors import OmpbindError
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import (
    RunSpec,
    make_identity_variables,
    make_local_identities,
    make_spec_before_plan,
    make_variables,
)
from ompbind.planning.rank_variables import OMPBIND_CPUS, OMPBIND_SERVICE_CPUS, Variables, find_rank
from ompbind.record import Record
from ompbind.registry.claims import Claim
from ompbind.registry.registry import make_run_identity

VLLM = FRAMEWORKS["vllm"]

_LOCAL = VLLM.replace(worker_options=("-dpl", "--data-parallel-size-local"), replica_options=())
"""The option for the number of replicas on this machine, if others are on other machines."""


class Server(Record):
    """The workers that a process of vLLM starts: of `all_workers` on this machine, `workers` from `first` on.

    `connector` says whether the server has a KV connector.
    """

    workers: int
    first: int = 0
    all_workers: int
    connector: bool = False


class PlacedServer(Record):
    """The plan for all workers on this machine, their variables, and the claim that registers the plan.

    `messages` are warnings for the user.
    """

    plan: Plan
    variables: tuple[Variables, ...]
    claim: Claim | None
    messages: tuple[str, ...]


def read_server(config: Any, command: Sequence[str]) -> Server:
    """Return the workers that a process starts; `config` is vLLM's configuration, of type VllmConfig."""
    parallel = config.parallel_config
    workers, replica = parallel.local_world_size, parallel.data_parallel_rank_local
    replicas = parallel.data_parallel_size_local
    if replica is not None and parallel.data_parallel_size == 1:  # replicas on their own
        replicas = count_workers(_LOCAL, command)
        if replicas == 1:  # all are on this machine, by default with an API server each
            others = count_workers(VLLM, command) // workers
            replicas = max(parallel._api_process_count, others, replica + 1)  # noqa: SLF001
    return Server(
        workers=workers,
        first=workers * (replica or 0),
        all_workers=workers * replicas,
        connector=config.kv_transfer_config is not None,
    )


def place_server(server: Server, command: Sequence[str]) -> PlacedServer:
    """Plan and register the workers of a server; `command` is the command line of the server.

    Raises the errors of `ompbind exec`, which name the variable or the file that a wrong value comes from.
    """
    options = [f"--ranks={server.all_workers}", "--compat=vllm"]
    own = _find_own_cpus()
    if own is not None:
        options += ["--no-config", f"--mask={own.mask}", f"--service-total={own.service_cpus}"]
    if server.connector:
        command = (*command, VLLM.connector)  # it may be in a configuration file of vLLM
    context = load_verb("exec").make_context("exec", [*options, "--", *command])
    settings = make_planning_settings(context)
    try:
        plan, spec, claim = _make_plan(server, settings, is_rank=own is not None)
    except OmpbindError as error:
        settings.sources.explain(error)
        raise
    about_options = (text.removeprefix("warning: ") for text in context.messages)  # the log says so
    return PlacedServer(
        plan=plan,
        variables=tuple(_make_variables(plan, spec)),
        claim=claim,
        messages=(*about_options, *(note.text for note in plan.notes if note.warning)),
    )


class OwnCpus(Record):
    """The CPUs that a rank of ompbind has for its workers: their mask, and how many are service CPUs."""

    mask: str
    service_cpus: int = 0


def _find_own_cpus() -> OwnCpus | None:
    """Return the CPUs of the rank that this process belongs to; None if it belongs to no rank."""
    env, allowed = os.environ, CpuSet(os.sched_getaffinity(0))
    try:
        compute, service = (
            CpuSet.from_list(env.get(name, "")) for name in (OMPBIND_CPUS, OMPBIND_SERVICE_CPUS)
        )
    except ValueError:
        return None
    if find_rank(env) is None or not allowed <= compute | service:
        return None
    if env.get("OMP_PROC_BIND") == "false" and env.get("OMPBIND_BIND") != "none":
        return OwnCpus(mask="none")  # ranks of --mask none share all CPUs
    return OwnCpus(mask=str(allowed), service_cpus=len(service & allowed))


def _make_plan(
    server: Server, settings: PlanningSettings, *, is_rank: bool
) -> tuple[Plan, RunSpec, Claim | None]:
    """Return the plan, what all workers have in common, and the claim, which replicas of a server share."""
    machine = read_planning_machine(settings)
    parent = multiprocessing.parent_process()
    spec = make_run_spec(settings, f"vllm-{parent.pid if parent else os.getpid()}")
    request = make_request(settings, make_spec_before_plan(spec), machine, for_workers=True)
    if is_rank:
        request = request.replace(service_optional=True)  # a rank may have few CPUs for its workers
        return make_local_plan(machine, request, ()), spec, None
    identity = make_run_identity(spec.run_id)
    if server.workers < server.all_workers:
        identity = identity.replace(placement_index=server.first, rank=server.first)
    found = register_run(machine, request, identity, settings)
    return found.plan, spec, found.claim


def _make_variables(plan: Plan, spec: RunSpec) -> Iterator[Variables]:
    """Yield the variables of each worker to set (value) or remove (None).

    RANK, LOCAL_RANK and the like are left out: vLLM numbers its workers itself.
    """
    for identity in make_local_identities(plan):
        numbers = make_identity_variables(plan.placements[identity.placement_index], identity, spec)
        others = [name for name in numbers if not name.startswith(PREFIX)]
        variables = make_variables(plan, identity, spec)
        yield {name: value for name, value in variables.items() if name not in others}


def render_server(server: Server, plan: Plan) -> str:
    """Return one line with the CPUs of the workers of a server."""
    workers = []
    for placement in plan.placements[server.first : server.first + server.workers]:
        service = f" + service {named('CPU', placement.service_cpus)}" if placement.service_cpus else ""
        workers.append(f"worker {placement.rank}: {named('CPU', placement.compute)}{service}")
    return f"{'; '.join(workers)} ({count(server.all_workers, 'worker')}, {plan.request.effective_strategy})"
