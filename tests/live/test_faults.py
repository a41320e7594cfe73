"""Ranks that misbehave: whatever they do, the run ends in time, with the right code, and leaves nothing."""

import os
import time
from typing import NamedTuple

import pytest

from tests.live.conftest import is_alive, keeper_of, wait_until
from tests.live.scenes import PYTHON, Scene

FOREVER = "while :; do sleep 0.05; done"


@pytest.fixture
def scene(tmp_path):
    one = Scene(tmp_path)
    yield one
    one.close()


class Case(NamedTuple):
    """Options, the script of all ranks, and how the run must end: its code and what it must say.

    Scripts of the shell have the word of the scene as $0 and its folder as $1.
    """

    options: str
    script: str
    code: int
    told: tuple[str, ...] = ()


DEAF = "trap '' TERM INT HUP QUIT"
READY = 'while [ ! -e "$1/ready" ]; do sleep 0.02; done'

SHELL = {
    "deaf, timeout": Case(
        "-n 2 --timeout 0.3 --grace 0.2", f"{DEAF}; {FOREVER}", 124, ("time is up", "with SIGKILL")
    ),
    "deaf, another fails": Case(
        "-n 2 --grace 0.2",
        f'if [ $RANK = 1 ]; then {READY}; exit 9; fi; {DEAF}; touch "$1/ready"; {FOREVER}',
        9,
        ("rank 1 .* exited with 9", "stopping rank 0 with SIGTERM", "stopping rank 0 with SIGKILL"),
    ),
    "deaf, with deaf children": Case(
        "-n 2 --timeout 0.3 --grace 0.2", f"{DEAF}; ({FOREVER}) & ({FOREVER}) & {FOREVER}", 124
    ),
    "a deaf child outlives its rank": Case("--grace 0.2", f"{DEAF}; ({FOREVER}) & exit 0", 0),
    "stops itself": Case("-n 2 --timeout 0.3 --grace 5", "kill -STOP $$", 124, ("with SIGTERM",)),
    "stops itself, alone": Case("--timeout 0.3 --grace 5", "kill -STOP $$", 124),
    "stops itself, deaf": Case("--timeout 0.3 --grace 0.2", f"{DEAF}; kill -STOP $$; {FOREVER}", 124),
    "stops its group": Case("-n 2 --timeout 0.3 --grace 5", "sleep 300 & kill -STOP 0", 124),
    "stops again and again": Case(
        "-n 2 --timeout 0.3 --grace 0.2", "trap 'kill -STOP $$' TERM; while :; do kill -STOP $$; done", 124
    ),
    "a stopped child outlives its rank": Case("", "sh -c 'kill -STOP $$' & sleep 0.1; exit 3", 3),
    "a daemon": Case("", "setsid sleep 300 & exit 0", 0),
    "a daemon of a daemon": Case("", "setsid sh -c 'setsid sleep 300 & sleep 300' & sleep 0.1; exit 0", 0),
    "a daemon with a cleaned environment": Case(
        "-n 2", "env -i setsid sh -c 'sleep 300; :' $0 & sleep 0.05; exit 4", 4
    ),
    "a deaf daemon": Case(
        "--grace 0.2", f"setsid sh -c \"{DEAF}; echo > '$1/ready'; {FOREVER}\" & {READY}; exit 0", 0
    ),
    "a stopped daemon": Case("", "setsid sh -c 'kill -STOP $$' & sleep 0.1; exit 0", 0),
    "orphans of orphans": Case("-n 2", "(((sleep 300 & sleep 300 &) & sleep 300 &) &) ; exit 0", 0),
    "closes its files and runs on": Case(
        "-n 2 --timeout 0.3", "exec <&- >&- 2>&-; sleep 300", 124, ("time is up",)
    ),
    "closes its files and leaves a daemon": Case("-n 2", "exec <&- >&- 2>&-; setsid sleep 300 & exit 0", 0),
    "all die at once": Case("-n 16 --share", "kill -9 $$", 137),
    "all fail at once": Case("-n 16 --share", "exit 6", 6),
    "one of many dies at once": Case("-n 16 --share", "[ $RANK = 5 ] && kill -9 $$; sleep 300", 137),
    "fails during the start of the others": Case(
        "-n 200 --share", "[ $RANK = 3 ] && exit 5; sleep 300", 5, ("rank 3 .* exited with 5", "stopping rank")
    ),
    "fails last, nothing stopped": Case(
        "-n 16 --share --on-failure continue", "[ $RANK = 15 ] && exit 5; exit 0", 5
    ),
    "kills another rank": Case(
        "-n 2", f'echo $$ >"$1/$RANK"; {READY.replace("ready", "0")}; '
        "[ $RANK = 1 ] && { read other <\"$1/0\"; kill -9 $other; }; sleep 300", 137, ("rank 0 .* by SIGKILL",),
    ),
    "stops another rank and fails": Case(
        "-n 2", f'echo $$ >"$1/$RANK"; {READY.replace("ready", "0")}; '
        "[ $RANK = 1 ] && { read other <\"$1/0\"; kill -STOP $other; exit 3; }; sleep 300", 3,
    ),
    "terminates the keeper": Case("-n 2", "kill $PPID; sleep 300", 143, ("stopping ranks? .* with SIGTERM",)),
    "kills the keeper": Case(
        "-n 2", "setsid sleep 300 & sleep 300 & [ $RANK = 1 ] && sleep 0.1 && kill -9 $PPID; sleep 300",
        125, ("process [0-9]+, which held the ranks, was ended by SIGKILL",),
    ),
    "ends the keeper by a signal without a name": Case(
        "-n 2", "sleep 0.1; [ $RANK = 1 ] && kill -32 $PPID; sleep 300", 125, ("was ended by signal 32",)
    ),
    "stops and continues the keeper": Case("-n 2", "kill -STOP $PPID; sleep 0.1; kill -CONT $PPID; exit 2", 2),
}


@pytest.mark.parametrize("case", SHELL.values(), ids=SHELL)
def test_shell(scene, case):
    began = time.monotonic()
    code, said, _ = scene.run(*case.options.split(), *scene.command("sh", "-c", case.script))
    check(case, code, said)
    assert time.monotonic() - began < 10


def check(case, code, said):
    import re

    assert code == case.code, said
    for pattern in case.told:
        assert re.search(pattern, said), said
