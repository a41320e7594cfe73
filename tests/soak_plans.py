"""Random plans of the soak program: what each run is given and what is done to it, and how it may end.

`allowed_codes` and `allowed_states` follow the documentation, not the code.
"""

import os
import random
import re
import shlex
import signal
from typing import NamedTuple

CPUS = sorted(os.sched_getaffinity(0))
MOVE = f"taskset -pc {','.join(map(str, CPUS))} $$ >/dev/null; "
"""A rank leaves the one CPU that it was given."""


class Load(NamedTuple):
    """What a rank does: a script of sh, or the path of a program.

    `code` is its exit code if nothing disturbs it, None if it does not end; with a restart it is `last`.
    `moves` is for how many seconds it has left its CPU.
    """

    script: str
    code: int | None = None
    last: int | None = None
    moves: float = 0.0


PLAIN = tuple(Load(script, code) for script, code in {
    "exit 0": 0,
    "sleep 0.3; exit 3": 3,
    "kill -SEGV $$": 128 + signal.SIGSEGV,
    "sleep 0.2; kill -KILL $$": 128 + signal.SIGKILL,
    "exec /no/such/command": 127,
    "sleep 300": None,
    "trap '' TERM INT HUP QUIT; while :; do sleep 0.05; done": None,
    "trap 'kill -STOP $$' TERM; while :; do sleep 0.05; done": None,
    "setsid sh -c 'sleep 300; :' $0 & exit 0": 0,
    "env -i setsid sh -c 'sleep 300; :' $0 & exit 0": 0,
    "(while :; do echo line; echo error >&2; done) & sleep 0.2; kill $!; exit 0": 0,
    "i=0; while [ $i -lt 30 ]; do (sleep 0.1 &) ; i=$((i+1)); done; exit 0": 0,
    "exec <&- >&- 2>&-; sleep 0.1; exit 0": 0,
    "while :; do :; done": None,
    "kill -USR1 $PPID; kill -HUP $PPID; trap '' USR1 HUP; sleep 0.1; exit 0": 0,
    "kill $PPID; sleep 300": None,
    "/no/such/command": 127,
    "/etc/passwd": 126,
}.items())  # fmt: skip

MOVING = (
    Load(f"{MOVE}sleep 300", moves=300),
    Load(f"{MOVE}sleep 2", 0, moves=2),
    Load(f"{MOVE}sleep 2; exit 3", 3, moves=2),
    Load(f"test $OMPBIND_ATTEMPT = 2 || {{ {MOVE}sleep 2; exit 5; }}", 5, 0, moves=2),
    Load(f"{MOVE}sleep 0.05; taskset -pc $OMPBIND_CPUS $$ >/dev/null; sleep 1", 0, moves=0.05),
)
"""Loads that --verify has to notice, if they last long enough for two samples."""

SERVER = """
import socket, sys, time
first, again = eval(sys.argv[1])
server, kept = socket.create_server(("127.0.0.1", int(sys.argv[2]))), []
while True:
    client, _ = server.accept()
    try:
        client.sendall(first)
        while again:
            client.sendall(again)
            time.sleep(0.02)
    except OSError:
        continue
    kept += [client] * (again is not None)
"""
"""A server that writes something to each client, one by one, and then something again and again."""


def serve(first: bytes, again: bytes | None = b"") -> str:
    """Return the script of a server; without `again` it closes a connection after its first answer."""
    return f'exec $PYTHON -I -S -c "$SERVER" {shlex.quote(repr((first, again)))} PORT 2>/dev/null'


class Ready(NamedTuple):
    """What --ready asks, whether it ever succeeds, and the script that it asks, "" for any."""

    check: str
    succeeds: bool
    script: str = ""


HTTP = "http://127.0.0.1:PORT/"
LINES = f"while :; do echo {'a' * 40}b; sleep 0.01; done"
REPLACE_LOGS = 'cd "$1"/logs; rm $OMPBIND_GROUP.0.*; {} $OMPBIND_GROUP.0.out; sleep 300'

