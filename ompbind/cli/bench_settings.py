"""What `bench` makes from its settings: how each run is done, and what the session decides."""

import random
from collections.abc import Sequence

from ompbind.bench.metrics import make_metrics
from ompbind.bench.records import Rules
from ompbind.bench.service import check_service, find_load_cpus
from ompbind.bench.starts import CandidateStart, MeasuringSettings, Service
from ompbind.cli.settings import BenchSettings

_SEEDS = 1 << 32


def make_measuring_settings(settings: BenchSettings, starts: Sequence[CandidateStart]) -> MeasuringSettings:
    """Make the settings of each run of the candidates.

    Raises PositionError for a wrong pattern, port or placeholder, RequestError for a load generator without
    CPUs, and LaunchError for a load generator that cannot be executed.
    """
    made = MeasuringSettings(
        run_id=settings.planning.run_id or "",
        metrics=make_metrics(settings.metric, higher=settings.higher, combine=settings.combine),
        timeout_s=settings.timeout or None,
        grace_s=settings.grace,
        service=_make_service(settings),
        load_cpus=find_load_cpus(starts) if settings.load else None,
    )
    if made.service:
        check_service(starts, made)
    return made


def _make_service(settings: BenchSettings) -> Service | None:
    """Make what --duration, --ready and --load say; None where ranks are no servers."""
    if settings.duration is None:
        return None
    return Service(duration_s=settings.duration, ready=settings.ready, load=settings.load or ())


def make_rules(settings: BenchSettings) -> Rules:
    """Make what the session decides and when it ends; without --seed the order of rounds is random."""
    seed = settings.seed
    return Rules(
        same_work=settings.has_same_work,
        matters=settings.matters,
        max_rounds=settings.max_rounds,
        seed=random.SystemRandom().randrange(_SEEDS) if seed is None else seed,
    )
