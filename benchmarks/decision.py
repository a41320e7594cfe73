"""Compare the decisions of `ompbind bench` and of hyperfine, on the same simulated times.

    python benchmarks/decision.py [--sessions N]

Nothing is started: the times of runs are simulated, and `find_next` and `conclude` decide. So the right
answer is known: all candidates are equal, or some are 10 % faster than all others, and the simplest of these
is right. The noise of a run depends on its position in the session, whichever candidate runs:

    drift       a slow wander of 3.2 %, which forgets its past in 100 runs
    bursts      on average every 60 runs, the times rise by 4 to 16 % for 6 runs
    two modes   30 % of runs take 3 % more
    runs        each run varies by 2 %, independently of all others

Together the standard deviation of the times of a candidate is 5 %. In the cases "noisy", each run varies by
5 % independently of all others, in addition to drift, bursts and modes. Then 150 rounds are too few to show
that candidates are equal within 2 %, so nothing is promised about that. Without drift, bursts, modes and
looks, the 95 % interval of the mean would be that narrow in only 86 % of sessions. In the cases "loud", each
run varies by 20 %, and one run of 20 takes 1.5 to 3 times as long. Then 40 rounds are too few to decide, but
the faster candidate must not be dropped.

hyperfine runs all runs of a command, then all of the next command. It prints mean ± standard deviation, and
"COMMAND ran 1.02 ± 0.07 times faster than OTHER" for the command with the smallest mean. Here it gets as many
runs as ompbind used. Columns, in percent of sessions:

    right    ompbind recommends the right candidate; "unbound" if all are equal
    best     ompbind calls a candidate best
    same     ompbind finds no real difference
    open     ompbind says that it is not known yet
    lost     ompbind drops the right candidate early
    named    hyperfine names the right candidate; if all are equal, any that it calls at least 2 % faster than
             unbound
    sure     the same, and the ratio minus its ± is above 1
    runs     runs per session, of either

The exit code is 1 if a promise is missed.
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.promises import make_decision_promises, print_promises
from benchmarks.rounds import make_parser
from ompbind.bench.decision import conclude, find_next
from ompbind.bench.records import Candidate, ComparisonResult, Hardware, Kind, NextRound, Rules, Run, Session
from ompbind.record import Record

EFFECT = 0.10
"""How much faster the fast candidates are than the others."""

DRIFT, DRIFT_RUNS = 0.032, 100
BURST_RUNS, BURST_EVERY, BURST_RISE = 6, 60, (0.04, 0.16)
MODE_SHARE, MODE_RISE = 0.3, 0.03
VARIATION, NOISY_VARIATION, LOUD_VARIATION = 0.02, 0.05, 0.20
OUTLIER_SHARE, OUTLIER_RISE = 0.05, (math.log(1.5), math.log(3))
"""The logarithms of how much longer outliers take; only loud runs have outliers."""

UNBOUND = "unbound"
ENOUGH_ROUNDS = 150
"""So many rounds must show that equal candidates are equal."""

COLUMNS = ("right", "best", "same", "open", "lost", "named", "sure", "runs")


class Case(Record):
    """What is simulated. `fast` are the positions of the candidates that are faster, the simplest first."""

    name: str
    candidates: int
    fast: tuple[int, ...]
    max_rounds: int
    variation: float = VARIATION


def make_cases() -> Iterator[Case]:
    """Yield all cases."""
    kinds = (
        ("1 of 2 faster", 2, (1,), 40),
        ("1 of 6 faster", 6, (5,), 40),
        ("2 of 6 faster", 6, (1, 5), 40),
        ("2 equal", 2, (), 40),
        ("6 equal", 6, (), 40),
        ("2 equal", 2, (), ENOUGH_ROUNDS),
        ("6 equal", 6, (), ENOUGH_ROUNDS),
    )
    for noisy, variation in (("", VARIATION), ("noisy, ", NOISY_VARIATION)):
        for text, number, fast, rounds in kinds:
            yield Case(
                name=f"{noisy}{text}, {rounds} rounds",
                candidates=number,
                fast=fast,
                max_rounds=rounds,
                variation=variation,
            )
    for text, number, fast in (("1 of 6 faster", 6, (5,)), ("1 of 10 faster", 10, (9,)), ("6 equal", 6, ())):
        yield Case(
            name=f"loud, {text}, 40 rounds",
            candidates=number,
            fast=fast,
            max_rounds=40,
            variation=LOUD_VARIATION,
        )


class Outcome(Record):
    """What a session decided, and what hyperfine would say of as many runs.

    `choice` and `best` are the candidates that ompbind recommends and calls best; `same` is whether it finds
    no real difference, `lost` whether it dropped the right candidate. `named` is hyperfine's fastest command.
    `ratio` is the mean of `unbound` relative to the mean of this command, and `deviation` what hyperfine
    prints after ±.
    """

    runs: int
    choice: str
    best: str
    same: bool
    lost: bool
    named: str
    ratio: float
    deviation: float


def make_candidates(number: int) -> tuple[Candidate, ...]:
    """Return the unbound candidate, the default, and further ones with one choice each."""
    names = [UNBOUND, "default", *(f"strategy={letter}" for letter in "abcdefgh")][:number]
    kinds = [Kind.UNBOUND, Kind.DEFAULT] + [Kind.VARIED] * number
    return tuple(
        Candidate(
            name=name,
            kind=kind,
            ranks=1,
            choices=(("strategy", name[-1]),) if kind == Kind.VARIED else (),
        )
        for name, kind in zip(names, kinds, strict=False)
    )


def make_noise(random: Random, variation: float) -> Iterator[float]:
    """Yield the factors of the times of successive runs, whichever candidate runs."""
    keep = math.exp(-1 / DRIFT_RUNS)
    drift, burst_left, rise = random.gauss(0, DRIFT), 0.0, 0.0
    while True:
        drift = keep * drift + random.gauss(0, DRIFT * math.sqrt(1 - keep**2))
        if burst_left <= 0 and random.random() < 1 / BURST_EVERY:
            burst_left, rise = random.expovariate(1 / BURST_RUNS), random.uniform(*BURST_RISE)
        burst = rise if burst_left > 0 else 0.0
        burst_left -= 1
        mode = MODE_RISE if random.random() < MODE_SHARE else 0.0
        is_outlier = variation == LOUD_VARIATION and random.random() < OUTLIER_SHARE
        outlier = random.uniform(*OUTLIER_RISE) if is_outlier else 0.0
        yield math.exp(drift + burst + mode + outlier + random.gauss(0, variation))


def simulate_session(session: Session, make_run: Callable[[str, NextRound, int], Run]) -> Session:
    """Continue a session until it is over; `make_run` gets the candidate, the round and the run's number."""
    while not (following := find_next(session)).ended:
        order = Random(f"{session.rules.seed} {following.round}")
        runs = list(session.runs)
        for name in order.sample(following.candidates, len(following.candidates)):
            runs.append(make_run(name, following, len(runs)))
        session = session.replace(runs=tuple(runs))
    return session.replace(ended=following.ended)


