"""Start random runs with random loads, signals, kills and users, and check that nothing is left of each.

    python -m tests.soak [--minutes 30] [--seed N] [--once]

Each run has a seed of its own: a finding prints it, and `--seed N --once` does the same again, as far as the
machine repeats its timing. Checked after each run: its time, its exit code, its report, messages without a
traceback, and that no process, claim or temporary file is left. At the end: the descriptors of this process.
Exits with 1 after a finding.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from itertools import count
from subprocess import TimeoutExpired
from typing import NamedTuple

from tests.live.conftest import OMPBIND, RUNTIME_DIR, children_of
from tests.live.other_user import NOBODY, as_user, make_public_ompbind, public_directory
from tests.live.scenes import CLEANUP_S, Scene, check_messages

LIMIT_S = 30.0
"""Seconds that a run may take: its longest load is stopped after 2 s."""

LOADS = {
    "exit 0": 0,
    "exit 7": 7,
    "sleep 0.3; exit 3": 3,
    "kill -SEGV $$": 128 + signal.SIGSEGV,
    "sleep 0.2; kill -KILL $$": 128 + signal.SIGKILL,
    "exec /no/such/command": 127,
    "sleep 300": None,
    "sleep 300 & sleep 300 & wait": None,
    "trap '' TERM INT HUP QUIT; while :; do sleep 0.05; done": None,
    "trap 'kill -STOP $$' TERM; while :; do sleep 0.05; done": None,
    "setsid sh -c 'sleep 300; :' $0 & exit 0": 0,
    "env -i setsid sh -c 'sleep 300; :' $0 & exit 0": 0,
    "(while :; do echo line; echo error >&2; done) & sleep 0.2; kill $!; exit 0": 0,
    "i=0; while [ $i -lt 30 ]; do (sleep 0.1 &) ; i=$((i+1)); done; exit 0": 0,
    "exec <&- >&- 2>&-; sleep 0.1; exit 0": 0,
    "while :; do :; done": None,
    "kill -USR1 $PPID; kill -HUP $PPID; trap '' USR1 HUP; sleep 0.1; exit 0": None,
    "kill $PPID; sleep 300": 128 + signal.SIGTERM,
}
"""The script of a rank, and its exit code if nothing disturbs it; None for a rank that does not end."""

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
OTHERS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP)


class Plan(NamedTuple):
    """One random run: its options, its load, and what is done to it: (seconds, signal, to the supervisor).

    `is_early` does it while ompbind itself starts: then signals have their default actions. `second` are the
    options of a second group, whose ranks exit with code 0.
    """

    options: tuple[str, ...]
    script: str
    disturbances: tuple[tuple[float, int, bool], ...]
    is_early: bool
    as_nobody: bool
    second: tuple[str, ...] = ()


OPTIONS = (
    ("--verify", 0.3), ("--report run.json", 0.6), ("--output tag", 0.3), ("--log-dir logs", 0.3),
    ("--on-failure continue", 0.2), ("--on-failure restart:2", 0.1), ("--bind none", 0.1),
    ("--bind exact", 0.1), ("--bind thread", 0.1), ("--memory bind", 0.2), ("--smt all", 0.2),
    ("--stdin none", 0.2),
)  # fmt: skip
"""Options with their probability; of options with the same name, the first counts."""


def make_plan(chosen: random.Random) -> Plan:
    script = chosen.choice([*LOADS])
    ranks, grace = chosen.choice((1, 1, 2, 2, 3, 5)), chosen.choice((0.1, 0.3))
    options = ["--share", "-n", str(ranks), "--grace", str(grace), *chosen.choice(((), ("-q",), ("-v",)))]
    if LOADS[script] is None or chosen.random() < 0.3:
        options += ["--timeout", str(chosen.choice((0.2, 0.5, 1)))]
    for text, probability in OPTIONS:
        if chosen.random() < probability and text.split()[0] not in options:
            options += text.split()
    second: tuple[str, ...] = ()
    if chosen.random() < 0.3:
        options += ["--name", "a", *chosen.choice(((), ("--until", "b")))]
        options += chosen.choice(((), ("--ready", "exec:true"), ("--ready", "exec:sleep 0.2")))
        second = ("--name", "b", "-n", str(chosen.choice((1, 3))))
    disturbances = []
    while chosen.random() < 0.45 and len(disturbances) < 4:
        number = chosen.choice((*STOPS, *STOPS, *OTHERS, signal.SIGKILL))
        if number == signal.SIGKILL and any(each[1] == number for each in disturbances):
            continue  # if both processes of ompbind are killed at once, ranks may survive: documented
        after_s = chosen.choice((0.0, 0.005, 0.05, chosen.uniform(0, 1)))
        disturbances.append((after_s, number, chosen.random() < 0.3))
    is_early, as_nobody = chosen.random() < 0.2, os.geteuid() == 0 and chosen.random() < 0.3
    return Plan(tuple(options), script, tuple(disturbances), is_early, as_nobody, second)


def allowed_codes(plan: Plan) -> set[int]:
    """Return the exit codes that the documentation allows; several where the order of events decides."""
    signals, own = [number for _, number, _ in plan.disturbances], LOADS[plan.script]
    codes = {128 + number for number in signals if number in (*STOPS, signal.SIGKILL)}
    codes |= {-number for number in signals if plan.is_early or number in (signal.SIGINT, signal.SIGKILL)}
    codes |= {own or 0}
    codes |= {1} if plan.is_early and signal.SIGINT in signals else set()  # Python itself was starting
    codes |= {124} if "--timeout" in plan.options else set()
    codes |= {125} if signal.SIGKILL in signals or "--ready" in plan.options else set()
    codes |= {0} if "--until" in plan.options else set()
    codes |= {128 + signal.SIGUSR1, 128 + signal.SIGHUP} & {128 + number for number in signals}
    codes |= {128 + signal.SIGUSR1, 128 + signal.SIGHUP} if "USR1" in plan.script else set()
    # a rank that is stopped by the failure of another, or by a signal before the load has begun
    return codes | {128 + signal.SIGTERM, 128 + signal.SIGKILL, 0} if signals or own else codes


def disturb(process, plan: Plan) -> None:
    """Send the signals of a plan; most plans first wait until the supervisor has started a rank."""
    give_up_at = time.monotonic() + LIMIT_S
    while not plan.is_early and process.poll() is None and time.monotonic() < give_up_at:
        if any(map(children_of, children_of(process.pid))):
            break
        time.sleep(0.002)
    for after_s, number, to_supervisor in plan.disturbances:
        time.sleep(after_s)
        pids = children_of(process.pid) if to_supervisor else [process.pid]
        for pid in pids[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            if number == signal.SIGTSTP:
                time.sleep(0.05)
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)


def check_run(scene: Scene, plan: Plan, program: str) -> None:
    """Run a plan in the directory of a scene; raises AssertionError for a finding."""
    before = as_user(NOBODY) if plan.as_nobody else ()
    command = scene.command("sh", "-c", plan.script)
    if plan.second:
        command += [":", *plan.second, *scene.command("sh", "-c", "sleep 0.2 & wait")]
    process = scene.begin(*plan.options, *command, before=before, cwd=scene.directory, program=program)
    disturb(process, plan)
    try:
        _, stderr = process.communicate(timeout=LIMIT_S)
    except TimeoutExpired:
        raise AssertionError(f"it has not ended in {LIMIT_S:g} s") from None
    scene.check_nothing_left("the run", CLEANUP_S)
    is_killed = any(number == signal.SIGKILL for _, number, _ in plan.disturbances)
    if not (is_killed or (plan.is_early and plan.disturbances)):
        check_messages(stderr)
        report, code = scene.directory / "run.json", process.returncode
        # a run that a signal ended before its start may have none
        if "--report" in plan.options and (report.exists() or not plan.disturbances):
            found = json.loads(report.read_text())["exit_code"]
            assert found == (128 - code if code < 0 else code), f"report: {found}, {code}"
    assert process.returncode in allowed_codes(plan), f"exit code {process.returncode}: {stderr}"
    files = [name for _, _, names in os.walk(scene.directory) for name in names]
    files += os.listdir(os.environ[RUNTIME_DIR])
    left = [name for name in files if name.endswith((".tmp", ".new"))]
    assert not left, f"temporary files: {left}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--once", action="store_true")
    args = parser.parse_args()
    first = random.SystemRandom().randrange(1 << 32) if args.seed is None else args.seed
    ends_at = time.monotonic() + 60 * args.minutes
    findings, open_files = 0, len(os.listdir("/proc/self/fd"))
    with public_directory(0o1777) as claims, public_directory() as copy:
        os.environ[RUNTIME_DIR] = str(claims)
        program = make_public_ompbind(copy) if os.geteuid() == 0 else OMPBIND
        for seed in count(first):
            plan = make_plan(random.Random(seed))
            with public_directory(0o777) as directory:
                scene = Scene(directory)
                try:
                    check_run(scene, plan, program)
                except AssertionError as error:
                    findings += 1
                    print(f"seed {seed}: {error}\n  {plan}", flush=True)
                finally:
                    scene.close()
            if args.once or time.monotonic() > ends_at:
                break
    leaked = len(os.listdir("/proc/self/fd")) - open_files
    print(f"{seed - first + 1} runs; {findings} findings, {leaked} descriptors")
    return int(bool(findings or leaked))


if __name__ == "__main__":
    sys.exit(main())
