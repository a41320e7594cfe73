"""What `run` makes of its settings: name, paths, output, options of the supervisor, the rendezvous."""

import os
import sys
import time
from contextlib import ExitStack

from ompbind.cli.checks import TERMINAL, TERMINAL_HINT, reads_terminal
from ompbind.cli.console import print_message, supports_colours
from ompbind.cli.options import CONTINUE, STRICT, make_modes
from ompbind.cli.settings import Settings, make_settings
from ompbind.commands.environment import RunSpec
from ompbind.commands.placeholders import fill
from ompbind.commands.rank_command import make_commands
from ompbind.commands.rank_variables import OMPBIND_RANK, OMPBIND_RUN_ID
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.run_options import Output, RankGroup, RunOptions
from ompbind.launchers.launchers import SLURM
from ompbind.planning.plan import Plan
from ompbind.registry.claims import Claim


def make_rank_groups(settings: Settings) -> dict[str, RankGroup]:
    """Return how the ranks of each group are started and supervised, by the name of the group."""
    return {
        part.name or "": RankGroup(
            stop_on_failure=part.on_failure != CONTINUE,
            restart=None if isinstance(part.on_failure, str) else part.on_failure,
            after=part.after,
            ready_timeout_s=part.ready_timeout,
        )
        for part in settings.parts
    }


def choose_run_id(run_id: str | None) -> str:
    """Return the name of a run: that of --run-id, or a new one from its start and its process.

    Raises RequestError for the name of the enclosing run: processes of both runs would look alike.
    """
    if run_id and run_id == os.environ.get(OMPBIND_RUN_ID):
        hint = "choose another name, or omit --run-id"
        raise RequestError(f"--run-id {run_id}: the enclosing run has this name", hint=hint)
    return run_id or f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def fill_paths(settings: Settings, run_id: str) -> Settings:
    """Return the settings with {run_id} filled in the paths of --log-dir and --report."""
    given = {"log_dir": settings.log_dir, "report": settings.report}
    filled = {name: fill(path, {"run_id": run_id}) for name, path in given.items() if path is not None}
    return settings.replace(**filled)


def make_output(settings: Settings) -> Output | None:
    """Make the output options of the run; None where ranks inherit the output of ompbind."""
    modes = make_modes(settings.output, settings.log_dir)
    if modes == ("inherit",):
        return None
    return Output(
        tag="tag" in modes,
        timestamps=settings.timestamps,
        colours=(supports_colours(sys.stdout), supports_colours(sys.stderr)),
        directory=settings.log_dir,
        force=settings.force,
        pty=settings.pty,
    )


def make_run_options(
    settings: Settings, plan: Plan, spec: RunSpec, output: Output | None, claim: Claim | None
) -> RunOptions:
    """Make the options of the supervisor, which notes restarts in the claim.

    Raises LaunchError where --verify is given and this system shows no threads, and RequestError where the
    plan has a single rank that has the terminal and would be restarted; and as `check_commands`.
    """
    if any(part.ready for part in spec.parts):
        from ompbind.execution.readiness import check_commands  # noqa: PLC0415 - door: --ready

        check_commands(make_commands(plan, spec))
    groups = make_rank_groups(settings)
    restarts = any(group.restart for group in groups.values())
    if restarts and reads_terminal(len(plan.placements), settings.stdin):
        # the checks of options cannot know this with -n auto
        raise RequestError(f"--on-failure restart {TERMINAL}", hint=TERMINAL_HINT)
    expected = None
    if settings.verify is not None:
        from ompbind.inspection.diagnosis import expect_ranks  # noqa: PLC0415 - door: --verify

        if not plan.machine.bindable:
            raise LaunchError("threads cannot be verified on this system", hint="omit --verify")
        expected = expect_ranks(plan, spec.run_id, make_commands(plan, spec))
    return make_settings(
        RunOptions,
        settings.as_dict(),
        run_id=spec.run_id,
        output=output,
        groups=groups,
        until=settings.until or "",
        publish_restarts=claim.publish_restarts if claim and restarts else None,
        stdin_first=settings.stdin == "first",
        expected=expected,
        strict=settings.verify == STRICT,
        hold=settings.request.hold,
        has_quota=plan.machine.quota is not None,
        is_in_slurm_job=any(name in os.environ for name in SLURM.run_id),
    )


def set_up_rendezvous(settings: Settings, spec: RunSpec) -> RunSpec:
    """Add the variables of --rendezvous: an address, a free port of each group, and a unique identifier.

    As torchrun does, ompbind lets the kernel choose free ports, which rank 0 binds itself some time later.
    """
    parts, number = [], len(spec.parts)
    ports = [_AT_START] * number if settings.dry_run else map(str, _choose_ports(number))
    for part, port in zip(spec.parts, ports, strict=True):
        identifier = _AT_START if settings.dry_run else os.urandom(8).hex()
        added = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "VLLM_DIST_IDENT": identifier}
        parts.append(
            part.replace(
                added_variables=(*added.items(), *part.added_variables),
                removed_variables=(*part.removed_variables, _AGENT_STORE),
            )
        )
        new, from_user = {_AGENT_STORE: None, **added}, dict(part.added_variables)
        replaced = [
            f"{name}={value}"
            for name, value in sorted(part.base.items())
            if name in new and name not in from_user and new[name] != value
        ]
        if replaced and not settings.quiet and OMPBIND_RANK not in part.base:
            print_message(f"--rendezvous replaces inherited variables: {', '.join(replaced)}")
    return spec.replace(groups=tuple(parts)) if spec.groups else parts[0]


_AT_START = "chosen at start"  # printed by a dry run
_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
"""A variable of torchrun: with it rank 0 expects torchrun to bind the port, and waits."""


def _choose_ports(number: int) -> list[int]:
    """Return different ports that are free on all addresses, IPv4 and IPv6; raises LaunchError."""
    import socket  # noqa: PLC0415 - door: --rendezvous

    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        with ExitStack() as servers:  # all stay open until the last is chosen, so no port comes twice
            found = (socket.create_server(("", 0), family=family, dualstack_ipv6=both) for _ in range(number))
            return [servers.enter_context(server).getsockname()[1] for server in found]
    except OSError as error:
        hint = "omit --rendezvous, and set MASTER_ADDR and MASTER_PORT with --env"
        raise LaunchError(f"--rendezvous: no free port was found: {error.strerror}", hint=hint) from error
