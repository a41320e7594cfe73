"""Sessions as data: candidates with fixed factors on their times.

`make_run` and `find_next` stand for ranks and statistics: runs take no time, and five rounds decide.
"""

from random import Random

from ompbind.bench import records
from ompbind.bench.records import Candidate, Kind, Metric, Rules, Status
from ompbind.bench.run_candidate import CandidateStart
from ompbind.cpuset import count

HARDWARE = records.Hardware(hostname="node1", processor="EPYC 9654", allowed="0-15", digest="0" * 64)
NAMES = ("unbound", "default", "smt=2")
ROUNDS = 5
KINDS = {"unbound": Kind.UNBOUND, "default": Kind.DEFAULT}


def make_candidate(name, **fields):
    kind = KINDS.get(name.rpartition(", ")[2], Kind.VARIED)
    ranks = int(name.split()[0]) if " rank" in name else 1
    known = {"name": name, "kind": kind, "ranks": ranks}
    if kind is not Kind.UNBOUND:
        choices = tuple(tuple(part.split("=", 1)) for part in name.split(", ") if "=" in part)
        number = ("-n", str(ranks)) if ranks > 1 else ()
        known |= {
            "choices": choices, "options": (*number, *(f"--{key}={value}" for key, value in choices)),
            "cpus": tuple(f"{i}-{i + 3}" for i in range(0, 4 * ranks, 4)), "threads": 4,
        }  # fmt: skip
    return Candidate(**known | fields)


def make_session(factors=None, *, rounds=12, base=1.4, noise=0.02, seed=1, **fields):
    """A session in which each candidate has base * factor as its value, with noise.

    `factors` maps names or candidates to factors, and `rounds` rounds follow after a warm-up; without factors
    the session has three candidates and no run.
    """
    random = Random(seed)
    candidates = [each if isinstance(each, Candidate) else make_candidate(each) for each in factors or NAMES]
    runs = []
    for number in range(rounds + 1 if factors else 0):
        for candidate, factor in zip(candidates, factors.values(), strict=True):
            value = base * factor * (1 + random.gauss(0, noise))
            runs.append(make_timed_run(candidate.name, len(runs), value, round=number))
    known = {
        "version": "1.2.3", "started": 1_700_000_000.0, "hardware": HARDWARE, "rules": Rules(seed=7),
        "command": ("python", "serve.py", "--name", "two words"),
        "candidates": tuple(each.replace(digest=f"digest of {each.name}") for each in candidates),
        "runs": tuple(runs), "ended": "decided after 12 rounds" if factors else "",
    }  # fmt: skip
    return records.Session(**known | fields)


def make_timed_run(name, number, value, **fields):
    known = {
        "round": number + 1, "started": 1_700_000_000.0 + 2 * number, "values": (value,), "wall_s": (value,),
        "user_s": 3.5 * value, "system_s": 0.1, "max_rss_bytes": 300 << 20, "forced_switches": 12,
        "verification": records.Verification.VERIFIED, "exit_codes": (0,),
    }  # fmt: skip
    return records.Run(candidate=name, number=number, **known | fields)


def make_run(start, number, round_number):
    seconds = 1.0 + number / 100
    wall_s = (seconds, seconds / 2)
    return make_timed_run(start.candidate.name, number, seconds, round=round_number, wall_s=wall_s)


def make_starts(session):
    return [CandidateStart(candidate=each, plan=None, commands=()) for each in session.candidates]


def find_next(session):
    """Decide after some rounds; the rest of a round that was stopped comes first."""
    rounds, started = divmod(len(session.runs), len(session.candidates))
    if rounds > ROUNDS:
        return records.NextRound(round=rounds, candidates=(), ended="decided")
    ran = {run.candidate for run in session.runs[len(session.runs) - started :]}
    names = tuple(candidate.name for candidate in session.candidates if candidate.name not in ran)
    return records.NextRound(round=rounds, candidates=names)


TWO_METRICS = (
    Metric(name="tokens/s", pattern="tokens/s: ([0-9.]+)", higher=True),
    Metric(name="latency", pattern="latency: ([0-9.]+)"),
)
"""A metric that decides, of which more is better, and another one that is shown."""


def make_usual_session(**fields):
    factors = {
        "unbound": 1.0, make_candidate("default", same=("smt=1",)): 0.95, "strategy=spread": 0.9,
        "bind=thread": 0.98, "smt=2": 1.25, "mask=0-1|2-3;4": 1.6, "preload=tcmalloc": 1.0,
    }  # fmt: skip
    refusals = (records.Refusal(name="ranks=99", reason="99 ranks need 99 CPUs, 16 are allowed"),)
    session = make_session(factors, **{"refusals": refusals} | fields)
    failed = make_timed_run(
        "preload=tcmalloc", 5, 0.1, status=Status.FAILED, exit_codes=(1,), values=(), round=1,
        reason="exit code 1: cannot load \x1b[31mtcmalloc\x1b[0m",
    )  # fmt: skip
    kept = [run for run in session.runs if run.candidate != "preload=tcmalloc"]
    kept[28] = kept[28].replace(values=(9.0,))
    return session.replace(runs=(*kept, failed))


def make_scaling_session(**fields):
    factors = {
        f"{count(ranks, 'rank')}, {name}": factor / ranks**0.9
        for ranks in (1, 2, 4, 8)
        for name, factor in (("unbound", 1.0), ("default", 0.9), ("smt=2", 0.85))
    }
    return make_session(factors, **{"rules": Rules(same_work=True), "rounds": 18} | fields)
