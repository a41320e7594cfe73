"""`ompbind bench`: run a command under several placements, and find out which is best."""

import os
import sys
from collections.abc import Sequence
from statistics import median

import click

from ompbind.bench.records import Refusal
from ompbind.bench.results_file import read_results
from ompbind.bench.start_ranks import CandidateStart
from ompbind.cli.bench_candidates import make_starts
from ompbind.cli.bench_options import SHOWING, render_command
from ompbind.cli.bench_session import run_bench, run_show
from ompbind.cli.bench_settings import BenchSettings
from ompbind.cli.console import print_message, read_screen, write_stderr, write_stdout
from ompbind.cli.groups import split_groups
from ompbind.cli.option import ValueLevel, VerbContext
from ompbind.cli.register import (
    make_local_plan,
    plan_or_suggest,
    read_other_runs,
    read_planning_machine,
)
from ompbind.cli.run_settings import choose_run_id, make_rank_groups
from ompbind.cli.settings import (
    Settings,
    make_planning_settings,
    make_settings,
)
from ompbind.cli.verb import Verb
from ompbind.errors import OptionError, RequestError
from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE
from ompbind.planning.plan import Plan
from ompbind.planning.planner import Requests
from ompbind.report.bench.table import Effort, render_candidates, render_effort
from ompbind.report.text import Screen

EXAMPLES = (
    ("A choice for this machine", "ompbind bench -- ./app"),
    ("Two values of --smt", "ompbind bench --vary smt=1,2 -- ./app"),
    ("Sessions in files", "ompbind bench --show old.jsonl new.jsonl"),
    ("All combinations of values", "ompbind bench --vary smt=1,2 --vary bind=rank,thread -- ./app"),
    ("A number in the output, where more is better",
     "ompbind bench --metric 'tokens/s: ([0-9.]+)' --higher --vary ranks=1,2 -- python generate.py"),
    ("A server under load",
     "ompbind bench --metric 'requests/s: ([0-9.]+)' --higher --until load --name server --ready tcp:8000"
     " --vary smt=1,2 -- python serve.py : --name load -c 1 -- python load.py"),
    ("Masks of two ranks", "ompbind bench -n 2 --vary 'mask=0-3|4-7;0,2,4,6|1,3,5,7' -- ./app"),
    ("Keep results, and go on after an interruption",
     "ompbind bench --results app.jsonl --budget 10m -- ./app"),
    ("Fail if the new session is slower, in CI",
     "ompbind bench --fail-above 5% --show old.jsonl new.jsonl"),
    ("Show the candidates, start nothing", "ompbind bench --vary ranks=1,2,4 --dry-run -- ./app"),
)  # fmt: skip

HELP = """Run a command under several placements in turn, and show which is best, with confidence intervals.
"""

DETAILS = """Candidates are the command without ompbind, the default plan, and each combination of --vary.
Other planning options hold for all candidates, as for 'run'. --env, --env-file, --chdir, --wrap and --fill
also hold for the command without ompbind. Each round runs all candidates once, in random order, and times are
compared within rounds. Candidates with different numbers of ranks are compared only if --metric says
what their work is. In --vary, 'none' resets an option, and a flag has the values yes and
no. The exit code is 0; 1 if no run succeeds or --fail-above is exceeded; 2 after an error; 128 and its
number after a signal.
"""


def make_bench_settings(ctx: click.Context) -> BenchSettings:
    """Return the settings of a command line."""
    assert isinstance(ctx, VerbContext)
    words = ctx.command_words or ctx.params["words"]
    options = list(ctx.typed[: len(ctx.typed) - len(words)])
    if options[-1:] == ["--"]:
        options.pop()

    def parse_again(more: Sequence[Sequence[str]]) -> BenchSettings:
        command, *others = split_groups(words) if ctx.groups else [list(words)]
        for other, its_options in zip(others, more[1:], strict=True):
            at = other.index("--")
            command += [":", *other[:at], *its_options, *other[at:]]
        again = VERB.make_context("bench", [*options, *more[0], "--", *command], parent=ctx.parent)
        return make_bench_settings(again)

    planning = make_planning_settings(ctx)
    vary = tuple(
        (f"{group.params['name']}.{key}" if ctx.groups else key, texts)
        for group in ctx.groups or (ctx,)
        for key, texts in group.params["vary"]
    )
    return make_settings(
        BenchSettings,
        ctx.params,
        planning=planning,
        parts=planning.parts,
        groups=make_rank_groups(planning),
        command=render_command(planning.parts),
        parse_again=parse_again,
        vary=vary,
    )


