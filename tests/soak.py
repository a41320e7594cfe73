"""Start random runs: groups, hostile servers, signals, pauses, kills; check how each ends and what is left.

    python -m tests.soak [--number 500] [--seed N]

Each run has a seed of its own: a finding prints it, and `--seed N --number 1` does the same again, as far as
the machine repeats its timing. Checked after each run: its time, its exit code, the last line of --verify,
its report, messages without a traceback, and that no process, claim or file is left. At the end: the
descriptors of this process. Exits with 1 after a finding.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from subprocess import TimeoutExpired

from ompbind.commands.rank_variables import SUPERVISOR_NAME
from ompbind.procfs.reader import read_stat
from tests.live.conftest import OMPBIND, RUNTIME_DIR, children_of, run_program, state_of, wait_until
from tests.live.other_user import NOBODY, as_user, make_public_ompbind, public_directory
from tests.live.scenes import CLEANUP_S, Scene, check_messages
from tests.slurm import find_free_ports
from tests.soak_plans import PAUSES, SERVER, Event, Plan, allowed_codes, allowed_states, make_plan

LIMIT_S = 12.0
"""Seconds that a run may take after the last event; some 5 s are usual for the longest loads."""


def has_supervisor(pid: int) -> bool:
    stats = [read_stat(child) for child in children_of(pid)]
    return any(stat and stat.name == SUPERVISOR_NAME for stat in stats)


def read_program(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")
    return ""


def do(event: Event, process: subprocess.Popen[str], stop: list[str]) -> None:
    """Send a signal to a process of a run, stop the run, or close the reader of its messages."""
    if event.what == "close" and process.stderr:
        process.stderr.close()
    elif event.what == "stop":
        done = run_program(*stop, timeout=LIMIT_S)
        assert "Traceback" not in done.stderr, done.stderr
        if code := re.search(r"exited with code (\d+)", done.stdout):
            assert process.wait(1) % 256 in (int(code[1]), 256 - signal.SIGINT), done.stdout
        else:  # it has finished while it was paused: a shell continues it
            process.send_signal(signal.SIGCONT)
    else:
        if event.what == "resume" and event.target == "foreground":  # SIGSTOP removes an earlier SIGCONT
            wait_until(lambda: process.poll() is not None or state_of(process.pid) == "T", "it is paused")
        if event[1:] == ("SIGSTOP", "supervisor"):  # before it has its name, `ompbind stop` cannot find it
            wait_until(lambda: process.poll() is not None or has_supervisor(process.pid), "the supervisor")
        pids = [process.pid]
        for _ in range(("foreground", "supervisor", "rank").index(event.target)):
            pids = [child for pid in pids for child in children_of(pid)][:1]
        if event.target == "rank" and event.what in PAUSES:  # without its command, its parent waits for it
            pids = [pid for pid in pids if read_program(pid) != read_program(process.pid)]
        with suppress(ProcessLookupError):
            for pid in pids:
                os.kill(pid, signal.Signals[event.what.replace("resume", "SIGCONT")])


def make_words(scene: Scene, plan: Plan) -> list[str]:
    words, names = [*plan.options, "--run-id", scene.marker], "abc"[: len(plan.groups)]
    for name, group in zip(names, plan.groups, strict=True):
        port = str(*find_free_ports(1))
        ready = ("--ready", group.ready.check.replace("PORT", port)) if group.ready else ()
        script = group.load.script.replace("PORT", port)
        words += [*([":"] if name > "a" else []), *(["--name", name] if len(names) > 1 else [])]
        words += [*group.options, *ready, *(["--until", name] if plan.until and name == names[-1] else [])]
        words += scene.command(*([script] if script.startswith("/") else ["sh", "-c", script]))
    return words


def check_run(scene: Scene, plan: Plan, program: str) -> None:
    """Run a plan in the directory of a scene; raises AssertionError for a finding."""
    before = as_user(NOBODY) if plan.as_nobody else []
    (temporary := scene.directory / "tmp").mkdir()
    temporary.chmod(0o777)
    (scene.directory / "large").write_text(f"LARGE={'x' * 140_000}")
    python = os.path.realpath(sys.executable)
    variables = {"SERVER": SERVER, "PYTHON": python, "TMPDIR": str(temporary)}
    is_read, output = "close" not in {each.what for each in plan.events}, scene.directory / "messages"
    with output.open("w") as file:
        process = scene.begin(
            *make_words(scene, plan), before=before, env=scene.environment(**variables), program=program,
            cwd=scene.directory, process_group=0, stdout=subprocess.DEVNULL,
            stderr=file if is_read else subprocess.PIPE,
        )  # fmt: skip
    while not plan.is_early and process.poll() is None:
        if any(map(children_of, children_of(process.pid))):
            break
        time.sleep(0.002)
    for event in plan.events:
        time.sleep(event.after_s)
        do(event, process, [*before, program, "stop", scene.marker])
    try:
        process.wait(LIMIT_S)
    except TimeoutExpired:
        raise AssertionError(f"it has not ended in {LIMIT_S:g} s") from None
    text = output.read_text(errors="replace")
    messages = "".join(re.findall("^ompbind: .*\n(?:  .*\n)*", text, re.M))
    try:
        assert plan.is_early or "Traceback" not in text, text
        scene.check_nothing_left("the run", CLEANUP_S)
        check_end(scene, plan, process.returncode, messages if is_read else None)
        if plan.is_killed:  # the next run removes what it has left
            again = ("run", "-q", "--share", "--report", "run.json", "--", "true")
            run_program(*before, program, *again, cwd=scene.directory)
        check_files(scene)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{messages[-3000:]}") from None


LAST_LINES = {"verified for": "ok", "verified at": "ok", "not as planned": "error", "not seen": "not seen"}
ABOUT_THREADS = re.compile(rf"^ompbind: (?:\w+: )?({'|'.join(LAST_LINES)}|verified|the threads of)", re.M)


def check_end(scene: Scene, plan: Plan, code: int, text: str | None) -> None:
    """Check the exit code, the messages (None without a reader) and the report of a run that has ended."""
    is_whole = not (plan.is_killed or (plan.is_early and plan.events))
    has_verify, is_quiet = "--verify" in str(plan.options), "-q" in plan.options
    states = allowed_states(plan) if has_verify else {"ok"}
    lines = ABOUT_THREADS.findall(text or "")
    found = [LAST_LINES[line] for line in lines if line in LAST_LINES]
    if is_whole:
        check_messages(text or "")
    if has_verify and text is not None and is_whole and not (is_quiet and "ok" in states):
        assert len(found) == 1, f"{len(found)} last lines"
    assert not is_whole or {*lines[-1:]} <= {*LAST_LINES}, f"the last line is {lines[-1:]}"
    # the supervisor may be killed after its last line
    assert len(found) <= has_verify * (1 + plan.is_killed), f"{len(found)} last lines"
    assert {*found} <= states - ({"ok"} if is_quiet else set()), f"last line {found} instead of {states}"
    has_command = not any(group.load.script.startswith("/") for group in plan.groups)
    if "--report" in plan.options and is_whole and not has_command:
        assert not (scene.directory / "run.json").exists(), "a report although a command was not found"
    elif "--report" in plan.options and is_whole:
        assert (scene.directory / "run.json").exists(), "no report"
        report = json.loads((scene.directory / "run.json").read_text())
        assert report["exit_code"] == (128 - code if code < 0 else code), f"{report['exit_code']} in report"
        assert (report["verified"] is not None) == has_verify, "verified in report"
        if has_verify:
            found.append(report["verified"]["state"])
            started = {each["rank"] for each in report["ranks"]}
            ranks = [each["state"] for each in report["verified"]["ranks"] if each["rank"] in started]
            worst = next((each for each in ("error", "not seen", "ok") if each in ranks), found[-1])
            assert {*found} == {worst} <= states, f"report {found}, ranks {ranks} instead of {states}"
    codes = allowed_codes(plan, {*found} or states)
    assert code in codes, f"exit code {code} instead of {codes}, {found}"


def check_files(scene: Scene) -> None:
    names = [name for _, _, names in os.walk(scene.directory) for name in names]
    pattern = r"messages|large|run\.json|([abc]\.)?\d\.(out|err)"
    left = [name for name in names if not re.fullmatch(pattern, name)] + os.listdir(os.environ[RUNTIME_DIR])
    assert not left, f"left files: {left}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    first = random.SystemRandom().randrange(1 << 32) if args.seed is None else args.seed
    findings, open_files = 0, len(os.listdir("/proc/self/fd"))
    with public_directory(0o1777) as claims, public_directory() as copy:
        os.environ[RUNTIME_DIR] = str(claims)
        program = make_public_ompbind(copy) if os.geteuid() == 0 else OMPBIND
        for seed in range(first, first + args.number):
            plan = make_plan(random.Random(seed))
            with public_directory(0o777) as directory:
                scene = Scene(directory)
                try:
                    check_run(scene, plan, program)
                except (AssertionError, TimeoutExpired) as error:
                    findings += 1
                    print(f"seed {seed}: {error}\n  {plan}", flush=True)
                finally:
                    scene.close()
    leaked = len(os.listdir("/proc/self/fd")) - open_files
    print(f"{args.number} runs; {findings} findings, {leaked} descriptors")
    return int(bool(findings or leaked))


if __name__ == "__main__":
    sys.exit(main())
