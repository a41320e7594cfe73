"""`ompbind bench`: run a command under several placements, and find out which is best."""

import gc
import json
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from textwrap import indent
from typing import TypeAlias

from ompbind import __version__
from ompbind.bench.compare_sessions import compare_sessions, render_failure, render_sessions
from ompbind.bench.comparing import ERROR, MAX_ROUNDS, find_least_rounds, make_looks
from ompbind.bench.conditions import read_hardware
from ompbind.bench.decision import conclude
from ompbind.bench.export import EXPORTS
from ompbind.bench.metrics import make_metrics
from ompbind.bench.options import CHECKS, SHOWING, BenchSettings, render_run_words, render_words
from ompbind.bench.plan_candidates import make_starts, render_candidates
from ompbind.bench.progress import open_progress
from ompbind.bench.records import Refusal, Rules, Session, Status
from ompbind.bench.results import (
    CONCLUSION,
    Event,
    list_events,
    make_event,
    mask_session,
    open_results,
    read_results,
)
from ompbind.bench.run_candidate import (
    INTERRUPTS,
    CandidateStart,
    SignalMask,
    catch_interrupts,
    delay_interrupts,
    run_candidate,
)
from ompbind.bench.session import INTERRUPTED, SessionLoop
from ompbind.bench.table import list_choices, render_bench
from ompbind.cli import CONFIGURATION, register
from ompbind.cli.config_defaults import ENV
from ompbind.cli.console import print_message, read_screen, write_stderr, write_stdout
from ompbind.cli.groups import split_groups
from ompbind.cli.option import ValueLevel, VerbContext
from ompbind.cli.options import find_options
from ompbind.cli.report_file import ReportFile, prepare_report, write_report
from ompbind.cli.run_settings import choose_run_id
from ompbind.cli.settings import make_planning_settings, make_settings
from ompbind.cli.verb import Verb
from ompbind.cpuset import count
from ompbind.errors import LaunchError, OptionError, RequestError
from ompbind.execution.job_control import exit_by_interrupt
from ompbind.execution.run_options import RunOptions
from ompbind.execution.spawn import find_executable
from ompbind.launchers.launchers import may_have_launcher
from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE
from ompbind.planning.plan import Plan
from ompbind.planning.request import Requests, Sharing
from ompbind.registry.claims import Claim
from ompbind.registry.registry import Registry, make_own_run
from ompbind.report.text import Screen, render_age, render_paragraph
from ompbind.text import whole_number

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

DETAILS = """Candidates are the command without ompbind, the default plan, and each combination of --vary.
Other planning options hold for all candidates, as for 'run'. --env, --env-file, --chdir, --wrap and --fill
also hold for the command without ompbind. Each round runs all candidates once, in random order, and times are
compared within rounds. Candidates with different numbers of ranks are compared only if --metric says
what their work is. In --vary, 'none' resets an option, and a flag has the values yes and
no. The exit code is 0; 1 if no run succeeds or --fail-above is exceeded; 2 after an error; 128 and its
number after a signal.
"""


def make_bench_settings(ctx: VerbContext) -> BenchSettings:
    """Return the settings of a command line."""
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
        assert isinstance(again, VerbContext)
        return make_bench_settings(again)

    planning = make_planning_settings(ctx)
    first, *others = planning.parts
    further = (word for part in others for word in (":", *render_run_words(part.sources), "--", *part.words))
    vary = tuple(
        (f"{group.params['name']}.{key}" if ctx.groups else key, texts)
        for group in ctx.groups or (ctx,)
        for key, texts in group.params["vary"]
    )
    return make_settings(
        BenchSettings,
        ctx.params,
        planning=planning,
        command=(*first.words, *further),
        parse_again=parse_again,
        vary=vary,
    )


