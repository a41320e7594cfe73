"""The records of one session of `ompbind bench`: its candidates, and every run of each candidate.

A *candidate* is one way to start the command. A *round* runs each remaining candidate once, in random order.
Results files contain these records as JSON: fields are numbers, texts, and tuples of records.
"""

from enum import StrEnum

from ompbind.record import Record


class Metric(Record):
    """What is compared: the wall time of a run, or a number in the output of ranks.

    `pattern` is the regular expression whose first group is the number, "" for the wall time in seconds.
    `higher` is whether a larger value is better; then the values of all ranks are added up, else the largest
    value counts: that of the slowest rank.
    """

    name: str = "wall time"
    pattern: str = ""
    higher: bool = False


class Kind(StrEnum):
    """What a candidate is: the command without ompbind, the default plan, or a choice of options."""

    UNBOUND = "unbound"
    DEFAULT = "default"
    VARIED = "varied"


class Candidate(Record):
    """One way to start the command.

    - `name`: unique in the session, and short enough for a table: "unbound", "default", "strategy=spread";
      with several numbers of ranks "2 ranks, unbound", "2 ranks, smt=2" and so on
    - `choices`: the varied options as (key, text) pairs, in the order of --vary; () for incumbents
    - `options`: the words of `ompbind run` before `--` that give the same plan; () if unbound
    - `cpus`: the affinity mask of each rank as kernel list text; () if unbound
    - `threads`: threads of each rank, 0 if unbound
    - `same`: the names of other candidates with the same plan, which do not run
    - `digest`: a digest of the plan and the variables of ranks; a resumed session compares it
    - `words`: in a run with groups, the words after `--` if these differ from the command of the session
    """

    name: str
    kind: Kind
    ranks: int
    choices: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    cpus: tuple[str, ...] = ()
    threads: int = 0
    same: tuple[str, ...] = ()
    digest: str = ""
    words: tuple[str, ...] = ()


class Refusal(Record):
    """A candidate that cannot run: its name, and the reason."""

    name: str
    reason: str


class Status(StrEnum):
    """Whether a run counts. INVALID: threads were not bound as planned. FAILED: the command failed."""

    OK = "ok"
    INVALID = "invalid"
    FAILED = "failed"


class Verification(StrEnum):
    """The result of verification of one run; UNSEEN: a rank was not sampled."""

    VERIFIED = "verified"
    UNSEEN = "unseen"
    NOT_CHECKED = "not checked"
    VIOLATED = "violated"


class Conditions(Record):
    """What else happened on the machine during a run; None for what this machine does not show.

    `throttled_s` is the time that the CPU quota stopped threads of this cgroup, in `throttled_periods`
    periods. `stolen_s` is the time that the hypervisor gave to others, of all CPUs. `others_share` is the
    part of the CPUs of the run that other processes used; rounded to clock ticks, it may be just below 0.
    `other_runs` are live runs besides this session.
    """

    throttled_s: float | None = None
    throttled_periods: int | None = None
    stolen_s: float | None = None
    others_share: float | None = None
    other_runs: int = 0


