"""Run ranks that are servers: --duration, --ready and --load.

    start the ranks
    wait until every rank is ready            at most --timeout, without it READY_LIMIT_S
    start the load generator, if there is one
    wait until the load generator exits       at most --duration; without load generator always --duration
    stop the load generator, then the ranks   as `run` does at SIGTERM
    read the metrics                          of the load generator, if there is one, else of the ranks

Programs that are stopped have not failed, with any exit code. A rank that exits before it is stopped has
failed, also with exit code 0.

The load generator runs on the same CPUs beside each candidate: on the CPUs that all plans reserve. The
command without ompbind may use these CPUs too, as it would without ompbind. The load generator has the
environment of bench, not of a rank; its words may have the placeholders {size}, {threads}, {cpus} and
{run_id}.
"""

import os
import select
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import reduce
from operator import and_

from ompbind.bench.metrics import describe_last_lines, make_output_paths, read_values
from ompbind.bench.start_ranks import CandidateStart, MeasuringSettings, Service, StartedRun, start_ranks
from ompbind.cpuset import EMPTY, CpuSet, named
from ompbind.errors import MeasurementError, RequestError
from ompbind.execution.outcome import Outcome, render_exit_status
from ompbind.execution.readiness import Check, PortCheck, make_check
from ompbind.execution.spawn import find_executable
from ompbind.planning.placeholders import Fields, fill
from ompbind.planning.rank_command import RankCommand
from ompbind.record import Record

READY_LIMIT_S = 600.0
"""Seconds that ranks have to get ready without --timeout: a server may load a large model first."""

_POLL_S = 0.01
"""Seconds between two checks of whether ranks are ready."""

_WRITER = "the load generator"


class _ServiceRun(Record):
    """One run of a candidate whose ranks are servers, with the directory of their output files."""

    start: CandidateStart
    settings: MeasuringSettings
    service: Service
    directory: str

    @property
    def load_directory(self) -> str:
        """The directory of the output files of the load generator."""
        return os.path.join(self.directory, "load")

    def make_fields(self, **values: int | str) -> Fields:
        """Return the values of placeholders in --ready and --load."""
        return {"size": len(self.start.commands), "run_id": self.settings.run_id, **values}


def find_load_cpus(starts: Sequence[CandidateStart]) -> CpuSet | None:
    """Return the CPUs that the plans of all candidates reserve; None where no process can be bound.

    Raises RequestError if there is no such CPU.
    """
    plans = [start.plan for start in starts if start.plan]
    if not all(plan.machine.bindable for plan in plans):
        return None
    cpus = reduce(and_, (plan.reserved for plan in plans)) if plans else EMPTY
    if cpus:
        return cpus
    without = next((start.candidate.name for start in starts if start.plan and not start.plan.reserved), "")
    wrong = f"candidate {without!r} reserves none" if without else "no CPU is reserved in all candidates"
    hint = "reserve a core in all candidates with --reserve-total 1"
    raise RequestError(f"--load needs reserved CPUs, but {wrong}", hint=hint)


def check_service(starts: Sequence[CandidateStart], settings: MeasuringSettings) -> None:
    """Raise an error if --ready or --load cannot work with some candidate."""
    for start in starts:
        run = _make_service_run(start, settings)
        _make_checks(run)
        if run.service.load:
            find_executable(_make_load_command(run))


def run_service(
    start: CandidateStart, settings: MeasuringSettings, directory: str, *, verify: bool = False
) -> tuple[Outcome, tuple[float, ...]]:
    """Run a candidate whose ranks are servers; return how they exited, and the value of each metric.

    There are no values if a rank has failed. The output of ranks and of the load generator is in `directory`.
    Raises MeasurementError if ranks are not ready in time or exit too early, if the load generator fails,
    or if a metric cannot be read; LaunchError and ClaimError as `start_ranks`, and KeyboardInterrupt. No
    process is left then.
    """
    run = _make_service_run(start, settings, directory)
    for rank, check in _make_checks(run).items():
        if isinstance(check, PortCheck) and check.is_ready():
            taken = f"port {check.port} accepts connections before rank {rank} has started"
            raise MeasurementError(f"{taken}: another program has it")
    load = None
    with start_ranks(start, settings, directory, verify=verify) as ranks:
        if _wait_until_ready(run, ranks):
            load = _measure(run, ranks)
        has_exited = ranks.has_exited()
        ranks.stop()
        outcome = ranks.wait()
    if has_exited and outcome.stop_requested:
        raise KeyboardInterrupt  # a signal has stopped the ranks, and did not reach this process yet
    if outcome.error or any(rank_exit.failed for rank_exit in outcome.exits):
        _check_closing_ports(run, outcome)
        return outcome, ()
    _check_exits(run, outcome, load)
    if load is None:
        return outcome, read_values(settings.metrics, directory, start.log_names)
    writer = f"{_WRITER} (stopped after {run.service.duration_s:g} s)" if load.stop_requested else _WRITER
    return outcome, read_values(settings.metrics, run.load_directory, ["0"], writer=writer)


