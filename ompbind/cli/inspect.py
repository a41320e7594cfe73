"""`ompbind inspect`: where the threads of running processes may run, and do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ompbind.cli.click_base import TABLE_OR_JSON, Verb, option
from ompbind.errors import InspectError
from ompbind.severity import Severity

if TYPE_CHECKING:
    from ompbind.inspection.targets import Target

EVERY_S = "2"  # seconds between two looks

EXAMPLES = (
    ("Every live run", "ompbind inspect --all"),
    ("One run, by its name or how that begins, each thread on a line", "ompbind inspect 2026 -v"),
    ("A process that anybody has started, and what it has started", "ompbind inspect 4711"),
    ("Who uses which CPU, every 2 seconds", "ompbind inspect --all --watch"),
    ("The same once, for a program", "ompbind inspect --all --format json"),
)


def _complete(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    from ompbind.inspection.targets import read_runs_here

    return sorted({run.run_id for run in read_runs_here() if run.run_id.startswith(text)})


@click.command(
    "inspect", cls=Verb, examples=EXAMPLES, short_help="Show where running threads may run, and do."
)
@click.argument("what", nargs=-1, metavar="[PID|RUN]...", shell_complete=_complete)
@option("Options", "--all", "all_", is_flag=True, help="Every live run on this machine.")
@option("Options", "-v", "--verbose", "each", is_flag=True, help="Each thread on a line, and all variables.")
@TABLE_OR_JSON
@option(
    "Options", "--watch", metavar="[SECONDS]", is_flag=False, flag_value=EVERY_S,
    help=f"Look again and again, and show how busy CPUs and threads are.  [default: {EVERY_S}]",
)  # fmt: skip
def inspect(what: tuple[str, ...], **options: Any) -> int:
    """Show where the threads of running processes may run, and ran last, and say whether that is well.

    A process is shown with all that it has started, a run with all its ranks. Ranks are held against
    their plan; of other processes it is told whether their threads are in each other's way. Nothing is
    stopped or changed. The exit code is 1 when there is a problem.
    """
    from ompbind.inspection.targets import find_target  # late, as all below: for this verb alone

    interval_s, what = _read_interval(options["watch"], what)
    _refuse(what, {**options, "watch": interval_s})
    target = None if options["all_"] else find_target(what)
    if interval_s:
        from ompbind.cli.inspect_watch import watch_target

        return watch_target(target, interval_s)
    return _show(target, options["format_"], each=options["each"])


def _read_interval(text: str | None, what: tuple[str, ...]) -> tuple[float | None, tuple[str, ...]]:
    """Return the seconds of --watch, and what to look at: a word after --watch that is no number is a run."""
    if text is None:
        return None, what
    try:
        seconds = float(text)
    except ValueError:
        return float(EVERY_S), (text, *what)
    if 0.1 <= seconds <= 3600:
        return seconds, what
    hint = "the number of a process goes before it, as in 'ompbind inspect 4711 --watch'"
    raise InspectError(f"--watch {text}: every 0.1 to 3600 seconds can be looked", hint=hint)


def _refuse(what: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Refuse words that make no sense together."""
    if options["all_"] == bool(what):
        text = "--all already means every run" if what else "name processes or runs, or give --all"
        raise InspectError(text, hint="as in 'ompbind inspect 4711', or 'ompbind inspect --all'")
    if options["watch"] and options["format_"] == "json":
        hint = "call 'ompbind inspect --format json' again and again"
        raise InspectError("--watch is for people", hint=hint)
    if options["watch"] and options["each"]:
        hint = "it shows the busiest threads anyway; without --watch -v shows all of them once"
        raise InspectError("--watch has no room for each thread: leave -v out", hint=hint)


def _show(target: "Target | None", format_: str, *, each: bool) -> int:
    from ompbind.inspection.targets import find_all, inspect
    from ompbind.report.inspect import render_inspection, render_inspection_json
    from ompbind.report.ps import NONE_LIVE

    target = target or find_all()
    seen = inspect(target)
    if format_ == "json":
        click.echo(render_inspection_json(seen))
    elif not target.pids and not target.runs:
        click.echo(NONE_LIVE)
    else:
        click.echo(render_inspection(seen, each=each))
    return 1 if seen.severity is Severity.ERROR else 0