class Run(Record):
    """One run of one candidate.

    - `number`: counts all runs of the session from 0; `round` counts from 1, and is 0 for a warm-up
    - `started`: seconds of the epoch
    - `values`: one value for each metric of the session; () if the run failed
    - `wall_s`: of each rank, from its start to its exit
    - `user_s`, `system_s`, `max_rss_bytes`, `forced_switches`: of all ranks together; peak memory is added up
    - `max_rss_bytes` is None if the peak of a rank is not above that of bench itself, which it inherits
    - `exit_codes`: of each rank, as shells report them; 0 for ranks that were stopped
    - `status`, `reason`: whether it counts, and why not, with the last words of a failed command
    """

    candidate: str
    number: int
    round: int
    started: float
    values: tuple[float, ...] = ()
    wall_s: tuple[float, ...] = ()
    user_s: float = 0.0
    system_s: float = 0.0
    max_rss_bytes: int | None = None
    forced_switches: int = 0
    conditions: Conditions = Conditions()
    verification: Verification = Verification.NOT_CHECKED
    status: Status = Status.OK
    reason: str = ""
    exit_codes: tuple[int, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether the run is compared: it succeeded, was bound as planned, and is no warm-up."""
        return self.status == Status.OK and bool(self.values) and self.round > 0


class Rules(Record):
    """What a session was asked to decide, and when it ends.

    - `same_work`: candidates with different numbers of ranks do the same work, so they are compared
    - `matters`: the relative difference that matters, as 0.02
    - `max_rounds`: rounds at most
    - `seed`: of the order within rounds
    """

    same_work: bool = False
    matters: float = 0.02
    max_rounds: int = 40
    seed: int = 0


class Hardware(Record):
    """The machine of a session, as far as it decides whether results can be compared.

    `digest` is of the topology: CPUs, cores, caches, NUMA nodes. `allowed` is kernel list text.
    """

    hostname: str = ""
    processor: str = ""
    allowed: str = ""
    quota: float | None = None
    digest: str = ""


class Session(Record):
    """One session: what was asked, and all runs so far.

    `options` are the words of `ompbind bench` before `--`. The first metric decides, the others are shown.
    `ended` says in words why the session is over, "" while it runs or if it was killed.
    """

    version: str
    started: float
    hardware: Hardware
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = (Metric(),)
    rules: Rules = Rules()
    candidates: tuple[Candidate, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    runs: tuple[Run, ...] = ()
    ended: str = ""


class ComparisonResult(StrEnum):
    """What is known about a candidate, in comparison with the reference of its group.

    BEST: the recommended candidate, and faster than the reference by what matters. DROPPED: dropped early,
    which claims nothing. DISQUALIFIED: it failed, or was not bound as planned.
    """

    REFERENCE = "reference"
    BEST = "best"
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no real difference"
    UNKNOWN = "not known yet"
    DROPPED = "dropped early"
    DISQUALIFIED = "disqualified"


class Comparison(Record):
    """A candidate compared with the reference within rounds.

    - `median`: the median of the first metric over its valid runs, None without any
    - `rounds`: how many rounds the ratio is from: rounds in which both runs are valid
    - `ratio`: the median of the ratios within rounds; above 1 the candidate is better, so for times it is the
      time of the reference divided by the time of the candidate. None without rounds, and for the reference
    - `interval`: the confidence interval of that median, (low, high); None if there are too few rounds
    - `more_rounds`: about how many more rounds would decide, None if unknown or not needed
    - `reason`: why it was dropped or disqualified
    """

    candidate: str
    result: ComparisonResult
    median: float | None = None
    rounds: int = 0
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    more_rounds: int | None = None
    reason: str = ""


class GroupConclusion(Record):
    """Candidates that do the same work and differ in one respect, so that their ratios have one cause.

    `ranks` is their number of ranks, and the reference is the unbound candidate. In a group with several
    numbers, `ranks` is None; its candidates are bound alike, and the reference has the first number.
    `comparisons` are in order, best first. `choice` is the candidate to recommend, "" if it is none of the
    group or if nothing is known: among candidates without a real difference the simplest.
    """

    ranks: int | None
    reference: str
    comparisons: tuple[Comparison, ...]
    choice: str = ""


class Remark(Record):
    """Something about the runs that the reader should know: outliers, drift, two modes, throttling and so on

    `candidate` is "" for the whole session.
    """

    code: str
    text: str
    candidate: str = ""


class Conclusion(Record):
    """Everything that is concluded from the runs of a session so far."""

    groups: tuple[GroupConclusion, ...]
    remarks: tuple[Remark, ...] = ()


class NextRound(Record):
    """The next round: which candidates run in it; none if the session is over, and `ended` says why.

    `dropped` are (candidate, reason) pairs of candidates that do not run any more since the last round.
    """

    round: int
    candidates: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...] = ()
    ended: str = ""
