"""Plans and finished runs for programs: JSON, schemas ompbind-plan/3 and ompbind-run/1."""

import json
from collections.abc import Mapping, Sequence

from ompbind.commands.environment import RunSpec, make_all_variables
from ompbind.commands.rank_command import make_commands
from ompbind.commands.rank_variables import Variables
from ompbind.execution.outcome import HeldCalls, Outcome, RankExit, exit_code, find_error
from ompbind.execution.signals import signal_name
from ompbind.masks.mask import mask_text
from ompbind.planning.metrics import measure_plan
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import Configuration, Request
from ompbind.programs.libraries import DetectedLibrary
from ompbind.report.run_summary import find_hint
from ompbind.report.topology import device_record
from ompbind.report.verification import verified_record


def render_plan_json(plan: Plan, variables: Sequence[Variables] = ()) -> str:
    """Render the plan as JSON, schema ompbind-plan/3, by default for ranks that inherit no variables."""
    if not variables:
        from ompbind.workers.placed import make_changes  # noqa: PLC0415 - door: a plan of a Python program

        ranks = range(len(plan.placements))
        variables = [make_changes(plan, rank, {}, "plan", "all", None) for rank in ranks]
    return json.dumps(plan_record(plan, variables), indent=2)


def plan_record(plan: Plan, variables: Sequence[Variables]) -> dict[str, object]:
    """Return the JSON value of a plan; a run with groups has a record for each group, with its ranks."""
    machine = {
        "source": plan.machine.source,
        "arch": plan.machine.arch,
        "online": str(plan.machine.online),
        "allowed": str(plan.machine.allowed),
        "quota_cpus": plan.machine.quota,
        "bindable": plan.machine.bindable,
    }
    unused = {"idle": str(plan.idle), "taken": str(plan.avoided & plan.machine.allowed)}
    configuration = configuration_record(plan.request.configuration)
    head = {"schema": "ompbind-plan/3", "machine": machine}
    if not plan.groups:
        return {**head, **_part_record(plan, variables, {"configuration": configuration}, unused)}
    groups = []
    for first, part in plan.numbered_parts:
        own = variables[first : first + len(part.placements)]
        groups.append({"group": part.request.group, "first_rank": first, **_part_record(part, own)})
    notes = [note.as_dict() for note in plan.notes]
    unused = {"reserved": str(plan.reserved), **unused}
    return {**head, "configuration": configuration, "groups": groups, **unused, "notes": notes}