READY = (
    Ready("exec:true", True),
    Ready("exec:sh -c 'sleep 300 & exit 0'", True),
    Ready("exec:false", False),
    Ready("exec:sleep 300", False),
    Ready("exec:sh -c 'setsid sleep 300 & exit 1'", False),
    Ready("exec:sh -c 'kill -STOP $$'", False),
    Ready("""exec:sh -c 'trap "" TERM INT; sleep 300 & while :; do sleep 1; done'""", False),
    Ready("tcp:PORT", False, "sleep 300"),
    Ready("tcp:PORT", True, serve(b"")),
    Ready(HTTP, True, serve(b"HTTP/1.1 200 OK\r\n\r\n", None)),
    Ready(HTTP, True, serve(b"HTTP/1.1 200 OK\r\n\r\n", b"an answer that never ends")),
    Ready(HTTP, False, serve(b"HTTP/1.1 500 wrong\r\n\r\n", None)),
    Ready(HTTP, False, serve(b"")),
    Ready(HTTP, False, serve(b"", None)),
    Ready(HTTP, False, serve(b"\0\xff garbage\n" * 1000, None)),
    Ready(HTTP, False, serve(b"HTTP/1.1 2", b"0")),
    Ready(HTTP, False, serve(b"HTTP/1.1 200 OK\r\nX: ", b"y")),
    Ready("text:^up$", True, "sleep 0.1; echo up; sleep 300"),
    Ready("text:^up$", True, f"echo up >&2; {LINES}"),
    Ready("text:^(a|aa)+c", False, LINES),
    Ready("text:^(a|aa)+c", False, f"head -c 3000000 /dev/zero | tr '\\0' a; {LINES}"),
    Ready("text:^root", False, REPLACE_LOGS.format("mkfifo")),
    Ready("text:^root", False, REPLACE_LOGS.format("ln -s /etc/passwd")),
)


class Group(NamedTuple):
    """The ranks of one command. `ready` is for the group after it."""

    options: tuple[str, ...]
    load: Load
    ready: Ready | None = None


class Event(NamedTuple):
    """A signal, or "stop" (by ompbind), "resume" (after a pause) or "close" (the reader of messages)."""

    after_s: float
    what: str
    target: str = "foreground"


class Plan(NamedTuple):
    """One random run: its options, its groups, whether the last one has --until, and what is done to it.

    `is_early` does it while ompbind itself starts: then signals have their default actions.
    """

    options: tuple[str, ...]
    groups: tuple[Group, ...]
    until: bool = False
    events: tuple[Event, ...] = ()
    is_early: bool = False
    as_nobody: bool = False

    @property
    def scripts(self) -> list[str]:
        return [group.load.script for group in self.groups]

    @property
    def is_killed(self) -> bool:
        return any(event.what == "SIGKILL" and event.target != "rank" for event in self.events)


STOPS, OTHERS = ("SIGTERM", "SIGINT", "SIGQUIT"), ("SIGHUP", "SIGUSR1", "SIGWINCH", "SIGCONT")
PAUSES, DEADLY = ("SIGSTOP", "SIGTSTP"), (*STOPS, "SIGHUP", "SIGUSR1", "SIGKILL")

OPTIONS = (
    ("--verify", 0.3), ("--verify=strict", 0.5), ("--report run.json", 0.6), ("--output tag", 0.3),
    ("--log-dir logs", 0.3), ("--stdin none", 0.2),
)  # fmt: skip
"""Options of a run with their probability; of options with the same name, the first counts."""

OF_GROUPS = (
    ("--on-failure continue", 0.2), ("--on-failure restart:1", 0.3), ("--bind none", 0.1),
    ("--bind exact", 0.1), ("--bind thread", 0.1), ("--env-file large", 0.03),
    ("--memory bind", 0.05),
)  # fmt: skip


def choose_options(chosen: random.Random, rows: tuple[tuple[str, float], ...]) -> list[str]:
    options: dict[str, str] = {}
    for text, probability in rows:
        if chosen.random() < probability:
            options.setdefault(re.split("[ =]", text)[0], text)
    return " ".join(options.values()).split()


def make_events(chosen: random.Random) -> list[Event]:
    events: list[Event] = []
    while chosen.random() < 0.45 and len(events) < 5:
        after_s = chosen.choice((0.0, 0.005, 0.05, chosen.uniform(0, 1)))
        what = chosen.choice((*STOPS, *STOPS, *OTHERS, *PAUSES, "SIGTSTP", "SIGKILL", "stop", "close"))
        target = chosen.choice(("foreground", "foreground", "supervisor", "rank"))
        if what == "SIGTSTP" and target == "supervisor":
            continue  # then SIGCONT to the foreground process may overtake it
        if what == "SIGKILL" and "SIGKILL" in {each.what for each in events}:
            continue  # if both processes of ompbind are killed at once, ranks may survive: documented
        events.append(Event(after_s, what, target))
        if what in PAUSES and target != "rank":
            end = "stop" if chosen.random() < 0.3 else "resume"
            events.append(Event(chosen.choice((0.05, 0.3)), end, target))
    return events


