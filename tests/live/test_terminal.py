"""A single rank uses the terminal as if the shell had started it directly."""

import os
import signal
import sys

import pytest

from tests.live.conftest import OMPBIND, children_of, is_alive, state_of, wait_until


@pytest.fixture
def shell(terminal):
    """Start an interactive shell with a prompt that no other text contains."""
    screen = terminal("/bin/bash", "--norc", "-i")
    screen.type("PS1='pro''mpt> '\n")
    screen.read_until(b"prompt> ")
    return screen


def test_an_interactive_program_reads_the_terminal(terminal):
    screen = terminal(OMPBIND, "run", "--", sys.executable, "-q")
    screen.read_until(b">>> ")
    screen.type("import os; print('answer', 6 * 7, os.tcgetpgrp(0) == os.getpgrp())\n")
    screen.read_until(b"answer 42 True")
    screen.type("import time; print('on' 'ward'); [time.sleep(0.1) for _ in range(600)]\n")
    screen.read_until(b"onward")
    screen.type("\x03")
    screen.read_until(b"KeyboardInterrupt")
    screen.type("exit(5)\n")
    assert os.waitstatus_to_exitcode(screen.wait()) == 5


SCREENFUL = """
import os, signal, termios
def pause(number, frame):
    os.write(2, b"[paused]")
    os.kill(os.getpid(), signal.SIGSTOP)
for name in ("SIGTSTP", "SIGTTIN", "SIGTTOU"):
    signal.signal(getattr(signal, name), pause)
def draw():
    try:
        termios.tcsetattr(0, termios.TCSANOW, termios.tcgetattr(0))
    except termios.error:  # interrupted, as the signal was caught
        return draw()
    os.write(2, b"[drawn]")
draw()
while os.read(0, 1) != b"q":
    draw()
"""
"""What `top` does: it catches the signals that stop it, restores the screen and stops itself.

It draws on standard error: a process that reads its standard output is stopped at the same time.
"""


@pytest.mark.parametrize("pipe", ["", " | cat"], ids=["from-the-start", "on-demand"])
def test_a_program_that_catches_sigttin_and_stops_itself_gets_the_terminal(shell, tmp_path, pipe):
    (tmp_path / "top.py").write_text(SCREENFUL)
    shell.type(f"ompbind run -- python {tmp_path}/top.py{pipe}\n")
    shell.read_until(b"[drawn]")
    shell.type("\x1a")
    shell.read_until(b"[paused]")
    shell.read_until(b"Stopped")
    shell.type("fg\n")
    wait_until(lambda: "top.py" in " ".join(shell.foreground()), "it has the terminal again")
    shell.type("q\n")
    shell.read_until(b"prompt> ")
    shell.type("echo code $?.\n")
    shell.read_until(b"code 0.")


def test_ctrl_z_stops_and_the_shell_continues(shell):
    shell.type("ompbind run -- cat\n")
    for line in ("first line", "second line"):
        wait_until(lambda: shell.foreground() == ["cat"], "cat has the terminal")
        shell.type(f"{line}\n")
        shell.read_until(line.encode())
        shell.read_until(line.encode())
        shell.type("\x1a")
        shell.read_until(b"Stopped")
        assert shell.foreground()[0] == "/bin/bash"
        shell.type("fg\n")
    wait_until(lambda: shell.foreground() == ["cat"], "cat has the terminal")
    shell.type("\x04")
    shell.type("echo code $?.\n")
    shell.read_until(b"code 0.")


@pytest.mark.two_cpus
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("script", [True, False])
def test_ctrl_c_stops_a_script_or_loop_around_it(shell, tmp_path, ranks, script):
    loop = f"for i in 1 2 3; do ompbind run -n {ranks} -- sh -c 'echo up$RANK-; exec sleep 60'; done"
    (tmp_path / "script").write_text(f"{loop}; echo went on\n")
    shell.type(f"bash {tmp_path}/script\n" if script else f"{loop}\n")
    for _ in range(ranks):
        shell.read_until(b"-\r\n")
    shell.type("\x03")
    shell.read_until(b"prompt> ")
    shell.type("echo end $?,$i.\n")
    shell.read_until(b"end 130,." if script else b"end 130,1.")


@pytest.mark.parametrize("command", ["{} cat", "echo x | {} sh -c 'cat; cat /dev/tty'"])
def test_a_rank_within_command_substitution_reads_the_terminal(shell, command):
    """Interactive shells ignore SIGTTIN there, so a rank cannot request the terminal by being stopped."""
    shell.type(f'it=$({command.format("ompbind run --")}); echo "[$it]"\n')
    wait_until(lambda: shell.foreground()[:1] in (["cat"], ["sh"]), "the rank has the terminal")
    shell.type("typed\n\x04")
    shell.read_until(b"typed]")
    shell.type("echo still here\n")
    shell.read_until(b"still here\r\n")


@pytest.mark.parametrize(("line", "words"), [
    ("sh -c 'timeout 0.6 ompbind run -- cat; echo code $?.'", b"\n"),
    ("stty tostop; ompbind run --timeout 0.3 -- sh -c 'echo hello; sleep 60'; echo code $?.", b"hello\r\n"),
])  # fmt: skip
def test_a_request_for_the_terminal_and_background_output_do_not_stop_the_run(shell, line, words):
    shell.type(f"{line}\n")
    shell.read_until(words)
    shell.read_until(b"code 124.")


def test_a_rank_that_has_the_terminal_does_not_outlive_both_processes(terminal):
    """The kernel kills it with the supervisor: the foreground process is stopped, so it can do nothing."""
    screen = terminal(OMPBIND, "run", "--", "sh", "-c", "echo up $$; read line")
    screen.read_until(b"up ")
    (supervisor,) = children_of(screen.pid)
    (rank,) = children_of(supervisor)
    os.kill(screen.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(screen.pid) == "T", "the foreground process stopped")
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not is_alive(rank), "the rank was killed", 5)


@pytest.mark.parametrize("args", [["-n1"], ["-nauto", "-m", "{cpu}", "-s", "cores"]], ids=["one", "auto"])
def test_a_single_rank_that_has_the_terminal_is_not_restarted(terminal, args):
    cpu = min(os.sched_getaffinity(0))
    words = [word.format(cpu=cpu) for word in args]
    screen = terminal(OMPBIND, "run", *words, "--share", "--on-failure", "restart", "--", "true")
    screen.read_until(b"cannot restart a single rank that has the")
    assert os.waitstatus_to_exitcode(screen.wait()) == 125


def test_restarts_at_a_terminal_without_standard_input(terminal, tmp_path):
    """A rank that Ctrl-C kills does not start again, although the kernel has sent the signal."""
    script = f"echo >>{tmp_path}/up; [ $OMPBIND_ATTEMPT = 2 ] || exit 3; read x </dev/tty"
    options = ("--stdin", "none", "--on-failure", "restart")
    screen = terminal(OMPBIND, "run", *options, "--", "sh", "-c", script)
    screen.read_until(b"attempt 2 starts in 1 s")
    wait_until(lambda: screen.foreground() == ["sh", "-c", script], "the second attempt has the terminal")
    screen.type("\x03")
    screen.read_until(b"it does not start again")
    assert os.waitstatus_to_exitcode(screen.wait()) == -signal.SIGINT
    assert (tmp_path / "up").read_text() == "\n\n"
