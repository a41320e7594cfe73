"""Let vLLM start its workers by a plan of ompbind, made as `ompbind exec` makes one from variables and files.

vLLM starts workers in its process EngineCore:

    manager = OMPProcessManager(config)
    for each worker: with manager.configure_omp_envs(rank=..., local_rank=...): start it

`WorkerManager` replaces this class. Only the worker is bound: the other processes keep their CPUs.

With data parallelism, several processes of vLLM start workers. Each of them makes the same plan, for all
workers on the machine. In a rank of ompbind, the workers divide the CPUs of this rank, which is registered.
"""

import inspect
import logging
import multiprocessing
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ompbind.cli import PREFIX
from ompbind.cli.main import load_verb
from ompbind.cli.option import FALSE_WORDS, TRUE_WORDS
from ompbind.cli.register import make_local_plan, read_planning_machine, register_run
from ompbind.cli.settings import Settings, make_planning_settings, make_request, make_run_spec
from ompbind.commands import environment
from ompbind.commands.environment import RunSpec
from ompbind.commands.rank_command import make_spec_before_plan
from ompbind.commands.rank_variables import OMPBIND_CPUS, OMPBIND_SERVICE_CPUS, Variables, find_rank
from ompbind.compat.frameworks import FRAMEWORKS, count_workers
from ompbind.cpuset import EMPTY, CpuSet, count, named, union
from ompbind.errors import OmpbindError, OptionError
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Plan
from ompbind.procfs.reader import list_threads, read_affinity, read_memory_policy
from ompbind.record import Record
from ompbind.registry.claims import Claim
from ompbind.registry.registry import make_own_run
from ompbind.report.text import render_error
from ompbind.workers.placed import placed

VLLM = FRAMEWORKS["vllm"]

_LOCAL = VLLM.replace(worker_options=("-dpl", "--data-parallel-size-local"), replica_options=())
"""The option for the number of replicas on this machine, if others are on other machines."""

_log = logging.getLogger("vllm.ompbind")  # below "vllm": it writes into the log of vLLM


class Server(Record):
    """The workers that a process of vLLM starts: of `all_workers` on this machine, `workers` from `first` on.

    `connector`: the server has a KV connector.
    """

    workers: int
    first: int = 0
    all_workers: int
    connector: bool = False


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
    first, connector = workers * (replica or 0), config.kv_transfer_config is not None
    return Server(workers=workers, first=first, all_workers=workers * replicas, connector=connector)


def place_server(server: Server, command: Sequence[str]) -> tuple[Plan, tuple[Variables, ...], Claim | None]:
    """Plan and register the workers of a server; `command` is the command line of the server.

    Returns the plan for all workers on this machine, their variables, and the claim that registers the plan.
    Logs warnings, and raises the errors of `ompbind exec`.
    """
    options = [f"--ranks={server.all_workers}", "--compat=vllm"]
    own = _find_own_cpus()
    if own is not None:
        # the rank decides the service CPUs, not vLLM
        options += ["--no-config", f"--mask={own[0]}", "--service-cores=0"]
    if server.connector:
        command = (*command, VLLM.connector)  # it may be in a configuration file of vLLM
    context = load_verb("exec").make_context("exec", [*options, "--", *command])
    try:
        settings = make_planning_settings(context)
        plan, spec, claim = _make_plan(server, settings, own[1] if own else None)
    except OmpbindError as error:
        context.explain(error)
        raise
    for text in (*context.messages, *(note.text for note in plan.notes if note.warning)):
        _log.warning("ompbind: %s", text.removeprefix("warning: "))  # the log says so
    return plan, tuple(_make_variables(plan, spec)), claim


def _find_own_cpus() -> tuple[str, int] | None:
    """Return the mask of the rank that this process is in, and its number of service CPUs; None if none."""
    env, allowed, names = os.environ, CpuSet(os.sched_getaffinity(0)), (OMPBIND_CPUS, OMPBIND_SERVICE_CPUS)
    try:
        compute, service = (CpuSet.from_list(env.get(name, "")) for name in names)
    except ValueError:
        return None
    if find_rank(env) is None or not allowed <= compute | service:
        return None
    if env.get("OMP_PROC_BIND") == "false" and env.get("OMPBIND_BIND") != "none":
        return "none", 0  # ranks of --mask none share all CPUs
    return str(allowed), len(service & allowed)


