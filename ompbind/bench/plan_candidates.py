"""The candidates of `bench`: the command without ompbind, default plans, and every combination of --vary.

A candidate is planned from the command line of `bench`, which is parsed again with its choices after the
other options. So it follows the rules of a command line of `run`. What cannot be planned is a refusal.

In a run with groups, the key of a choice begins with the name of a group: "server.smt".
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import sha256

from ompbind.bench.candidates import MOST, Choices, MakePlan, add_ranks, make_combinations, make_proposal
from ompbind.bench.options import BenchSettings, check_variations, make_choice_words, render_run_words
from ompbind.bench.records import Candidate, Kind, Refusal
from ompbind.bench.run_candidate import CandidateStart
from ompbind.cli.run_settings import make_rank_groups
from ompbind.cli.settings import Settings, make_request, make_requests, make_spec_of_run
from ompbind.commands import rank_command
from ompbind.commands.environment import RunSpec
from ompbind.commands.rank_variables import RANK_VARIABLES
from ompbind.cpuset import CpuSet
from ompbind.errors import OmpbindError, PlanError
from ompbind.machine.model import Machine
from ompbind.openmp.runtimes import WAIT_VARIABLES
from ompbind.openmp.variables import LIBUV_VARIABLE, OVERRIDING_VARIABLES, THREAD_COUNTS
from ompbind.planning.notes import find_throttling
from ompbind.report.text import Column, Screen, clip, render_cpus, render_paragraph, render_table
from ompbind.text import mask_text

RANKS, AUTO = "ranks", "auto"
"""The key of the option that decides which candidates can be compared, and its value without a number."""


def make_starts(
    settings: BenchSettings, machine: Machine, make_plan: MakePlan
) -> tuple[tuple[CandidateStart, ...], tuple[Refusal, ...]]:
    """Return the candidates and the refused candidates; without --vary, of a choice for this machine.

    `make_plan` makes the plan of a candidate. Candidates with equal commands of all ranks are one candidate.
    Raises PositionError or RequestError for a wrong --vary.
    """
    for part in settings.planning.parts:
        check_variations(part.sources)
    combinations = make_combinations(settings.vary) or _propose(settings, machine, make_plan)
    plan = partial(_plan, settings, machine, make_plan)
    varied = [(it, plan(it, Kind.VARIED)) for it in combinations if _select(it, number=False)]
    # the numbers of ranks as choices; () is the number of the options
    numbers = [_select(it, number=True) for it in combinations if (RANKS, AUTO) not in it]
    for it, made in varied:
        if (RANKS, AUTO) in it and isinstance(made, CandidateStart):
            numbers.append(((RANKS, str(made.candidate.ranks)),))
    numbers = [*dict.fromkeys(numbers)]
    found = [*((it, plan(it, Kind.DEFAULT)) for it in numbers), *varied]
    planned = [made for _, made in found if isinstance(made, CandidateStart)]
    counts = dict.fromkeys(start.sizes for start in planned)
    several = len(counts) > 1 or len(numbers) > 1
    starts = []
    for sizes in counts:
        starts.append(_make_unbound_start(settings, machine, sizes))
        starts.extend(start for start in planned if start.sizes == sizes)
    refusals = []
    for it, made in found:
        if isinstance(made, Refusal):
            number = dict(it).get(RANKS, AUTO)
            name = add_ranks(made.name, int(number)) if several and number != AUTO else made.name
            refusals.append(made.replace(name=name))
    merged = _merge_equal(starts, several=several)
    groups, until = make_rank_groups(settings.planning), settings.planning.until or ""
    return tuple(start.replace(groups=groups, until=until) for start in merged), tuple(refusals)


def _propose(settings: BenchSettings, machine: Machine, make_plan: MakePlan) -> tuple[Choices, ...]:
    """Return a choice for this machine, which leaves options alone that are given.

    In a run with groups, each group in turn has its choices, while the other groups have their default plans.
    """
    proposed: list[Choices] = [()]
    for part in settings.planning.parts:
        sources = part.sources
        fixed = [option.key for name, option in sources.options.items() if sources.is_given(name)]
        if part.name or not settings.metric:  # the work of several numbers of ranks may differ
            fixed.append(RANKS)
        try:
            request = make_request(part, rank_command.make_spec_before_plan(_make_spec([part], "")), machine)
            found = make_proposal(machine, request.replace(group=""), fixed, make_plan)
        except OmpbindError:
            continue  # the default plan is refused with the same reason
        if not part.name:
            return found or ((),)
        limited = [choices for choices in found if choices][: MOST // len(settings.planning.parts)]
        proposed += [tuple((f"{part.name}.{key}", text) for key, text in it) for it in limited]
    return tuple(proposed)


def _select(choices: Choices, *, number: bool) -> Choices:
    """Return the choice of a number of ranks, or all other choices."""
    return tuple(choice for choice in choices if (choice[0] == RANKS and choice[1] != AUTO) == number)


def _plan(
    settings: BenchSettings, machine: Machine, make_plan: MakePlan, choices: Choices, kind: Kind
) -> CandidateStart | Refusal:
    """Plan some choices; more ranks or threads than the CPU quota are refused too."""
    name = ", ".join(f"{key}={mask_text(text)}" for key, text in _select(choices, number=False)) or kind
    try:
        names = [f"{part.name}." if part.name else "" for part in settings.planning.parts]
        more: list[list[str]] = [[] for _ in names]
        for key, text in choices:
            at = next(at for at, start in enumerate(names) if key.startswith(start))
            options = settings.planning.parts[at].sources.options
            more[at] += make_choice_words((key.removeprefix(names[at]), text), options)
        chosen = settings.parse_again(more)
        spec = _make_spec(chosen.planning.parts, settings.planning.run_id or "")
        plan = make_plan(machine, make_requests(chosen.planning.parts, spec, machine))
        throttling = find_throttling(plan)
        if throttling:
            raise PlanError(throttling[0].text)
    except OmpbindError as error:
        return Refusal(name=name, reason=error.message)
    candidate = Candidate(
        name=name,
        kind=kind,
        ranks=len(plan.placements),
        choices=choices if kind is Kind.VARIED else (),
        options=render_run_words(chosen.planning.sources),
        words=chosen.command if chosen.command != settings.command else (),
        cpus=tuple(str(placement.cpuset) for placement in plan.placements),
        threads=max(placement.threads for placement in plan.placements),
        digest=_make_digest(rank_command.make_commands(plan, _rename(spec)), spec)
        + (plan.parts[0].request.hold or ""),
    )
    return CandidateStart(candidate=candidate, plan=plan, commands=rank_command.make_commands(plan, spec))


def _make_spec(parts: Sequence[Settings], run_id: str) -> RunSpec:
    """Return what all ranks share; they inherit no variable of an option."""
    sources = parts[0].sources
    own = tuple(option.variable for option in sources.options.values() if option.has_variable)

    def hide_options(spec: RunSpec) -> RunSpec:
        return spec.replace(removed_variables=tuple(dict.fromkeys((*spec.removed_variables, *own))))

    spec = make_spec_of_run(parts, run_id)
    return hide_options(spec).replace(groups=tuple(map(hide_options, spec.groups)))


def _rename(spec: RunSpec) -> RunSpec:
    """Return what all ranks share in a run whose name is equal in all sessions."""
    return spec.replace(run_id=_RUN, groups=tuple(map(_rename, spec.groups)))


def _make_unbound_start(settings: BenchSettings, machine: Machine, sizes: Sequence[int]) -> CandidateStart:
    """Return the commands without ompbind; --compat and its variables belong to ompbind too."""
    parts = settings.parse_again([["--no-compat"]] * len(settings.planning.parts)).planning.parts
    spec = _make_spec(parts, settings.planning.run_id or "")
    digest = _make_digest(rank_command.make_unbound_commands(sizes, _rename(spec), machine.allowed), spec)
    candidate = Candidate(name="unbound", kind=Kind.UNBOUND, ranks=sum(sizes), digest=digest)
    commands = rank_command.make_unbound_commands(sizes, spec, machine.allowed)
    return CandidateStart(candidate=candidate, plan=None, commands=commands)


def _merge_equal(starts: Iterable[CandidateStart], *, several: bool) -> list[CandidateStart]:
    """Return the first of all candidates with equal commands, with the names of the others.

    If there are several numbers of ranks, names have theirs. A name that an earlier candidate has gets a
    number: secret values look alike.
    """
    kept: list[CandidateStart] = []
    seen = Counter[str]()
    for start in starts:
        candidate = start.candidate
        name = add_ranks(candidate.name, candidate.ranks) if several else candidate.name
        seen[name] += 1
        name = f"{name} ({seen[name]})" if seen[name] > 1 else name
        at = next((at for at, other in enumerate(kept) if other.commands == start.commands), None)
        if at is None:
            kept.append(start.replace(candidate=candidate.replace(name=name)))
        else:
            same = (*kept[at].candidate.same, name)
            kept[at] = kept[at].replace(candidate=kept[at].candidate.replace(same=same))
    return kept


_RUN = "bench"  # the name of the run in digests, which are equal in all sessions

_DIGESTED = (*OVERRIDING_VARIABLES, *THREAD_COUNTS, LIBUV_VARIABLE, "LD_PRELOAD", "PYTHONPATH")
"""Variables that change where and how ranks run, whether ompbind or the caller sets them."""


def _make_digest(commands: Iterable[rank_command.RankCommand], spec: RunSpec) -> str:
    """Return a digest of what all ranks run, where, and with which variables."""
    added = (name for part in spec.parts for name, _ in part.added_variables)
    names = (*_DIGESTED, *WAIT_VARIABLES, *RANK_VARIABLES, *added)
    parts = [
        (
            command.argv,
            command.directory,
            str(command.cpus),
            str(command.memory),
            [command.env.get(name) for name in names],
        )
        for command in commands
    ]
    return sha256(repr((names, parts)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


_SHOWN_RANKS = 4  # ranks whose CPUs are shown; of more ranks, the first and the last ones
_SHOWN_CPUS = 40  # characters of the CPUs of one rank, at most


def render_candidates(candidates: Sequence[Candidate], refusals: Sequence[Refusal], screen: Screen) -> str:
    """Render the candidates as a table, and the names of the refused ones, a paragraph for each reason."""
    parts = []
    if candidates:
        threads = [str(candidate.threads or "-") for candidate in candidates]
        cpus = [_render_cpus_of_ranks(candidate) for candidate in candidates]
        columns = [
            Column(title="candidate", cells=[candidate.name for candidate in candidates], grows=True),
            Column(title="ranks", cells=[str(candidate.ranks) for candidate in candidates], right=True),
            Column(title="threads", cells=threads, right=True),
            Column(title="CPUs of each rank", cells=cpus, grows=True),
        ]
        if any(candidate.same for candidate in candidates):
            same = ["; ".join(candidate.same) or "-" for candidate in candidates]
            columns.append(Column(title="same plan", cells=same, grows=True))
        parts.append(render_table(columns, screen.text_width))
    if refusals:
        names: dict[str, list[str]] = {}
        for refusal in refusals:
            names.setdefault(refusal.reason, []).append(refusal.name)
        lines = ["cannot run:"]
        for reason, refused in names.items():
            lines.append(render_paragraph(f"  {'; '.join(refused)}", reason, screen.text_width))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _render_cpus_of_ranks(candidate: Candidate) -> str:
    """Return the CPUs of all ranks in short: "0-3 | 4-7", "0 | 1 | ... | 15"."""
    if candidate.kind is Kind.UNBOUND:
        return "not bound"
    texts = [clip(render_cpus(CpuSet.from_list(cpus)), _SHOWN_CPUS) for cpus in candidate.cpus]
    if len(texts) > _SHOWN_RANKS:
        texts = [*texts[: _SHOWN_RANKS - 2], "...", texts[-1]]
    return " | ".join(texts)
