"""Sessions as data: candidates with fixed factors on their times, and simple conclusions."""

from random import Random

from ompbind.bench.decision import conclude
from ompbind.bench.records import (
    Candidate,
    ComparisonResult,
    Conclusion,
    Hardware,
    Kind,
    Metric,
    Refusal,
    Remark,
    Rules,
    Run,
    Session,
    Status,
    Verification,
)
from ompbind.cpuset import count

COMMAND = ("python", "serve.py", "--name", "two words")
HARDWARE = Hardware(hostname="node1", processor="EPYC 9654", allowed="0-15", digest="0" * 64)


def make_candidate(name, **fields):
    kinds = {"unbound": Kind.UNBOUND, "default": Kind.DEFAULT}
    kind = kinds.get(name.rpartition(", ")[2], Kind.VARIED)
    known = {"kind": kind, "ranks": 1} | fields
    ranks = known["ranks"]
    if kind is not Kind.UNBOUND:
        choices = tuple(tuple(part.split("=", 1)) for part in name.split(", ") if "=" in part)
        words = tuple(f"--{key}={value}" for key, value in choices)
        known = {
            "choices": choices,
            "options": (*(("-n", str(ranks)) if ranks > 1 else ()), *words),
            "cpus": tuple(f"{i}-{i + 3}" for i in range(0, 4 * ranks, 4)),
            "threads": 4,
        } | known
    return Candidate(name=name, **known)


def make_run(name, number, value, **fields):
    """A run whose first metric is `value`; several values for several metrics."""
    values = value if isinstance(value, tuple) else (value,)
    known = {
        "round": number + 1,
        "started": 1_700_000_000.0 + 2 * number,
        "values": values,
        "wall_s": values[:1],
        "user_s": 3.5 * sum(values[:1]),
        "system_s": 0.1,
        "max_rss_bytes": 300 << 20,
        "forced_switches": 12,
        "verification": Verification.VERIFIED,
        "exit_codes": (0,),
    }
    return Run(candidate=name, number=number, **known | fields)


def make_session(factors, *, rounds=12, base=1.4, noise=0.02, seed=1, **fields):
    """A session in which each candidate has base * factor as its value, with noise.

    `factors` maps names or candidates to factors. `rounds` rounds follow after a warm-up.
    """
    random = Random(seed)
    candidates = [item if isinstance(item, Candidate) else make_candidate(item) for item in factors]
    values = dict(zip([candidate.name for candidate in candidates], factors.values(), strict=True))
    runs = []
    for number in range(rounds + 1):
        for candidate in candidates:
            value = base * values[candidate.name] * (1 + random.gauss(0, noise))
            runs.append(make_run(candidate.name, len(runs), value, round=number))
    known = {
        "version": "1.2.3",
        "started": 1_700_000_000.0,
        "hardware": HARDWARE,
        "command": COMMAND,
        "candidates": tuple(candidates),
        "runs": tuple(runs),
        "ended": "decided after 12 rounds",
    }
    return Session(**known | fields)


def make_conclusion(session, choices=None, remarks=(), **changed):
    """The conclusion of a session, with other choices, remarks, and fields of comparisons.

    `choices` maps names to their results; the first in a group is its choice.
    """
    choices = choices or {}
    fields = {name: {"result": result} for name, result in choices.items()}
    fields |= {name: fields.get(name, {}) | each for name, each in changed.items()}
    groups = []
    for group in conclude(session).groups:
        comparisons = [each.replace(**fields.get(each.candidate, {})) for each in group.comparisons]
        names = [each.candidate for each in comparisons]
        choice = next((name for name in choices if name in names), "")
        groups.append(group.replace(comparisons=tuple(comparisons), choice=choice))
    return Conclusion(groups=tuple(groups), remarks=remarks)


TWO_METRICS = (
    Metric(name="tokens/s", pattern="tokens/s: ([0-9.]+)", higher=True),
    Metric(name="latency", pattern="latency: ([0-9.]+)"),
)
"""A metric that decides, of which more is better, and another one that is shown."""


def make_usual_session(**fields):
    """A session with each kind of candidate, a refusal and remarks, and its conclusion."""
    session = make_session(
        {
            "unbound": 1.0,
            make_candidate("default", same=("smt=1",)): 0.9,
            "strategy=spread": 0.87,
            "bind=thread": 0.995,
            "smt=2": 1.25,
            "mask=0-1|2-3;4": 1.6,
            "preload=tcmalloc": 1.0,
        },
        **{"refusals": (Refusal(name="ranks=99", reason="99 ranks need 99 CPUs, 16 are allowed"),)} | fields,
    )
    failed = make_run(
        "preload=tcmalloc", 5, (), status=Status.FAILED, exit_codes=(1,),
        reason="exit code 1: cannot load \x1b[31mtcmalloc\x1b[0m", wall_s=(0.1,), round=1,
    )  # fmt: skip
    kept = tuple(run for run in session.runs if run.candidate != "preload=tcmalloc")
    session = session.replace(runs=(*kept, failed))
    remark = Remark(code="outliers", text="2 of 12 times are 30 % longer than the median", candidate="smt=2")
    conclusion = make_conclusion(
        session,
        {"strategy=spread": ComparisonResult.BEST},
        (remark,),
        **{
            "mask=0-1|2-3;4": {"result": ComparisonResult.DROPPED, "reason": "lost 4 of 4 rounds to default"},
            "bind=thread": {"result": ComparisonResult.UNKNOWN, "more_rounds": 24, "reason": ""},
            "preload=tcmalloc": {"result": ComparisonResult.DISQUALIFIED, "reason": failed.reason},
        },
    )
    return session, conclusion


def make_scaling_session(**fields):
    """A session with 1, 2, 4 and 8 ranks that share one job, and its conclusion."""
    factors = {
        make_candidate(f"{count(ranks, 'rank')}, {name}", ranks=ranks): factor / ranks**0.9
        for ranks in (1, 2, 4, 8)
        for name, factor in (("unbound", 1.0), ("default", 0.9), ("smt=2", 0.85))
    }
    session = make_session(factors, **{"rules": Rules(same_work=True), "rounds": 18} | fields)
    return session, make_conclusion(session, {"8 ranks, smt=2": ComparisonResult.BEST})
