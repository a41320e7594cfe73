"""`ompbind bench --show`: the results of sessions in files, and what has changed between several of them."""

from collections.abc import Sequence

from ompbind.bench.compare_sessions import compare_sessions, find_failures
from ompbind.bench.records import Session
from ompbind.bench.results_file import read_results
from ompbind.cli.bench_results import prepare_exports, show_results
from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.settings import BenchSettings
from ompbind.cpuset import count
from ompbind.errors import OptionError, RequestError
from ompbind.report.bench.sessions import render_sessions

_EXCEEDED = 1


def run_show(settings: BenchSettings) -> int:
    """Show a session, or compare several; return 1 if the last one exceeds --fail-above, else 0."""
    if not settings.planning.words:
        raise OptionError("--show: the files are missing", hint="give files of --results after the options")
    sessions = [read_results(path) for path in settings.planning.words]
    if len(sessions) == 1:
        return _show_single(settings, sessions[0])
    return _show_several(settings, sessions)


def _show_single(settings: BenchSettings, session: Session) -> int:
    if settings.fail_above is not None:
        hint = "give the file of an earlier session first, then the file of a later one"
        raise RequestError("--fail-above: only one session is given", hint=hint)
    show_results(settings, session, prepare_exports(settings))
    return 0


def _show_several(settings: BenchSettings, sessions: Sequence[Session]) -> int:
    if settings.export:
        hint = "export each session with a command of its own"
        raise RequestError("--export: several sessions are given", hint=hint)
    comparison = compare_sessions(sessions)
    write_stdout(render_sessions(comparison, read_screen()))
    if settings.fail_above is None:
        return 0
    failures = find_failures(comparison, settings.fail_above)
    for text in failures:
        print_message(f"--fail-above: {text}")
    unknown = [
        change for change in comparison.changes if change.ratio is not None and change.interval is None
    ]
    if unknown:
        few = count(len(unknown), "candidate")
        print_message(f"--fail-above: not checked for {few} with too few runs for an interval")
    return _EXCEEDED if failures else 0
