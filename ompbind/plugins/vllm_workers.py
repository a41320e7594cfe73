"""Let vLLM start its workers by a plan of ompbind.

vLLM starts workers in its process EngineCore:

    manager = OMPProcessManager(config)
    for each worker: with manager.configure_omp_envs(rank=..., local_rank=...): start it

`WorkerManager` replaces this class. Only the worker is bound: the other processes keep their CPUs.
"""

import inspect
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ompbind.cli.option import FALSE_WORDS, TRUE_WORDS
from ompbind.errors import OmpbindError, OptionError
from ompbind.plugins.vllm_plan import VLLM, place_server, read_server, render_server
from ompbind.report.text import render_error
from ompbind.workers.placed import placed

_HOME, _USER = "vllm.utils.ompmultiprocessing", "vllm.v1.executor.multiproc_executor"
"""The modules of vLLM that define and use its class OMPProcessManager."""

_CONFIG = (
    "local_world_size", "data_parallel_size", "data_parallel_size_local", "data_parallel_rank_local",
    "_api_process_count",
)  # fmt: skip
"""What `read_server` reads of vLLM's ParallelConfig."""

_log = logging.getLogger("vllm.ompbind")  # below "vllm": it writes into the log of vLLM


def replace_manager() -> None:
    """Let vLLM use `WorkerManager` if OMPBIND_VLLM says so; a vLLM that is not known stays as it is.

    Raises OptionError for a value that is neither yes nor no.
    """
    word = os.environ[VLLM.plugin]
    if word.strip().lower() in FALSE_WORDS:
        return
    if word.strip().lower() not in TRUE_WORDS:
        raise OptionError(f"{VLLM.plugin}: {word!r} is not 1 (yes) or 0 (no)")
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
            self._placed = place_server(self._server, command)
        for text in self._placed.messages:
            _log.warning("ompbind: %s", text)
        _log.info("ompbind: %s", render_server(self._server, self._placed.plan))

    @contextmanager
    def configure_omp_envs(self, rank: int, local_rank: int) -> Iterator[None]:
        """Give the worker that the block starts the CPUs and variables of its rank."""
        number, found = self._server.first + local_rank, self._placed
        with _log_errors(), placed(found.plan, number, variables=(), extra=found.variables[number]):
            yield


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
