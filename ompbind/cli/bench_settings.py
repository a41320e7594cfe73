"""What `bench` makes from the values of its options: how each run is done, and what the session decides."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ompbind.bench.metrics import make_metrics
from ompbind.bench.records import Rules
from ompbind.bench.service import check_service, find_load_cpus
from ompbind.bench.starts import CandidateStart, RunSettings, Service
from ompbind.cli.bench_candidates import has_same_work

_SEEDS = 1 << 32


def make_settings(values: Mapping[str, Any], run_id: str, starts: Sequence[CandidateStart]) -> RunSettings:
    """Make the settings of each run of the candidates.

    Raises PositionError for a wrong pattern, port or placeholder, RequestError for a load generator without
    CPUs, and LaunchError for a load generator that cannot be executed.
    """
    settings = RunSettings(
        run_id=run_id,
        metrics=make_metrics(values["metric"], higher=values["higher"], combine=values["combine"]),
        timeout_s=values["timeout"] or None,
        grace_s=values["grace"],
        service=None if values["duration"] is None else _make_service(values),
        load_cpus=find_load_cpus(starts) if values["load"] else None,
    )
    if settings.service:
        check_service(starts, settings)
    return settings


def _make_service(values: Mapping[str, Any]) -> Service:
    """Make what --duration, --ready and --load say."""
    return Service(duration_s=values["duration"], ready=values["ready"], load=values["load"] or ())


def make_rules(values: Mapping[str, Any]) -> Rules:
    """Make what the session decides and when it ends; without --seed the order of rounds is random."""
    seed = values["seed"]
    return Rules(
        same_work=has_same_work(values),
        matters=values["matters"],
        max_rounds=values["max_rounds"],
        seed=random.SystemRandom().randrange(_SEEDS) if seed is None else seed,
    )
