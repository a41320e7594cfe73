"""What a session shows while it runs: a line on a terminal, a note in a pipe."""

import os
import re
import shlex
import signal
from contextlib import suppress

import pytest

from ompbind.bench.results import read_results
from tests.live.conftest import OMPBIND, clean_environment, start_in_terminal
from tests.long import rounds

SESSION = ("bench", "--vary", "bind=rank", "--max-rounds", "3")
"""A session of two candidates: the default plan has the CPUs of the varied one."""
COMMAND = ("--", "sleep", "0.05")


def run_on_terminal(columns, *options, stop_at=None):
    """Return what a session writes to a terminal of a width, and its exit code; Ctrl-C comes after a text."""
    words = shlex.join([OMPBIND, *SESSION, *options, *COMMAND])
    shell = ["sh", "-c", f"stty cols {columns}; exec {words}"]
    process, screen = start_in_terminal(shell, clean_environment(TERM="xterm"))
    output = b""
    with suppress(OSError):  # the terminal is closed, and everything is read
        while block := os.read(screen, 1 << 16):
            output += block
            if stop_at and stop_at in block:  # shown just before the fork
                stop_at = os.write(screen, b"\x03") != 1
            elif b"round" in block:
                assert len(os.listdir(f"/proc/{process}/task")) == 1, "threads and forks do not mix"
    os.close(screen)
    return output.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


CURSOR = r"\x1b\[\?25[lh]"


def read_lines(text, columns):
    """Return the texts that followed each other on the line, and the text after the line was removed."""
    shown, _, after = re.sub(rf"{CURSOR}|\^C", "", text).rpartition("\r\n\r\x1b[1A\x1b[2K")
    *lines, last = shown.split("\r\x1b[2K")
    assert last == lines[-1]  # drawn again before it is removed
    assert max(map(len, lines)) < columns
    assert "\x1b" not in "".join(lines)
    assert re.findall(CURSOR, text)[-1] == "\x1b[?25h", "the cursor is visible"
    return lines, after


@pytest.mark.parametrize("columns", [40, 160])
def test_a_line_is_replaced_before_each_run_and_removed_at_the_end(columns):
    text, code = run_on_terminal(columns)
    lines, after = read_lines(text, columns)
    assert code == 0
    assert [line.split(":")[0] for line in lines] == [
        *["warm-up"] * 2, *["round 1/3"] * 2, *["round 2/3"] * 2, *["round 3/3"] * 2,
    ]  # fmt: skip
    assert ["at most" in line for line in lines[:2]] == [False, True]
    name = "(unbound|default)"
    full = rf"round 2/3: {name} \(0\.\d+ s\), at most \d+ s left, best so far: {name}"
    assert bool(re.fullmatch(full, lines[4])) == (columns == 160)
    assert after.startswith("command: sleep 0.05")


def test_ctrl_c_reaches_all_processes_and_the_session_ends_once(tmp_path):
    """A process that is just forked must not save and show the session too."""
    for number in range(rounds(3)):
        path = tmp_path / f"{number}.jsonl"
        text, code = run_on_terminal(80, "--results", str(path), stop_at=b"round 2/3")
        assert code == -signal.SIGINT
        _, after = read_lines(text, 80)
        assert (text.count("session: "), after.count("interrupted")) == (1, 1)
        assert (read_results(str(path)).ended, path.read_text().count("interrupted")) == ("interrupted", 1)


def test_quiet_sessions_show_no_line():
    assert run_on_terminal(80, "--quiet")[0].startswith("command: sleep 0.05")


def test_without_a_terminal_a_note_says_how_long_it_takes(ompbind):
    done = ompbind(*SESSION, *COMMAND)
    note = (
        r"ompbind: note: a run takes 0\.\d+ s, so the session takes \d s at most; a clear result needs less"
    )
    assert re.fullmatch(note, " ".join(done.stderr.split()))
