"""What to do after a session, in words: the recommended candidate of each group, and the command to paste."""

from collections.abc import Iterator

from ompbind.bench.records import ComparisonResult, Conclusion, Group, Kind, Session
from ompbind.cpuset import count
from ompbind.report.bench.measurements import (
    Recommendation,
    join_command,
    list_choices,
    make_command,
    render_interval,
    render_more_rounds,
    render_ratio,
    shorten_name,
)
from ompbind.report.text import Screen, render_paragraph


def render_choices(session: Session, conclusion: Conclusion, screen: Screen) -> Iterator[str]:
    """Yield a paragraph for each group: what is recommended, and the command to paste."""
    chosen = {choice.group: choice for choice in list_choices(session, conclusion)}
    for group in conclusion.groups:
        several = len(conclusion.groups) > 1 and group.ranks is not None
        label = f"recommended for {count(group.ranks or 0, 'rank')}" if several else "recommended"
        choice = chosen.get(group)
        text = _explain_choice(choice, session) if choice else _explain_none(group)
        lines = [render_paragraph(label, text, screen.text_width)]
        if choice and not (choice.candidate.kind is Kind.UNBOUND and choice.candidate.ranks > 1):
            command = make_command(choice.candidate, session.command)
            lines.append(f"    {join_command(command, ascii_only=not screen.draws)}")
        yield "\n".join(lines)


def _explain_choice(choice: Recommendation, session: Session) -> str:
    """Return what is known about a choice, in words."""
    group, comparison = choice.group, choice.comparison
    name, reference = (shorten_name(each, group) for each in (comparison.candidate, group.reference))
    if comparison.result is ComparisonResult.REFERENCE:
        what = ", the command without ompbind" if choice.candidate.kind is Kind.UNBOUND else ""
        others = {each.result for each in group.comparisons if each.candidate != group.reference}
        if others == {ComparisonResult.DISQUALIFIED}:
            return f"nothing was compared: all candidates but {name}{what} have failed"
        return f"no candidate is known to be better than {name}{what}"
    ratio = "-" if comparison.ratio is None else render_ratio(comparison.ratio)
    compared = f"{ratio} times as {'good' if session.metrics[0].pattern else 'fast'} as {reference}"
    interval = f", interval {render_interval(comparison.interval)}" if comparison.interval else ""
    rounds = f"from {count(comparison.rounds, 'round')} after the choice"
    unknown = "which is not confirmed by further rounds"
    return f"{name}, {compared}{interval}, {rounds if comparison.fresh else unknown}"


def _explain_none(group: Group) -> str:
    """Return why nothing is recommended, and how to find out."""
    if not group.reference:
        return "nothing; no candidate could be measured"
    needed = [comparison.more_rounds for comparison in group.comparisons if comparison.more_rounds]
    if not needed:
        return "nothing yet; the runs do not show which candidate is better"
    return (
        f"nothing yet; {render_more_rounds(min(needed))} would decide (see --max-rounds, --budget, --results)"
    )