def bench(ctx: VerbContext) -> int:
    """Run a command under several placements in turn, and show which is best, with confidence intervals."""
    if ctx.params["show"]:  # its words are files, so options may follow them
        again = VERB.make_context("bench", [*ctx.typed], parent=ctx.parent, allow_interspersed_args=True)
        assert isinstance(again, VerbContext)
        return run_show(make_bench_settings(again))
    settings = make_bench_settings(ctx)
    planning = settings.planning
    planning.check_topology("candidates")
    settings = settings.replace(planning=planning.replace(run_id=choose_run_id(planning.run_id)))
    machine = register.read_planning_machine(*settings.planning.parts)
    starts, refusals = make_starts(settings, machine, _make_plan)
    if not planning.quiet:
        _print_warnings(settings, starts)
    if planning.dry_run:
        write_stdout(_render(settings, starts, refusals, read_screen()))
    elif not starts or ((refusals or not settings.vary) and not planning.quiet):
        write_stderr(_render(settings, starts, refusals, read_screen(sys.stderr)))
    if planning.dry_run or not starts:
        return 0 if starts else 1
    return run_bench(settings, starts, refusals, machine)


def _make_plan(machine: Machine, request: Requests) -> Plan:
    """Plan for this machine, as `run` does, or for another machine that is only shown."""
    make = register.make_local_plan if machine.source == LIVE else register.plan_or_suggest
    return make(machine, request, register.read_other_runs(machine, request, quiet=True))


def _print_warnings(settings: BenchSettings, starts: Sequence[CandidateStart]) -> None:
    """Print the warnings of all plans, each once, with the candidates that have it unless these are all."""
    if may_have_launcher(os.environ):
        register.warn_about_launcher(None, None, "bench")
    varied = {key for key, _ in settings.vary}
    if {"ompbind", "exec"} <= {*settings.command} and varied <= {"threads", "bind", "proc-bind"}:
        text = "'ompbind exec' in the command takes threads and binding from its own options and variables"
        print_message(f"warning: {text} (write --vary env=OMPBIND_THREADS=1,OMPBIND_THREADS=2)")
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
    table = render_candidates(candidates, refusals, screen)
    if not candidates:
        return table
    rounds = make_rules(settings).max_rounds
    most = f"{len(candidates) * (1 + rounds)} at most"
    text = f"{most}: a warm-up and {count(rounds, 'round')} of all candidates"
    if settings.budget is not None:
        text += f"; --budget stops after {render_age(settings.budget)}"
    # planned looks and comparisons with several references need even more
    least = find_least_rounds(ERROR / max(1, len(candidates) - len({each.ranks for each in candidates})))
    few = "; a clear result needs fewer" if len(make_looks(rounds)) > 1 else ""
    text += few if rounds >= least else f"; too few to decide: --max-rounds {least} at least"
    return f"{table}\n\n{render_paragraph('runs', text, screen.text_width)}"


def run_bench(
    settings: BenchSettings, starts: Sequence[CandidateStart], refusals: Sequence[Refusal], machine: Machine
) -> int:
    """Run or resume a session, show its results, and return the exit code.

    The code is 0; 1 if no run has succeeded; 128 and the number of the signal that stopped the session.
    """
    exports = _prepare_exports(settings)
    _check_programs(starts)
    planning, sources = settings.planning, settings.planning.sources
    options = RunOptions(
        run_id=planning.run_id or "",
        timeout=planning.timeout,
        grace=planning.grace,
        stdin_first=False,
        has_quota=machine.quota is not None,
    )
    new = Session(
        version=__version__,
        started=time.time(),
        hardware=read_hardware(machine),
        command=settings.command,
        options=render_words(sources, sources.options.values()),
        metrics=make_metrics(settings.metric, higher=settings.higher),
        rules=make_rules(settings),
        candidates=tuple(start.candidate for start in starts),
        refusals=tuple(refusals),
    )
    gc.enable()  # __main__ disables it for short commands; a session can last for hours
    with (
        catch_interrupts() as arrived,
        _open_saved(settings, new) as (session, save),
        delay_interrupts() as signal_mask,  # `ompbind stop` finds the session from here on
        _register(settings, starts) as claim,
    ):
        streams = planning.format == "jsonl"
        is_mixed = streams and sys.stdout is not None and sys.stdout.isatty()
        for event in list_events(mask_session(session)) if streams else ():
            _print_event(event)
        with open_progress(quiet=planning.quiet or is_mixed, budget_s=settings.budget) as show_start:
            measure = partial(run_candidate, options, new.metrics)
            show_event = _print_event if streams else None
            loop = SessionLoop(session, starts, measure, save, show_start=show_start, show_event=show_event)
            loop.run(settings.budget, SignalMask(signal.SIG_SETMASK, signal_mask))
        _show_results(settings, loop.session, exports)
        if loop.error:
            raise loop.error
        if loop.session.ended == INTERRUPTED:  # the ranks may get Ctrl-C before this process
            code = 128 + (arrived[0] if arrived else signal.SIGINT)
        else:
            code = 0 if any(run.status is Status.OK for run in loop.session.runs) else 1
        if claim:
            claim.publish_exit(code)
        for number in INTERRUPTS:  # the exit code is decided
            signal.signal(number, signal.SIG_IGN)
    if code == 128 + signal.SIGINT:
        exit_by_interrupt()
    return code


