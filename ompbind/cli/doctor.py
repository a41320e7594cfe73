"""`ompbind doctor`: what on this machine or in this environment would break a binding."""

import json
import os
from collections import Counter
from collections.abc import Sequence

from ompbind.cli.config_files import read_found_files
from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.option import VerbContext
from ompbind.cli.options import find_unknown_variables, find_variables
from ompbind.cli.verb import Verb, make_format_option
from ompbind.cpuset import count
from ompbind.doctor.all_checks import run_checks
from ompbind.doctor.facts import UNKNOWN, HostFacts, HostIssue
from ompbind.doctor.read import read_host
from ompbind.report.plan_json import library_record
from ompbind.report.text import PIPE, Column, Screen, render_table, wrap_indented
from ompbind.text import Severity, clean_lines, mask_words

EXAMPLES = (
    ("This machine and this environment", "ompbind doctor"),
    ("The same, and what a server would run", "ompbind doctor -- python serve.py"),
    ("The same, as JSON", "ompbind doctor --format json -- python serve.py"),
)

OPTIONS = (make_format_option("doctor", "text", "json"),)


def doctor(ctx: VerbContext) -> int:
    """Find what on this machine or in this environment would break a binding, each with its remedy.

    With a command, its Python, its OpenMP runtimes and its thread pools are checked too; the command is not
    started. The exit code is 1 if there is an error, not for notes.
    """
    env = dict(os.environ)
    files = (f"{file.kind} file {file.path}" for file in read_found_files(env).read)
    host = read_host(ctx.params["words"], env, find_variables(), tuple(find_unknown_variables(env)), files)
    issues = run_checks(host)
    is_json = ctx.params["format"] == "json"
    write_stdout(render_issues_json(issues, host) if is_json else render_issues(issues, read_screen()))
    return 1 if any(issue.severity is Severity.ERROR for issue in issues) else 0


def render_issues(issues: Sequence[HostIssue], screen: Screen = PIPE) -> str:
    """Render errors and notes with reason and remedy, then a line for each result that is OK."""
    width = screen.text_width
    lines: list[str] = []
    for issue in issues:
        if issue.severity is not Severity.OK:
            texts = [f"{issue.severity}: {issue.subject}: {issue.found}", f"  why: {issue.why}"]
            texts.append(f"  remedy: {issue.remedy}")
            lines += [wrap_indented(clean_lines(text), width) for text in texts]
    passed = [issue for issue in issues if issue.severity is Severity.OK]
    known = [issue for issue in passed if issue.found != UNKNOWN]
    if known:
        subjects = Column(title="ok", cells=[clean_lines(issue.subject) for issue in known])
        found = Column(title="", cells=[clean_lines(issue.found) for issue in known], grows=True)
        lines += [*([""] if lines else []), render_table([subjects, found], width)]
    unknown = [issue.subject for issue in passed if issue.found == UNKNOWN]
    if unknown:
        lines.append(wrap_indented(f"{UNKNOWN}: {', '.join(unknown)}", width))
    numbers = Counter(issue.severity for issue in issues)
    errors, notes = count(numbers[Severity.ERROR], "error"), count(numbers[Severity.NOTE], "note")
    return "\n".join([*lines, "", f"{errors}, {notes}, {numbers[Severity.OK]} ok"])


def render_issues_json(issues: Sequence[HostIssue], host: HostFacts) -> str:
    """Render the results and the command as JSON, schema ompbind-doctor/1."""
    command, work = host.command, host.workload
    record = {
        "schema": "ompbind-doctor/1",
        "problems": sum(issue.severity is Severity.ERROR for issue in issues),
        "notes": sum(issue.severity is Severity.NOTE for issue in issues),
        "command": command
        and {
            "argv": list(mask_words(command.argv)),
            "program": work.program or None,
            "python": work.python or None,
            "python_version": ".".join(map(str, command.python)) if command.python else None,
            "site": work.site_packages or None,
            "opaque": work.opaque,
            "libraries": list(map(library_record, work.libraries)),
        },
        "findings": [
            {
                "check": issue.check_name,
                "level": issue.severity.json_level,
                "subject": issue.subject,
                "found": issue.found,
                "why": issue.why or None,
                "remedy": issue.remedy or None,
            }
            for issue in issues
        ],
    }
    return json.dumps(record, indent=2)


VERB = Verb(
    "doctor",
    doctor,
    summary="Find what would break a binding on this machine.",
    page="first-aid",
    examples=EXAMPLES,
    words="optional command",
)