def make_plan(chosen: random.Random) -> Plan:
    groups, number = [], chosen.choice((1, 1, 1, 2, 2, 3))
    for left in reversed(range(number)):
        load = chosen.choice(MOVING if chosen.random() < 0.25 and len(CPUS) > 1 else PLAIN)
        ready = chosen.choice(READY) if left and chosen.random() < 0.6 else None
        ranks, options = chosen.choice((1, 1, 2, 2, 3, 5)), choose_options(chosen, OF_GROUPS)
        if ready:
            options += ["--ready-timeout", "5" if ready.succeeds else chosen.choice(("0.3", "0.6", "1"))]
        if ready and ready.script:
            load, ranks = Load(ready.script), 1
        options += ["--ranks", str(ranks), *(["--mask", str(CPUS[0])] if load.moves else [])]
        groups.append(Group(tuple(options), load, ready))
    events, is_root, text = make_events(chosen), os.geteuid() == 0, str(groups)
    options = ["--share", "--grace", chosen.choice(("0.1", "0.3")), *choose_options(chosen, OPTIONS)]
    options += chosen.choice(((), (), ("-q",), ("-v",)))
    options += ["--log-dir", "logs"] if "text:" in text and "--log-dir" not in options else []
    is_early = "stop" not in str(events) and chosen.random() < 0.2
    ends = {each.what for each in events if each.what == "stop" or each.target != "rank"} & {*STOPS, "stop"}
    stays = any(each.what in PAUSES and each.target == "rank" for each in events)
    if (stays or any(each.load.code is None for each in groups)) and (is_early or not ends):
        moves = any(each.load.moves for each in groups)
        options += ["--timeout", "2.5" if moves else chosen.choice(("0.2", "0.5", "1"))]
    return Plan(
        options=tuple(options),
        groups=tuple(groups),
        until=number > 1 and chosen.random() < 0.5,
        events=tuple(events),
        is_early=is_early,
        as_nobody=is_root and "SERVER" not in text and chosen.random() < 0.3,
    )


def natural_codes(plan: Plan) -> set[int]:
    """Return the exit codes of a run that nothing disturbs, several where the order of exits decides."""
    if wrong := {each.load.code or 0 for each in plan.groups if each.load.script.startswith("/")}:
        return wrong
    codes, ends = set[int](), list[int | None]()
    for group in plan.groups:
        if "large" in group.options:  # too long for the kernel
            codes.add(126)
            break
        restarts = "restart:1" in group.options and group.load.last is not None
        ends.append(group.load.last if restarts else group.load.code)
        if group.ready:
            codes |= {125} if ends[-1] is not None or not group.ready.succeeds else set()
            if not group.ready.succeeds:
                break
    else:
        codes |= {0} if {*(ends[-1:] if plan.until else ends)} == {0} else set()
    return codes | {code for code in ends if code}


def allowed_codes(plan: Plan, states: set[str]) -> set[int]:
    """Return the exit codes that the documentation allows, for a run with one of these states of --verify."""
    codes, names = natural_codes(plan), {each.what for each in plan.events}
    names |= {"SIGTERM"} if "stop" in names or "kill $PPID; sleep 300" in plan.scripts else set()
    names |= {"SIGUSR1", "SIGHUP"} if "USR1" in str(plan.scripts) else set()
    numbers = {signal.Signals[name] for name in names if name in DEADLY}
    codes |= {128 + number for number in numbers}
    if not names.isdisjoint(STOPS):  # the next steps, and of a rank that would have started again
        codes |= {143, 137, *(each.load.code or 143 for each in plan.groups)}
    codes |= {-number for number in numbers if plan.is_early or number in (signal.SIGINT, signal.SIGKILL)}
    codes |= {1} if plan.is_early and "SIGINT" in names else set()  # Python itself was starting
    codes |= {124} if "--timeout" in plan.options else set()
    codes |= {125} if plan.is_killed or (numbers and any(each.ready for each in plan.groups)) else set()
    codes |= {128 + signal.SIGPIPE} if "close" in names else set()
    if "--verify=strict" in plan.options and states != {"ok"}:
        codes = (codes - ({0} if "ok" not in states else set())) | {125}
    return codes


def allowed_states(plan: Plan) -> set[str]:
    if any(script.startswith("/") for script in plan.scripts) or "large" in plan.groups[0].options:
        return {"not seen"}
    loads, states = [each.load for each in plan.groups], {"ok"}
    is_started = not any(each.ready or "large" in each.options for each in plan.groups)
    is_calm = is_started and not (plan.events or plan.until or "PPID" in str(loads) or "0.2" in plan.options)
    if any(each.moves for each in loads):
        lasts = is_calm and all(each.moves > 1 or each.code == 0 for each in loads)
        states = {"error"} if lasts and any(each.moves > 1 for each in loads) else {"error", "ok"}
    return states | ({"not seen"} if plan.is_early or plan.is_killed else set())