def _check_programs(starts: Sequence[CandidateStart]) -> None:
    """Raise LaunchError if the command of no candidate can be started, for example if its file is missing."""
    errors = []
    for start in starts:
        try:
            find_executable(start.commands[0])
            return
        except LaunchError as error:
            errors.append(error)
    argv = starts[0].commands[0].argv
    if len(argv) > 1 and all(" " in word for word in argv):
        errors[0].hint = "bench runs one command; for two: --vary env=APP=./a,APP=./b -- sh -c '$APP'"
    raise errors[0]


@contextmanager
def _register(settings: BenchSettings, starts: Sequence[CandidateStart]) -> Iterator[Claim | None]:
    """Register the session as a live run until the end of the block; None where that is not possible.

    It has one claim for all its runs, for the CPUs of all candidates. Raises ClaimError as `run` does.
    """
    plans = [start.plan for start in starts if start.plan]
    sharing = plans[0].request.sharing if plans else Sharing.SHARE
    with Registry(sharing, make_own_run(settings.planning.run_id or "", settings.planning.grace)) as registry:
        claim = registry.register_session(plans, settings.planning.request.configuration.digest)
    try:
        yield claim
    finally:
        if claim:
            claim.release()


def make_rules(settings: BenchSettings) -> Rules:
    """Make what the session decides and when it ends; without --seed the order of rounds is random."""
    seed = random.SystemRandom().randrange(1 << 32) if settings.seed is None else settings.seed
    most = settings.max_rounds or (40 if settings.budget is None else MAX_ROUNDS)  # else the time decides
    return Rules(same_work=bool(settings.metric), matters=settings.matters, max_rounds=most, seed=seed)


@contextmanager
def _open_saved(settings: BenchSettings, new: Session) -> Iterator[tuple[Session, Callable[[Event], None]]]:
    """Yield the session with the runs of its results file, and the function that saves an event there.

    The file has no secret values, so only runs, the seed and the start of the session come from it.
    """
    if not settings.results:
        yield new, lambda event: None
        return
    free = {"any_seed": settings.seed is None, "keeps_rounds": settings.max_rounds is None}
    results, saved = open_results(settings.results, mask_session(new), **free)
    if saved.runs and not settings.planning.quiet:
        print_message(f"{settings.results} has {count(len(saved.runs), 'run')}: the session is resumed")
    kept = {"started": saved.started, "rules": saved.rules, "runs": saved.runs, "ended": saved.ended}
    try:
        yield new.replace(**kept), results.append
    finally:
        results.close()


def _print_event(event: Event) -> None:
    write_stdout(json.dumps(event))


Exports: TypeAlias = Sequence[tuple[str, ReportFile | None]]
"""Formats and their files, None for standard output."""


def _prepare_exports(settings: BenchSettings) -> Exports:
    marks = {name: b"" if settings.planning.force else mark for name, (_, mark) in EXPORTS.items()}
    exports = settings.export
    return [(name, prepare_report(path, mark=marks[name]) if path else None) for name, path in exports]