def _part_record(
    plan: Plan,
    variables: Sequence[Variables],
    configuration: Mapping[str, object] | None = None,
    unused: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return what the plan of a request decides; `configuration` and `unused` are those of the whole run."""
    metrics, work = measure_plan(plan), plan.request.workload
    return {
        "request": _request_record(plan.request),
        **(configuration or {}),
        "workload": work
        and {
            "program": work.program or None,
            "python": work.python or None,
            "opaque": work.opaque,
            "preload": list(work.preload),
            "libraries": list(map(library_record, work.libraries)),
        },
        "ranks": [_rank_record(*pair) for pair in zip(plan.placements, variables, strict=True)],
        "reserved": str(plan.reserved),
        **(unused or {}),
        "notes": [note.as_dict() for note in plan.notes],
        "measures": {**metrics.as_dict(), "borders": [border.as_dict() for border in metrics.borders]},
    }


def _request_record(request: Request) -> dict[str, object]:
    same = (
        "strategy smt sibling threads processes_per_rank reserve reserve_total cores service_cores"
        " service_total service_each bind proc_bind memory core_kind share sharing allow_partial strict"
        " devices_per_rank share_devices"
    )
    items = [item for part in request.nodes.parts for item in part] if request.nodes else []
    return {
        "ranks": request.ranks,
        "mask": mask_text(request.mask) if request.mask else "auto",
        **{name: getattr(request, name) for name in same.split()},
        "omp_runtime": str(request.omp_runtime or "auto"),
        "nodes": [number for item in items for selector in item.chain for number in selector.numbers],
        "compat": request.compat.framework if request.compat else None,
        "devices": request.devices if request.devices == "auto" else list(map(str, request.devices)),
        "near": list(request.near),
    }


def library_record(found: DetectedLibrary) -> dict[str, object]:
    """Return the JSON value of a library that a command has loaded or may load."""
    return {
        "path": found.library.path,
        "kind": found.library.kind.name,
        "role": str(found.library.kind.role),
        "version": found.library.version,
        "how": str(found.method),
        "by": found.origin,
    }


def _rank_record(placement: Placement, env: Variables) -> dict[str, object]:
    memory = placement.memory
    return {
        "rank": placement.rank,
        "cpus": list(placement.cpus),
        "places": [str(place) for place in placement.places],
        "threads": placement.threads,
        "processes": placement.processes,
        "nodes": list(placement.nodes),
        "memory_nodes": list(placement.memory_nodes),
        "memory": {"mode": str(memory.mode), "nodes": list(memory.nodes)} if memory else None,
        "devices": list(map(device_record, placement.devices)),
        "service_cpus": str(placement.service_cpus),
        "reserved": str(placement.reserved),
        "env": dict(sorted(env.items())),
    }


def configuration_record(configuration: Configuration) -> dict[str, object]:
    """Return the JSON value of the configuration files that were read."""
    return {
        "files": [file.as_dict() for file in configuration.files],
        "ignored": [file.as_dict() for file in configuration.ignored],
        "preset": configuration.preset or None,
        "preset_file": configuration.preset_file or None,
        "digest": configuration.digest or None,
    }


SCHEMA = "ompbind-run/1"


def render_run(plan: Plan | None, spec: RunSpec, outcome: Outcome, started: float) -> str:
    """Render a run as JSON, schema ompbind-run/1, with its ranks in order.

    `plan` is None for a run that failed before it had a plan. `started` is the time of the start in seconds
    of the epoch.
    """
    exits = sorted(outcome.exits, key=lambda rank_exit: rank_exit.rank)
    started_as = {command.rank: command for command in make_commands(plan, spec)} if plan else {}
    planned = plan_record(plan, make_all_variables(plan, spec)) if plan else None
    argv = {own.name: own.argv for own in spec.parts}
    ranks = []
    for rank_exit in exits:
        command = started_as.get(rank_exit.rank)
        own = list(command.argv) if command and command.argv != argv[command.group] else None
        directory = command.directory or None if command else None
        group = (
            {"group": command.group, "group_rank": command.group_rank} if command and command.group else {}
        )
        ranks.append({**_exit_record(rank_exit, outcome), "command": own, "directory": directory, **group})
    throttling, error = outcome.throttling, find_error(outcome)
    hold, held = plan.parts[0].request.hold if plan else None, outcome.held or HeldCalls()
    outside = [dict(zip(("rank", "program", "calls"), each, strict=True)) for each in held.outside]
    commands: dict[str, object] = {"command": list(spec.argv)}
    if plan and plan.groups:
        commands = {"command": None, "commands": {own.name: list(own.argv) for own in spec.groups}}
    record = {
        "schema": SCHEMA,
        "run_id": spec.run_id,
        **commands,
        "started": started,
        "plan": planned,
        "ranks": ranks,
        "exit_code": exit_code(outcome),
        "timed_out": outcome.timed_out,
        "oom_kills": outcome.oom_kills,
        "throttling": throttling
        and {
            "periods": throttling.periods,
            "throttled_periods": throttling.throttled_periods,
            "throttled_s": throttling.throttled_s,
        },
        "held": hold and {"mode": hold, "calls": held.calls, "outside": outside},
        "error": error.message if error else None,
        "troubles": list(outcome.write_errors),
        "verified": verified_record(outcome.verified),
    }
    return json.dumps(record, indent=2)


def _exit_record(rank_exit: RankExit, outcome: Outcome) -> dict[str, object]:
    return {
        "rank": rank_exit.rank,
        "pid": rank_exit.pid,
        "exit_code": rank_exit.code,
        "signal": rank_exit.signal,
        "signal_name": None if rank_exit.signal is None else signal_name(rank_exit.signal),
        "stopped": rank_exit.stopped,
        **rank_exit.usage.as_dict(),
        "hint": find_hint(rank_exit, outcome) or None,
        "last_words": list(rank_exit.last_lines),
        "attempts": [
            {
                "attempt": attempt.attempt,
                "pid": attempt.pid,
                "exit_code": attempt.code,
                "signal": attempt.signal,
                "started": attempt.started,
                "wall_s": attempt.usage.wall_s,
            }
            for attempt in (*rank_exit.earlier, rank_exit)
        ],
    }