def make_session(candidates: tuple[Candidate, ...], rules: Rules) -> Session:
    """Return a session without runs."""
    return Session(
        version="", started=0, hardware=Hardware(), command=("true",), rules=rules, candidates=candidates
    )


def make_time(name: str, following: NextRound, number: int, value: float) -> Run:
    """Return a run that took so long."""
    return Run(
        candidate=name,
        number=number,
        round=following.round,
        started=float(number),
        values=(value,),
    )


def simulate(case: Case, seed: int) -> Outcome:
    """Return the outcome of one session."""
    candidates = make_candidates(case.candidates)
    fast = {candidates[position].name for position in case.fast}
    noise: list[float] = []
    source = make_noise(Random(seed), case.variation)

    def measure(name: str, number: int) -> float:
        noise.extend(next(source) for _ in range(number + 1 - len(noise)))
        return noise[number] / (1 + EFFECT if name in fast else 1)

    def make_run(name: str, following: NextRound, number: int) -> Run:
        return make_time(name, following, number, measure(name, number))

    session = make_session(candidates, Rules(max_rounds=case.max_rounds, seed=seed))
    session = simulate_session(session, make_run)
    blocks = [
        [measure(candidate.name, number) for number in block]
        for candidate, block in zip(candidates, make_blocks(len(session.runs), len(candidates)), strict=True)
    ]
    (group,) = conclude(session).groups
    results = {each.result: each.candidate for each in group.comparisons}
    dropped = {each.candidate for each in group.comparisons if each.result == ComparisonResult.DROPPED}
    named, ratio, deviation = run_hyperfine(candidates, blocks)
    return Outcome(
        runs=len(session.runs),
        choice=group.choice,
        best=results.get(ComparisonResult.BEST, ""),
        same=group.choice == UNBOUND and ComparisonResult.SAME in results,
        lost=find_right(case) in dropped,
        named=named,
        ratio=ratio,
        deviation=deviation,
    )