def _show_results(settings: BenchSettings, session: Session, exports: Exports) -> None:
    """Print and export what a session found.

    Standard output has the conclusion as an event, or an export without a file, or else the table. All have
    no secret values.
    """
    conclusion, masked = conclude(session), mask_session(session)
    if settings.planning.format == "jsonl":
        _print_event(make_event(CONCLUSION, conclusion))
    elif all(file for _, file in exports):
        write_stdout(render_bench(masked, conclusion, read_screen(), verbose=settings.planning.verbose))
        found = [candidate for candidate, _, _ in list_choices(masked, conclusion)]
        if len(found) == 1 and found[0].options and not found[0].words:
            lines = indent(render_preset("best", found[0].options), "    ")
            write_stdout(f"\nfor 'ompbind run --preset best', in ompbind.toml:\n{lines}")
    for name, file in exports:
        render, _ = EXPORTS[name]
        text = render(masked, conclusion)
        if file:
            write_report(file, text)
        else:
            write_stdout(text)


def render_preset(name: str, words: Sequence[str]) -> str:
    """Return the table [preset.NAME] of ompbind.toml that has the options of a candidate.

    Strings of JSON are strings of TOML too.
    """
    options, left = {option.key: option for option in find_options("run")}, deque(words)
    values: dict[str, list[str]] = {}
    while left:
        key, equals, text = left.popleft().removeprefix("--").partition("=")
        has_value = key in options and not options[key].is_flag and options[key].bare is None
        values[key] = [*values.get(key, ()), text or left.popleft()] if equals or has_value else []
    lines = [f"[preset.{name}]"]
    for key, texts in values.items():
        quoted = [json.dumps(text, ensure_ascii=False) for text in texts]
        value = "true" if not texts else quoted[0] if len(texts) == 1 else f"[{', '.join(quoted)}]"
        if key == ENV and texts:
            pairs = (map(json.dumps, text.split("=", 1)) for text in texts)
            value = f"{{ {', '.join(map(' = '.join, pairs))} }}"
        elif len(texts) == 1 and options[key].number and whole_number(texts[0]) is not None:
            value = texts[0]
        if key not in options or options[key].section != CONFIGURATION:
            lines.append(f"{key} = {value}")
    return "\n".join(lines)


def run_show(settings: BenchSettings) -> int:
    """Show a session, or compare several; return 1 if the last one exceeds --fail-above, else 0."""
    paths, sources = settings.planning.words, settings.planning.sources
    for name in sources.options:
        if sources.level(name) == ValueLevel.COMMAND_LINE and name not in SHOWING:
            hint = "the files have the options of their sessions"
            raise RequestError(f"{sources.render(name)} has no effect with --show", hint=hint)
    if not paths:
        raise OptionError("--show: the files are missing", hint="give files of --results after the options")
    sessions = [read_results(path) for path in paths]
    if len(sessions) > 1:
        return _show_several(settings, sessions)
    if settings.fail_above is not None:
        hint = "give the file of an earlier session first, then the file of a later one"
        raise RequestError("--fail-above: only one session is given", hint=hint)
    _show_results(settings, sessions[0], _prepare_exports(settings))
    return 0


def _show_several(settings: BenchSettings, sessions: Sequence[Session]) -> int:
    if settings.export:
        hint = "export each session with a command of its own"
        raise RequestError("--export: several sessions are given", hint=hint)
    changes, limit = compare_sessions(sessions), settings.fail_above
    write_stdout(render_sessions(sessions, changes, read_screen()))
    if limit is None:
        return 0
    failures = [change for change in changes if change.has_failed or change.is_slower(limit)]
    for failure in failures:
        print_message(f"--fail-above: {render_failure(failure, limit)}")
    unknown = [change for change in changes if change.ratio is not None and change.interval is None]
    if unknown:
        few = count(len(unknown), "candidate")
        print_message(f"--fail-above: not checked for {few} with too few runs for an interval")
    return 1 if failures else 0


VERB = Verb(
    "bench",
    bench,
    summary="Compare placements of a command, and find the best.",
    page="benchmarking",
    examples=EXAMPLES,
    details=DETAILS,
    words="command",
    checks=CHECKS,
)
