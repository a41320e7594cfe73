"""What `ompbind doctor` found, for people and for programs (JSON, schema ompbind-doctor/1)."""

import json
from collections.abc import Sequence

from ompbind.cpuset import count
from ompbind.doctor.facts import HostFacts
from ompbind.doctor.issue import UNKNOWN, HostIssue
from ompbind.report.plan_json import library_record
from ompbind.report.text import Column, render_table, wrap_indented
from ompbind.severity import Severity
from ompbind.text import plain


def render_issues(issues: Sequence[HostIssue]) -> str:
    """Render findings: problems and notes with reason and remedy, then a line for each that is well."""
    lines: list[str] = []
    for one in issues:
        if one.severity is not Severity.OK:
            texts = (
                f"{one.severity}: {one.subject}: {one.found}",
                f"  why: {one.why}",
                f"  remedy: {one.remedy}",
            )
            lines += [wrap_indented(plain(text)) for text in texts]
    well = [one for one in issues if one.severity is Severity.OK]
    told = [one for one in well if one.found != UNKNOWN]
    if told:
        subjects = Column(title="ok", cells=[plain(one.subject) for one in told])
        found = Column(title="", cells=[plain(one.found) for one in told], grows=True)
        lines += [*([""] if lines else []), render_table([subjects, found])]
    silent = [one.subject for one in well if one.found == UNKNOWN]
    if silent:
        lines.append(wrap_indented(f"not known: {', '.join(silent)}"))
    problems, notes, good = (sum(one.severity is severity for one in issues) for severity in Severity)
    return "\n".join([*lines, "", f"{count(problems, 'error')}, {count(notes, 'note')}, {good} ok"])


def render_issues_json(issues: Sequence[HostIssue], here: HostFacts) -> str:
    """Render findings and the command that they are about as JSON, schema ompbind-doctor/1."""
    record = {
        "schema": "ompbind-doctor/1",
        "problems": sum(one.severity is Severity.ERROR for one in issues),
        "notes": sum(one.severity is Severity.NOTE for one in issues),
        "command": _command(here),
        "findings": [_finding(one) for one in issues],
    }
    return json.dumps(record, indent=2)


def _finding(one: HostIssue) -> dict[str, object]:
    known = {"level": one.severity.json_level, "subject": one.subject, "found": one.found}
    return {"check": one.by, **known, "why": one.why or None, "remedy": one.remedy or None}


def _command(here: HostFacts) -> dict[str, object] | None:
    command, work = here.command, here.workload
    if command is None:
        return None
    return {
        "argv": list(command.argv),
        "program": work.program or None,
        "python": work.python or None,
        "python_version": ".".join(map(str, command.python)) if command.python else None,
        "site": work.site or None,
        "opaque": work.opaque,
        "libraries": list(map(library_record, work.libraries)),
    }
