"""The results of a session on standard output and in files: of a session that has run, or of a file."""

from collections.abc import Sequence

from ompbind.bench.compare_sessions import compare_sessions, find_failures
from ompbind.bench.decision import conclude
from ompbind.bench.events import make_conclusion_event, mask_session, render_event
from ompbind.bench.records import Conclusion, Kind, Session
from ompbind.bench.results_file import read_results
from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.settings import BenchSettings
from ompbind.cpuset import count
from ompbind.errors import OptionError, RequestError
from ompbind.execution.report_file import ReportFile, prepare_report, write_report
from ompbind.record import Record
from ompbind.report.bench.export import EXPORTS
from ompbind.report.bench.measurements import list_choices
from ompbind.report.bench.sessions import render_sessions
from ompbind.report.bench.table import render_bench


class ExportFile(Record):
    """A format of --export, and its file; None is standard output."""

    format: str
    file: ReportFile | None


def prepare_exports(settings: BenchSettings) -> tuple[ExportFile, ...]:
    """Check that all exports can be written; raises RequestError."""
    return tuple(
        ExportFile(format=name, file=prepare_report(path) if path else None) for name, path in settings.export
    )


def show_results(settings: BenchSettings, session: Session, exports: Sequence[ExportFile]) -> Conclusion:
    """Print and export what a session found, and return it.

    Standard output has the conclusion as an event, or an export without a file, or else the table. Exports
    have no secret values.
    """
    conclusion = conclude(session)
    if settings.format == "jsonl":
        write_stdout(render_event(make_conclusion_event(conclusion)))
    elif all(export.file for export in exports):
        write_stdout(render_bench(session, conclusion, read_screen(), verbose=settings.planning.verbose))
    masked = mask_session(session)
    for export in exports:
        text = EXPORTS[export.format].render(masked, conclusion)
        if export.file:
            write_report(export.file, text)
        else:
            write_stdout(text)
    return conclusion


def check_choice(settings: BenchSettings) -> None:
    """Check that the preset of --save-preset can be saved; raises ConfigurationError."""
    if settings.save_preset:
        from ompbind.cli.save_preset import check_preset  # noqa: PLC0415 - door: tomlkit

        check_preset(settings.save_preset, settings)


def save_choice(settings: BenchSettings, session: Session, conclusion: Conclusion) -> None:
    """Save the recommended options as the preset of --save-preset, or print why no preset is saved."""
    name, choices = settings.save_preset, list(list_choices(session, conclusion))
    bound = [choice.candidate for choice in choices if choice.candidate.kind is not Kind.UNBOUND]
    if not name:
        return
    if len(choices) == len(bound) == 1:
        from ompbind.cli.save_preset import save_preset  # noqa: PLC0415 - door: tomlkit

        path = save_preset(name, bound[0], settings)
        print_message(f"{bound[0].name} is saved as preset {name} in {path}")
        return
    why = "no candidate is recommended" if not choices else "the command without ompbind is recommended"
    if len(choices) > 1:
        why = "different numbers of ranks are not compared, so several candidates are recommended"
    print_message(f"warning: --save-preset {name}: nothing is saved: {why}")


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