def make_blocks(runs: int, candidates: int) -> list[range]:
    """Return the numbers of the runs of each candidate if each candidate runs in one block."""
    each = runs // candidates
    return [range(number * each, (number + 1) * each) for number in range(candidates)]


def run_hyperfine(
    candidates: Sequence[Candidate], blocks: Sequence[Sequence[float]]
) -> tuple[str, float, float]:
    """Return the command with the smallest mean, and how much faster it is than the first, with its ±."""
    means = [statistics.fmean(block) for block in blocks]
    fastest = means.index(min(means))
    ratio = means[0] / means[fastest]
    spreads = [statistics.stdev(blocks[number]) / means[number] for number in (0, fastest)]
    return candidates[fastest].name, ratio, ratio * math.hypot(*spreads)


def find_right(case: Case) -> str:
    """Return the candidate to recommend."""
    return make_candidates(case.candidates)[case.fast[0]].name if case.fast else UNBOUND


def is_named(outcome: Outcome, case: Case) -> bool:
    """Return whether hyperfine names the right candidate, or one that is not right if all are equal."""
    if case.fast:
        return outcome.named == find_right(case)
    return outcome.ratio >= 1 + Rules().matters


def render_outcomes(outcomes: Sequence[Outcome], case: Case) -> str:
    """Return the numbers of a line of the table."""
    named = [outcome for outcome in outcomes if is_named(outcome, case)]
    numbers = [
        sum(outcome.choice == find_right(case) for outcome in outcomes),
        sum(bool(outcome.best) for outcome in outcomes),
        sum(outcome.same for outcome in outcomes),
        sum(not outcome.choice for outcome in outcomes),
        sum(outcome.lost for outcome in outcomes),
        len(named),
        sum(outcome.ratio - outcome.deviation > 1 for outcome in named),
    ]
    parts = "".join(f"{100 * number / len(outcomes):7.1f}" for number in numbers)
    return f"{parts}{statistics.fmean(outcome.runs for outcome in outcomes):7.0f}"


def count_mistakes(case: Case, outcomes: Sequence[Outcome]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield what must not happen in a case: a text, and in how many of all sessions it did."""
    total = len(outcomes)
    if case.fast:
        if case.candidates > 2:
            yield f"{case.name}: dropped", (sum(each.lost for each in outcomes), total)
        if case.variation == VARIATION or (case.variation == NOISY_VARIATION and len(case.fast) == 1):
            yield f"{case.name}: not right", (sum(each.best != find_right(case) for each in outcomes), total)
        return
    wrong = sum(each.choice not in (UNBOUND, "") or bool(each.best) for each in outcomes)
    yield f"{case.name}: false best", (wrong, total)
    if case.max_rounds >= ENOUGH_ROUNDS and case.variation == VARIATION:
        yield f"{case.name}: not same", (sum(not each.same for each in outcomes), total)


def main() -> int:
    """Simulate all cases and print how often each procedure is right."""
    parser = make_parser(__doc__)
    parser.add_argument("--sessions", type=int, default=1000, help="sessions per case")
    sessions: int = parser.parse_args().sessions
    mistakes: dict[str, tuple[int, int]] = {}
    print(f"{'':31}{'ompbind, % of sessions':>35}{'hyperfine':>14}")
    print(f"{'':31}" + "".join(f"{word:>7}" for word in COLUMNS))
    for case in make_cases():
        outcomes = [simulate(case, seed) for seed in range(sessions)]
        print(f"{case.name:31}{render_outcomes(outcomes, case)}", flush=True)
        mistakes.update(count_mistakes(case, outcomes))
    return print_promises(make_decision_promises(mistakes))


if __name__ == "__main__":
    sys.exit(main())
