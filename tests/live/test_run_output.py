"""`ompbind run --output`: the output of ranks goes where the options say, whatever its readers do."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import tty
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from tests.live.conftest import is_alive, one_line, ranks_of, supervisor_of, wait_until

RANKS = ("run", "-q", "--share", "-n", "2")
TAG = ("--output", "tag")
PTY = (*TAG, "--pty")
BOTH = "echo out $RANK; echo err $RANK >&2; printf half"
LINE = "x" * 79
FULL = ("sh", "-c", 'exec "$0" "$@" >/dev/full')
FLOOD = f"yes {LINE} | head -c {{0}}"


def open_socket():
    return tuple(end.detach() for end in socket.socketpair())


def open_terminal():
    reader, writer = os.openpty()
    tty.setraw(writer)
    return reader, writer


ALL_BYTES = "import os; os.write(1, bytes(range(256)) * 300); os.write(2, b'\\xff half')"


def shell(script):
    return ("--", "sh", "-c", script)


@pytest.mark.parametrize("tagged", [False, True])
def test_log_files(ompbind, tmp_path, tagged):
    args = (*RANKS, "--log-dir", str(tmp_path / "a/b"), *(("--output", "tag,files") if tagged else ()))
    done = ompbind(*args, *shell(BOTH))
    assert len(done.stdout.splitlines()) == (4 if tagged else 0)
    for rank in range(2):
        assert (tmp_path / f"a/b/{rank}.out").read_text() == f"out {rank}\nhalf"
        assert (tmp_path / f"a/b/{rank}.err").read_text() == f"err {rank}\n"
    again = ompbind(*args, "--", "true")
    assert again.returncode == 125
    assert "0.out and 3 more log files already exist" in one_line(again.stderr)
    assert ompbind(*args, "--force", "--", "true").returncode == 0
    assert (tmp_path / "a/b/0.out").read_text() == ""


@pytest.mark.parametrize("tagged", [False, True])
def test_a_failed_rank_is_reported_with_its_last_lines(ompbind, tmp_path, tagged):
    script = "[ $RANK = 0 ] || for n in $(seq 20); do echo err-$n >&2; done; exit $((RANK * 3))"
    options = ("-n", "2", "--share", *(TAG if tagged else ("--log-dir", str(tmp_path))))
    done = ompbind("run", *options, *shell(script))
    shown = one_line(done.stderr).partition("its last lines:")[2]
    assert (done.returncode, re.findall(r"err-\d+", shown)) == (3, [f"err-{n}" for n in range(11, 21)])


@pytest.mark.parametrize("way", [(), ("--pty",)])
def test_bytes_are_not_changed(ompbind, tmp_path, way):
    args = (*RANKS, "--output", "tag,files", "--log-dir", str(tmp_path), *way)
    done = ompbind(*args, "--", sys.executable, "-c", ALL_BYTES, text=False)
    for rank in range(2):
        assert (tmp_path / f"{rank}.out").read_bytes() == bytes(range(256)) * 300
        assert (tmp_path / f"{rank}.err").read_bytes() == b"\xff half"
        prefix = b"[%d] " % rank
        lines = [line.removeprefix(prefix) for line in done.stdout.split(b"\n") if line.startswith(prefix)]
        assert b"\n".join(lines) == bytes(range(256)) * 300


def test_the_report_may_be_in_the_log_directory(ompbind, tmp_path):
    for name, code in (("{run_id}.json", 0), ("1.out", 125), ("./1.err", 125)):
        options = f"--run-id a --log-dir {{run_id}}/logs --force --report a/logs/{name}"
        done = ompbind(*RANKS, *options.split(), "--", "echo", "said", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert (tmp_path / "a/logs/1.out").read_text() == "said\n"
    assert json.loads((tmp_path / "a/logs/a.json").read_text())["run_id"] == "a"


def test_each_rank_has_a_terminal_of_the_same_size(start):
    reader, writer = os.openpty()
    termios.tcsetwinsize(writer, (33, 111))
    size = "stty size <&3"
    script = f"""exec 3>&1; test -t 1 && test ! -t 2 || exit 1; tty <&3
        {size}; n=0; until [ "$({size})" = '44 55' ] || [ $((n = n + 1)) = 99 ]; do sleep 0.1; done; {size}"""
    process = start(*RANKS, *PTY, *shell(script), stdout=writer, env={"NO_COLOR": "1"})
    out = b""
    while out.count(b"33 111") < 2:
        out += os.read(reader, 1000)
    termios.tcsetwinsize(writer, (44, 55))
    os.close(writer)
    process.send_signal(signal.SIGWINCH)
    lines = (out + read_all(reader)).splitlines()
    assert len({line[4:] for line in lines if b"/dev/pts/" in line}) == 2
    sizes = sorted(line for line in lines if b"/dev/" not in line)
    assert sizes == [b"[0] 33 111", b"[0] 44 55", b"[1] 33 111", b"[1] 44 55"]
    assert process.wait(20) == 0


def read_all(reader, block_bytes=1 << 16):
    """Read everything from a pipe or terminal; the end of a terminal is an error."""
    out = []
    try:
        while block := os.read(reader, block_bytes):
            out.append(block)
    except OSError:
        pass
    os.close(reader)
    return b"".join(out)


@pytest.mark.parametrize("make", [os.pipe, open_socket, open_terminal, None])
def test_no_line_is_torn_when_all_output_and_messages_go_to_one_file(start, tmp_path, make):
    if make:
        reader, writer = make()
    else:
        reader, writer = (os.open(tmp_path / "all", flag | os.O_CREAT) for flag in (os.O_RDONLY, os.O_WRONLY))
    script = """if True:
        import os, sys
        for n in range(1000):
            for file, name in ((1, b"out"), (2, b"err")):
                os.write(file, name + b" %d" % n)
                os.write(file, b" end\\n")
        sys.exit(os.environ["RANK"] == "2")"""
    command = ("run", "--share", "-n", "4", "--on-failure", "continue", *TAG, "--", sys.executable, "-c")
    process = start(*command, script, stdout=writer, stderr=writer, env={"NO_COLOR": "1"})
    os.close(writer)
    if not make:  # the end of a file is not the end of its writers
        process.wait(60)
    lines = read_all(reader).splitlines()
    assert process.wait(60) == 1
    expected = (b"[%d] %s %d end" % each for each in product(range(4), (b"out", b"err"), range(1000)))
    others = Counter(lines)
    others.subtract(expected)
    assert min(others.values()) == 0
    message = b" ".join(+others)
    assert b"rank 2" in message
    assert b"exited with code 1" in message


def test_tags_of_many_ranks_and_timestamps(ompbind):
    script = "printf 'a\\nb'; echo c >&2"
    done = ompbind("run", "-q", "--share", "-n", "200", *TAG, *shell(script))
    assert done.returncode == 0
    assert Counter(done.stdout.splitlines()) == Counter(f"[{n}] {text}" for n in range(200) for text in "ab")
    assert Counter(done.stderr.splitlines()) == Counter(f"[{n}] c" for n in range(200))
    timed = ompbind(*RANKS, *TAG, "--timestamps", "--", "echo", "a").stdout
    assert re.fullmatch(r"(\[[01]\] \d\d:\d\d:\d\d\.\d{3} a\n){2}", timed)


def test_a_slow_reader_slows_ranks_down_instead_of_filling_memory(start):
    process = start(*RANKS, *TAG, *shell(FLOOD.format(20_000_000)), text=False)
    supervisor = supervisor_of(process)
    wait_until(lambda: os.read(process.stdout.fileno(), 1), "output")
    wait_until(lambda: is_blocked(supervisor), "everything is full")
    status = Path(f"/proc/{supervisor}/status").read_text()
    assert int(re.search(r"VmHWM:\s+(\d+)", status)[1]) < 60_000, "KiB"
    assert len(process.stdout.read()) == 2 * 21_000_000 - 1
    assert process.wait(20) == 0


def is_blocked(pid):
    """Return whether a process has not run for a while."""
    before = Path(f"/proc/{pid}/status").read_text()
    time.sleep(0.15)
    return Path(f"/proc/{pid}/status").read_text() == before


def test_no_rank_starves(start):
    script = f"if [ $RANK = 8 ]; then sleep 0.3; echo done; else exec yes {LINE}; fi"
    process = start("run", "-q", "--share", "-n", "9", *TAG, *shell(script), text=False)
    read = b""
    while b"[8] done\n" not in read[-200_000:]:
        read += os.read(process.stdout.fileno(), 4096)  # so slowly that every stream meets a full pipe
        assert len(read) < 30_000_000
    assert len(set(re.findall(rb"^\[(\d)\]", read, re.M))) == 9
    process.stdout.close()
    process.wait(20)


def head_of_one():
    """Return a pipe whose reader closes it after the first bytes."""
    reader, writer = os.pipe()
    threading.Thread(target=lambda: (os.read(reader, 100), os.close(reader))).start()
    return writer


@pytest.mark.parametrize(("way", "code"), [((), 128 + signal.SIGPIPE), (("--pty",), 1)])
def test_ranks_that_write_to_a_closed_reader_end(start, way, code):
    """Killed, or with a pseudo-terminal by an error; a rank that does not write goes on."""
    script = f'if [ $RANK = 0 ]; then exec yes {LINE}; fi; until [ -e "$0" ]; do sleep 0.02; done; exit 3'
    process = start(*RANKS, "--on-failure", "continue", *TAG, *way, "--", "sh", "-c", script, "/none")
    process.stdout.readline()
    wait_until(lambda: len(ranks_of(process)) == 2, "both ranks")
    process.stdout.close()
    (rank,) = wait_until(lambda: len(ranks_of(process)) == 1 and ranks_of(process), "rank 0 was killed")
    assert is_alive(rank)
    process.terminate()
    assert process.wait(20) == code
    assert way or process.stderr.read() == ""


@pytest.mark.parametrize("way", [(), ("--pty",)])
def test_a_rank_that_ignores_sigpipe_gets_an_error_and_its_standard_error_goes_on(ompbind, way):
    script = f"trap '' PIPE; yes {LINE} 2>/dev/null; echo still here >&2"
    writer = head_of_one()
    settings = {"capture_output": False, "stdout": writer, "stderr": subprocess.PIPE}
    done = ompbind(*RANKS, *TAG, *way, *shell(script), **settings)
    os.close(writer)
    assert sorted(done.stderr.splitlines()) == ["[0] still here", "[1] still here"]


def test_log_files_go_on_when_the_reader_exits(ompbind, tmp_path):
    writer = head_of_one()
    args = (*RANKS, "--output", "tag,files", "--log-dir", str(tmp_path), *shell(FLOOD.format(2_000_000)))
    assert ompbind(*args, capture_output=False, stdout=writer).returncode == 0
    os.close(writer)
    assert [(tmp_path / f"{rank}.out").stat().st_size for rank in range(2)] == [2_000_000] * 2


def test_log_files_on_a_full_disk_are_reported_once_and_output_goes_on(ompbind, tmp_path):
    limited = ("sh", "-c", 'ulimit -f 200; exec "$0" "$@"')  # 100 KiB or 200, depending on the shell
    args = ("run", "-q", "--share", "--output", "tag,files", "--log-dir", str(tmp_path / "logs"))
    done = ompbind(*args, *shell(FLOOD.format(800_000)), before=limited)
    assert done.returncode == 125
    assert len(done.stdout) == 840_000
    said = one_line(done.stderr)
    assert said.count("error: rank 0: ") == said.count("File too large") == 1
    written = (tmp_path / "logs/0.out").read_text()
    assert len(written) >= 100 << 10
    assert (f"{LINE}\n" * 10_000).startswith(written)


def test_a_process_that_keeps_the_output_open_is_not_waited_for(ompbind, tmp_path):
    """Output that is lost is reported even if quiet, and at the end: this line is incomplete."""
    script = f"""setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' &
        until [ -s {tmp_path}/pid ]; do sleep 0.02; done; printf half"""
    words = (*RANKS[:-1], "1", "--keep-descendants", *TAG, *shell(script))
    for before, code, out, errors in (((), 0, "[0] half\n", 0), (FULL, 125, "", 1)):
        done = ompbind(*words, before=before, timeout=20)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        (tmp_path / "pid").unlink()
        assert (done.returncode, done.stdout) == (code, out)
        assert one_line(done.stderr).count("error: cannot write to standard output") == errors
