"""The candidates of a session before it starts: what each gets, what cannot run, how long all may take."""

from collections.abc import Sequence

from ompbind.bench.records import Candidate, Kind, Refusal
from ompbind.cpuset import CpuSet, count
from ompbind.record import Record
from ompbind.report.ps import render_age
from ompbind.report.text import Column, Screen, clip, render_cpus, render_paragraph, render_table

_SHOWN_RANKS = 4  # ranks whose CPUs are shown; of more ranks, the first and the last ones
_SHOWN_CPUS = 40  # characters of the CPUs of one rank, at most
_TYPICAL_RUN_S = 10.0  # seconds of a run where nothing is known about its time


class Effort(Record):
    """How much a session may run: `rounds` of each of its two phases, and seconds of a run, None if unknown.

    With `same_work`, different numbers of ranks are compared. `budget_s` is when it stops, None for no limit.
    """

    rounds: int
    same_work: bool
    run_s: float | None = None
    budget_s: float | None = None


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


def render_effort(candidates: Sequence[Candidate], effort: Effort, screen: Screen) -> str:
    """Render how many runs a session has at most, and how long these take.

    The second phase runs the best candidate and the command without ompbind, of each number of ranks if these
    are not compared.
    """
    groups = 1 if effort.same_work else len({candidate.ranks for candidate in candidates})
    most = len(candidates) * (1 + effort.rounds) + 2 * groups * effort.rounds
    run_s = effort.run_s or _TYPICAL_RUN_S
    shown = f"{run_s:.2g}" if run_s < _TYPICAL_RUN_S else f"{run_s:.0f}"
    text = (
        f"{count(most, 'run')} at most: a warm-up and {count(effort.rounds, 'round')} of all candidates, then"
        f" {count(effort.rounds, 'round')} of the best and of unbound; about"
        f" {render_age(most * run_s)} if a run takes {shown} s"
    )
    if effort.budget_s is not None:
        text += f", but --budget stops after {render_age(effort.budget_s)}"
    return render_paragraph("time", f"{text}; a clear result needs fewer", screen.text_width)