def _make_service_run(start: CandidateStart, settings: MeasuringSettings, directory: str = "") -> _ServiceRun:
    assert settings.service is not None
    return _ServiceRun(start=start, settings=settings, service=settings.service, directory=directory)


def _make_checks(run: _ServiceRun) -> dict[int, Check]:
    """Return what shows that a rank is ready, for each rank; nothing without --ready."""
    checks = {}
    for rank in range(len(run.start.commands)) if run.service.ready else ():
        ready = fill(run.service.ready, run.make_fields(rank=rank, local_rank=rank), "--ready")
        checks[rank] = make_check(ready, make_output_paths(run.directory, rank))
    return checks


def _check_closing_ports(run: _ServiceRun, outcome: Outcome) -> None:
    """Raise MeasurementError if a rank has failed, and connections of an earlier run still have its port."""
    checks = _make_checks(run)
    for failed in outcome.exits:
        check = checks.get(failed.rank)
        if failed.failed and isinstance(check, PortCheck) and check.is_closing():
            last_lines = describe_last_lines(make_output_paths(run.directory, failed.rank))
            why = f"closed connections of an earlier run have port {check.port} for a minute"
            remedy = "servers that set SO_REUSEADDR before they bind do not have to wait"
            raise MeasurementError(
                f"rank {failed.rank} {render_exit_status(failed)}; {why}: {remedy}{last_lines}"
            )


def _wait_until_ready(run: _ServiceRun, ranks: StartedRun) -> bool:
    """Wait until all ranks are ready; False if ranks exit before. Raises MeasurementError after the limit."""
    limit_s = run.settings.timeout_s or READY_LIMIT_S
    until = time.monotonic() + limit_s
    with ExitStack() as files:
        waiting = _make_checks(run)
        for check in waiting.values():
            files.enter_context(closing(check))
        while waiting:
            if ranks.has_exited(_POLL_S):
                return False
            waiting = {rank: check for rank, check in waiting.items() if not check.is_ready()}
            if waiting and time.monotonic() > until:
                rank, check = next(iter(waiting.items()))
                verb = "is" if len(waiting) == 1 else "are"
                last_lines = describe_last_lines(make_output_paths(run.directory, rank))
                why = check.describe(f"rank {rank}")
                missing = f"{named('rank', waiting)} {verb} not ready within {limit_s:g} s (--timeout)"
                raise MeasurementError(f"{missing}: {why}{last_lines}")
    return True


def _measure(run: _ServiceRun, ranks: StartedRun) -> Outcome | None:
    """Wait until the load generator exits, the duration is over, or ranks exit.

    Returns how the load generator exited, None if there is none.
    """
    if not run.service.load:
        ranks.has_exited(run.service.duration_s)
        return None
    start = run.start.replace(plan=None, commands=(_make_load_command(run),))
    settings = run.settings.replace(service=None, timeout_s=None)
    # the load generator inherits the signal mask, in which start_ranks has blocked all signals
    with ranks.handle_signals(), start_ranks(start, settings, run.load_directory) as load:
        with load.handle_signals():
            select.select((ranks, load), (), (), run.service.duration_s)
        if not load.has_exited():
            load.stop()
        return load.wait()


def _make_load_command(run: _ServiceRun) -> RankCommand:
    """Return how the load generator is started; raises PositionError for a wrong placeholder."""
    spec, cpus = run.start.spec, run.settings.load_cpus
    fields = run.make_fields(cpus=str(cpus or EMPTY), threads=max(1, len(cpus or EMPTY)))
    return RankCommand(
        rank=0,
        argv=tuple(fill(word, fields, "--load") for word in run.service.load),
        env={name: value for name, value in spec.base.items() if name not in spec.removed_variables},
        cpus=cpus,
    )


def _check_exits(run: _ServiceRun, outcome: Outcome, load: Outcome | None) -> None:
    """Raise MeasurementError if a rank has exited too early, or if the load generator has failed."""
    for early in outcome.exits:
        if not early.stopped:
            last_lines = describe_last_lines(make_output_paths(run.directory, early.rank))
            when = "before the end of the measurement"
            raise MeasurementError(f"rank {early.rank} {render_exit_status(early)} {when}{last_lines}")
    if load and load.error:
        why = load.error.message.removeprefix("rank 0: ")
        raise MeasurementError(f"{_WRITER} has not started: {why}")
    for failed in load.exits if load else ():
        if failed.failed:
            last_lines = describe_last_lines(make_output_paths(run.load_directory, 0))
            start = "" if run.service.ready else " (started at once: there is no --ready)"
            raise MeasurementError(f"{_WRITER}{start} {render_exit_status(failed)}{last_lines}")