def bench(ctx: click.Context) -> int:
    """Show sessions, or make candidates and compare them."""
    settings = make_bench_settings(ctx)
    planning = settings.planning
    if settings.show:
        _check_show(planning)
        return run_show(settings)
    if planning.topology != LIVE and not settings.dry_run:
        raise RequestError(
            "--topology: candidates can only run on this machine", hint="add --dry-run, or omit --topology"
        )
    settings = settings.replace(planning=planning.replace(run_id=choose_run_id(planning.run_id)))
    machine = read_planning_machine(*settings.parts)
    starts, refusals = make_starts(settings, machine, _make_plan)
    if not planning.quiet:
        _print_warnings(starts)
    if settings.dry_run:
        write_stdout(_render(settings, starts, refusals, read_screen()))
    elif not starts or ((refusals or not settings.vary) and not planning.quiet):
        write_stderr(_render(settings, starts, refusals, read_screen(sys.stderr)))
    if settings.dry_run or not starts:
        return 0 if starts else 1
    return run_bench(settings, starts, refusals, machine)


def _make_plan(machine: Machine, request: Requests) -> Plan:
    """Plan for this machine, as `run` does, or for another machine that is only shown."""
    make = make_local_plan if machine.source == LIVE else plan_or_suggest
    return make(machine, request, read_other_runs(machine, request, quiet=True))


def _print_warnings(starts: Sequence[CandidateStart]) -> None:
    """Print the warnings of all plans, each once, with the candidates that have it unless these are all."""
    plans = {start.candidate.name: start.plan for start in starts if start.plan}
    names: dict[str, list[str]] = {}
    for name, plan in plans.items():
        for text in dict.fromkeys(note.text for note in plan.all_notes if note.warning):
            names.setdefault(text, []).append(name)
    for text, warned in names.items():
        print_message(f"warning: {text}" + (f" [{'; '.join(warned)}]" if len(warned) < len(plans) else ""))


def _render(
    settings: BenchSettings, starts: Sequence[CandidateStart], refusals: Sequence[Refusal], screen: Screen
) -> str:
    """Return the candidates, and how many runs they may need."""
    candidates = [start.candidate for start in starts]
    path, times = settings.results, list[float]()
    if path and os.path.lexists(path):
        times = [max(run.wall_s) for run in read_results(path).runs if run.wall_s]
    effort = Effort(
        rounds=settings.max_rounds,
        run_s=median(times) if times else None,
        budget_s=settings.budget,
    )
    table = render_candidates(candidates, refusals, screen)
    return f"{table}\n\n{render_effort(candidates, effort, screen)}" if candidates else table


def _check_show(planning: Settings) -> None:
    """Raise for options that have no effect with --show, and for options after the first file."""
    sources = planning.sources
    for name in sources.options:
        if sources.level(name) == ValueLevel.COMMAND_LINE and name not in SHOWING:
            hint = "the files have the options of their sessions"
            raise RequestError(f"{sources.render(name)} has no effect with --show", hint=hint)
    late = next((word for word in planning.words if word.startswith("-")), "")
    if late:
        hint = "write options before the files: --show must be the last option"
        raise OptionError(f"{late} is after the first file of --show", hint=hint)


VERB = Verb(
    "bench",
    bench,
    help=HELP,
    summary="Compare placements of a command, and find the best.",
    page="benchmarking.md",
    examples=EXAMPLES,
    details=DETAILS,
    words="command",
)