def _make_plan(server: Server, settings: Settings, service: int | None) -> tuple[Plan, RunSpec, Claim | None]:
    """Return the plan, what all workers have in common, and the claim, which replicas of a server share.

    `service` are the service CPUs of the rank that this process belongs to, None if it belongs to no rank.
    """
    machine = read_planning_machine(settings)
    parent = multiprocessing.parent_process()
    spec = make_run_spec(settings, f"vllm-{parent.pid if parent else os.getpid()}")
    request = make_request(settings, make_spec_before_plan(spec), machine, for_workers=True)
    if service is not None:  # a rank may have few CPUs for its workers
        request = request.replace(service_total=service, service_optional=True)
        return make_local_plan(machine, request, ()), spec, None
    own = make_own_run(spec.run_id)
    if server.workers < server.all_workers:
        own = own.replace(placement_index=server.first, rank=server.first)
    request = request.replace(replicas=server.all_workers // server.workers)
    found = register_run(machine, request, own, settings)
    return found.plan, spec, found.claim


def _make_variables(plan: Plan, spec: RunSpec) -> Iterator[Variables]:
    """Yield the variables of each worker to set (value) or remove (None).

    RANK, LOCAL_RANK and the like are left out: vLLM numbers its workers itself.
    """
    for identity in environment.make_identities(len(plan.placements)):
        placement = plan.placements[identity.placement_index]
        numbers = environment.make_identity_variables(placement, identity, spec)
        others = [name for name in numbers if not name.startswith(PREFIX)]
        variables = environment.make_variables(plan, identity, spec)
        yield {name: value for name, value in variables.items() if name not in others}


def render_server(server: Server, plan: Plan) -> str:
    """Return one line with the CPUs of the workers of a server."""
    workers = "; ".join(
        f"worker {placement.rank}: {named('CPU', placement.compute)}"
        + (f" + service {named('CPU', placement.service_cpus)}" if placement.service_cpus else "")
        for placement in plan.placements[server.first : server.first + server.workers]
    )
    return f"{workers} ({count(server.all_workers, 'worker')}, {plan.request.effective_strategy})"


_HOME, _USER = "vllm.utils.ompmultiprocessing", "vllm.v1.executor.multiproc_executor"
"""The modules of vLLM that define and use its class OMPProcessManager."""

_CONFIG = (
    "local_world_size", "data_parallel_size", "data_parallel_size_local", "data_parallel_rank_local",
    "_api_process_count",
)  # fmt: skip
"""What `read_server` reads of vLLM's ParallelConfig."""


def replace_manager() -> None:
    """Let vLLM use `WorkerManager` if OMPBIND_VLLM says so; a vLLM that is not known stays as it is.

    Raises OptionError for a value that is neither yes nor no.
    """
    word = os.environ[VLLM.plugin]
    if word.strip().lower() not in (*TRUE_WORDS, *FALSE_WORDS):
        raise OptionError(f"{VLLM.plugin}: {word!r} is not 1 (yes) or 0 (no)")
    if word.strip().lower() in FALSE_WORDS:
        return
    if difference := _find_difference():
        _log.warning("ompbind: %s=%s has no effect on this vLLM: %s", VLLM.plugin, word, difference)
        del os.environ[VLLM.plugin]  # the processes that this process starts need not warn again
        return
    for name in (_HOME, _USER):
        if name in sys.modules:
            setattr(sys.modules[name], "OMPProcessManager", WorkerManager)  # noqa: B010 - modules of vLLM


def _find_difference() -> str:
    """Return what this vLLM lacks, or has in another way; "" for a vLLM that is known."""
    try:
        home = import_module(_HOME)
        manager, config = home.OMPProcessManager, import_module("vllm.config").ParallelConfig
        is_cpu = home.current_platform.is_cpu()
    except (ImportError, AttributeError) as error:
        return str(error)
    for method in ("__init__", "configure_omp_envs"):
        known = [*inspect.signature(getattr(WorkerManager, method)).parameters]
        found = [*inspect.signature(getattr(manager, method, lambda: None)).parameters]
        if found != known:
            return f"OMPProcessManager.{method} has the parameters {', '.join(found)}"
    if missing := [name for name in _CONFIG if not hasattr(config, name)]:
        return f"ParallelConfig has no {missing[0]}"
    return "" if is_cpu else "its workers do not compute on CPUs"


class WorkerManager:
    """Starts the workers of one process of vLLM, each with the CPUs and variables of its rank."""

    def __init__(self, config: Any) -> None:
        command = (sys.executable, *sys.argv)
        self._server = read_server(config, command)
        with _log_errors():
            self._plan, self._variables, self._claim = place_server(self._server, command)
        _log.info("ompbind: %s", render_server(self._server, self._plan))
        config.parallel_config.assigned_physical_gpu_ids = None  # for workers on CPUs: NUMA nodes for memory
        self._pids: dict[int, int] = {}
        weakref.finalize(self, check_workers, self._plan, self._pids)  # vLLM drops it when workers are ready

    @contextmanager
    def configure_omp_envs(self, rank: int, local_rank: int) -> Iterator[None]:
        """Give the worker that the block starts the CPUs and variables of its rank."""
        number = self._server.first + local_rank
        others = multiprocessing.active_children()
        with _log_errors(), placed(self._plan, number, variables=(), extra=self._variables[number]):
            yield
        started = (child.pid for child in multiprocessing.active_children() if child not in others)
        self._pids.update((number, pid) for pid in started if pid)


def check_workers(plan: Plan, pids: Mapping[int, int]) -> None:
    """Log whether each worker runs on the CPUs and NUMA nodes of the plan; `pids` are by rank."""
    for rank, pid in pids.items():
        placement = plan.placements[rank]
        cpus = union(map(read_affinity, list_threads(pid)))
        nodes = CpuSet.from_list((read_memory_policy(pid) or "").partition(":")[2])
        usable = CpuSet(placement.memory_nodes or nodes)
        least = placement.compute if plan.request.effective_bind is Bind.RANK else EMPTY
        found = f"worker {rank} has {named('CPU', cpus)}"
        found += f" and memory of {named('NUMA node', nodes)}" if nodes else ""
        if cpus and not (least <= cpus <= placement.cpuset and nodes <= usable):
            planned = f"{named('CPU', placement.cpuset)} of {named('NUMA node', usable)}"
            _log.warning("ompbind: %s, but the plan has %s: vLLM has changed it", found, planned)
        elif cpus:  # else it has exited
            _log.info("ompbind: %s, as planned", found)


@contextmanager
def _log_errors() -> Iterator[None]:
    """Write an error of ompbind into the log, with its hint; then EngineCore exits, and so the server."""
    try:
        yield
    except OmpbindError as error:
        _log.error("%s", render_error(error))
        if multiprocessing.parent_process():
            sys.exit(error.exit_code)  # without the traceback that vLLM would print
        raise  # this is the process of the user
