"""What is needed to run a candidate: the commands of its ranks, and how each run is done."""

from collections.abc import Sequence

from ompbind.bench.records import Candidate, Metric, Phase
from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.spawn import find_executable
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import RankCommand, RunSpec
from ompbind.record import Record


class CandidateStart(Record):
    """A candidate and the commands of its ranks; `plan` is None for the command without ompbind."""

    candidate: Candidate
    plan: Plan | None
    spec: RunSpec
    commands: Sequence[RankCommand]


def check_commands(starts: Sequence[CandidateStart]) -> None:
    """Raise LaunchError if the command of no candidate can be started, for example if its file is missing."""
    errors = []
    for start in starts:
        try:
            find_executable(start.commands[0])
            return
        except LaunchError as error:
            errors.append(error)
    if errors:
        raise errors[0]


class Service(Record):
    """How ranks that are servers are measured: they run for `duration_s` seconds after they are ready.

    `ready` is "tcp:PORT" or a regular expression that a line of every rank contains, "" for at once. `load`
    is the command of a load generator, () for none; its output has the metrics then, and it is bound to the
    reserved CPUs of the plan.
    """

    duration_s: float
    ready: str = ""
    load: tuple[str, ...] = ()


class MeasuringSettings(Record):
    """How each run is done; times are seconds, None for no limit.

    `service` is for servers only; `timeout_s` is then the limit of the time until they are ready. `load_cpus`
    are the CPUs of the load generator, None where no process can be bound.
    """

    run_id: str
    metrics: tuple[Metric, ...]
    timeout_s: float | None = None
    grace_s: float = 10.0
    service: Service | None = None
    load_cpus: CpuSet | None = None


class Slot(Record):
    """When a run takes place: its number in the session, its phase and its round."""

    number: int
    phase: Phase
    round: int
