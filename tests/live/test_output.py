"""The output multiplexer with real ranks: slow, closed or full readers, terminals, many ranks, messages."""

import fcntl
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.output.forwarder import Forwarder, OutputEvents, RankStream
from ompbind.execution.output.line_prefix import LinePrefixer, make_prefixes
from ompbind.execution.output.multiplexer import Output, OutputMultiplexer
from ompbind.execution.output.writer import open_writer
from tests.live.conftest import clean_environment, wait_until

THROUGH = (sys.executable, str(Path(__file__).with_name("through.py")))
LINE = "x" * 79
FLOOD = f"yes {LINE} | head -c {{0}}"
MESSAGE = re.compile(rb"ompbind: message \d+\n  with a second line\n")


class Done:
    """The output of a run, and the statistics of the multiplexer."""

    def __init__(self, stats, out=b"", err=b""):
        self.out, self.err = out, err
        self.stats = json.loads(stats.read_text()) if stats.exists() else {}


@pytest.fixture
def begin(tmp_path):
    """Start ranks whose output goes through a multiplexer; kill them after the test if need be."""
    started, timers = [], []

    def start(*args, before=(), **options):
        settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [*before, *THROUGH, "--stats", str(tmp_path / "stats"), *args],
            env=clean_environment(), cwd=tmp_path, start_new_session=True, **{**settings, **options},
        )  # fmt: skip
        started.append(process)
        timers.append(threading.Timer(60, kill, (process,)))
        timers[-1].start()
        return process

    yield start
    for process, timer in zip(started, timers, strict=True):
        timer.cancel()
        kill(process)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@pytest.fixture
def through(begin, tmp_path):
    """Run such ranks to their end."""

    def run(*args, **options):
        out, err = begin(*args, **options).communicate(timeout=60)
        return Done(tmp_path / "stats", out, err)

    return run


def shell(script):
    return ("--", "sh", "-c", script)


def python(script):
    return ("--", sys.executable, "-c", script)


def remove_prefixes(out, rank):
    """Return what one rank wrote, from lines with prefixes."""
    prefix = b"[%d] " % rank
    return b"".join(line[len(prefix) :] + b"\n" for line in out.split(b"\n") if line.startswith(prefix))


def test_lines_get_prefixes_and_both_files_stay_separate(through):
    done = through("-n", "3", "--output", "tag", *shell("echo out $RANK; echo err $RANK >&2; printf half"))
    assert sorted(done.out.splitlines()) == sorted(
        b"[%d] %s" % (rank, text) for rank in range(3) for text in (b"out %d" % rank, b"half")
    )
    assert done.out.endswith(b"half\n")
    assert sorted(done.err.splitlines()) == [b"[%d] err %d" % (rank, rank) for rank in range(3)]
    assert done.stats["last_lines"] == [[f"err {rank}"] for rank in range(3)]
    assert (done.stats["broken"], done.stats["write_errors"]) == (False, [])


def test_bytes_are_not_decoded(through):
    script = "import os; os.write(1, bytes(range(256)) * 300)"
    done = through("--output", "tag", *python(script))
    assert remove_prefixes(done.out, 0) == bytes(range(256)) * 300 + b"\n"


def test_timestamps_and_colours(through):
    before = time.strftime("%H:%M:%S")
    done = through("-n", "2", "--output", "tag", "--timestamps", "--colours", *shell("echo a; echo b"))
    after = time.strftime("%H:%M:%S")
    lines = [
        re.fullmatch(rb"\x1b\[(\d+)m\[(\d)\]\x1b\[0m (\S+)\.\d{3} [ab]", line)
        for line in done.out.splitlines()
    ]
    assert {(line[1], line[2]) for line in lines} == {(b"36", b"0"), (b"33", b"1")}
    if before <= after:  # not at midnight
        assert all(before <= line[3].decode() <= after for line in lines)


def test_a_long_line_is_split(through):
    script = f"import os; os.write(1, b'a' * {1 << 20} + b'b' * 10 + b'\\nc\\n')"
    done = through("--output", "tag", *python(script))
    assert done.out == b"[0] " + b"a" * (1 << 20) + b"\n[0+] " + b"b" * 10 + b"\n[0] c\n"


def test_inherited_output_does_not_go_through_ompbind(through):
    done = through(
        "--output",
        "inherit",
        "--chat",
        "0.05",
        *shell("readlink /proc/self/fd/1 /proc/$PPID/fd/1; sleep 0.3"),
    )
    rank, parent = done.out.split()
    assert rank.startswith(b"pipe:")
    assert parent in (rank, b"/dev/null")  # the supervisor has closed it
    assert len(MESSAGE.findall(done.err)) == done.stats["messages"] > 1


def test_nothing_wakes_up_while_ranks_are_quiet(through):
    done = through("-n", "2", "--output", "tag", *shell("echo; sleep 2; echo"))
    assert done.stats["wakeups"] <= 14  # for starts, lines and exits


def test_nothing_wakes_up_while_the_reader_is_stopped_nor_afterwards(begin, tmp_path):
    process = begin("-n", "2", "--output", "tag", *shell(f"{FLOOD.format(1_500_000)}; sleep 1"))
    time.sleep(0.5)
    assert len(process.stdout.read()) == 3_000_000 + 4 * 37_500
    process.wait(60)
    assert Done(tmp_path / "stats").stats["wakeups"] < 500


@pytest.mark.parametrize("count", [1, 3])
def test_a_slow_reader_slows_ranks_down_instead_of_filling_memory(begin, tmp_path, count):
    process = begin("-n", str(count), "--output", "tag", *shell(FLOOD.format(80_000_000)))
    time.sleep(0.5)
    read = 0
    while block := os.read(process.stdout.fileno(), 1 << 20):
        read += len(block)
        time.sleep(0.001)
    assert process.wait(60) == 0
    assert read == count * 84_000_000
    assert Done(tmp_path / "stats").stats["rss_mib"] < 50


def test_memory_is_bounded_when_prefixes_are_most_of_the_output(begin, tmp_path):
    process = begin(
        "-n", "2", "--output", "tag", "--timestamps", "--colours", *shell("yes '' | head -c 3000000")
    )
    time.sleep(1)
    assert len(process.stdout.read()) == 6_000_000 * len(b"\x1b[36m[0]\x1b[0m 20:06:53.123 \n")
    process.wait(60)
    assert Done(tmp_path / "stats").stats["rss_mib"] < 50


def test_the_shared_blocking_flag_is_not_changed(begin):
    reader, writer = os.pipe()
    process = begin("--output", "tag", *shell(FLOOD.format(1_000_000)), stdout=writer)
    time.sleep(0.3)
    assert os.get_blocking(writer)
    os.close(writer)
    with open(reader, "rb") as file:
        assert len(file.read()) == 1_050_000
    assert process.wait(60) == 0


def test_no_rank_starves(begin):
    script = f"if [ $RANK = 8 ]; then sleep 0.5; echo done; else exec yes {LINE}; fi"
    process = begin("-n", "9", "--output", "tag", *shell(script))
    read = b""
    while b"[8] done\n" not in read[-200_000:]:
        read += os.read(process.stdout.fileno(), 4096)  # so slowly that every stream meets a full pipe
        assert len(read) < 30_000_000
    counts = Counter(re.findall(rb"^\[(\d)\]", read, re.M))
    assert len(counts) == 9
    process.stdout.close()
    process.wait(60)


def test_when_the_reader_exits_ranks_get_sigpipe(through):
    done = through("-n", "3", "--output", "tag", *shell(f"exec yes {LINE}"), stdout=head_of_one())
    assert done.stats["codes"] == [-signal.SIGPIPE] * 3
    assert (done.stats["broken"], done.stats["write_errors"], done.stats["killed"]) == (True, [], [])
    assert done.err == b""


def head_of_one():
    """Return a pipe whose reader closes it after the first bytes."""
    reader, writer = os.pipe()

    def read():
        os.read(reader, 100)
        os.close(reader)

    threading.Thread(target=read).start()
    return writer


def test_standard_error_goes_on_when_the_reader_of_standard_output_exits(through):
    script = f"trap '' PIPE; yes {LINE} 2>/dev/null; echo still here >&2"
    done = through("-n", "2", "--output", "tag", *shell(script), stdout=head_of_one())
    assert sorted(done.err.splitlines()) == [b"[0] still here", b"[1] still here"]


def test_log_files_go_on_when_the_reader_exits(through, tmp_path):
    done = through(
        "-n", "2", "--output", "tag,files", *shell(FLOOD.format(8_000_000)), stdout=head_of_one()
    )  # fmt: skip
    assert done.stats["codes"] == [0, 0]
    assert [(tmp_path / f"logs/{rank}.out").stat().st_size for rank in range(2)] == [8_000_000] * 2


def test_the_first_write_after_the_reader_has_exited_causes_sigpipe(through):
    script = f"[ $RANK = 0 ] && exec yes {LINE}; sleep 1; echo once; exit 3"
    done = through("-n", "2", "--output", "tag", *shell(script), stdout=head_of_one())
    assert done.stats["codes"] == [-signal.SIGPIPE] * 2


def test_a_stream_that_is_opened_after_the_reader_has_exited_is_closed():
    reader, writer = os.pipe()
    output = open_writer(writer, "standard output")
    os.close(writer)
    os.close(reader)
    output.put((b"x",))
    forwarder = Forwarder(output, OutputEvents())
    forwarder.flush()
    read_end, write_end = os.pipe()
    forwarder.add(RankStream(0, read_end, LinePrefixer(1 << 10), make_prefixes(0)))
    with pytest.raises(BrokenPipeError):
        os.write(write_end, b"x")
    os.close(write_end)
    os.close(output.fd)


def test_a_full_disk_behind_standard_output_is_reported_once(through):
    done = through(
        "-n", "2", "--output", "tag", *shell(f"exec yes {LINE}"), stdout=os.open("/dev/full", os.O_WRONLY)
    )
    assert done.stats["write_errors"] == ["cannot write to standard output: No space left on device"]
    assert done.stats["codes"] == [-signal.SIGPIPE] * 2


def test_a_full_disk_under_log_files_is_reported_once_and_output_goes_on(through, tmp_path):
    limited = ("sh", "-c", 'ulimit -f 200; exec "$0" "$@"')  # 100 KiB or 200, depending on the shell
    done = through("-n", "2", "--output", "tag,files", *shell(FLOOD.format(800_000)), before=limited)
    assert done.stats["codes"] == [0, 0]
    assert sorted(done.stats["write_errors"]) == [
        f"rank {rank}: cannot write to logs/{rank}.out: File too large" for rank in range(2)
    ]
    for rank in range(2):
        whole = f"{LINE}\n".encode() * 10_000
        assert remove_prefixes(done.out, rank) == whole
        written = (tmp_path / f"logs/{rank}.out").read_bytes()
        assert whole.startswith(written)
        assert len(written) >= 100 << 10


def test_log_files_have_exact_bytes_in_addition_to_lines_with_prefixes(through, tmp_path):
    script = "import os; os.write(1, bytes(range(256)) * 300); os.write(2, b'\\xff half')"
    done = through("-n", "2", "--output", "tag,files", *python(script))
    for rank in range(2):
        assert (tmp_path / f"logs/{rank}.out").read_bytes() == bytes(range(256)) * 300
        assert (tmp_path / f"logs/{rank}.err").read_bytes() == b"\xff half"
        assert remove_prefixes(done.out, rank) == bytes(range(256)) * 300 + b"\n"
    assert done.stats["last_lines"] == [["\ufffd half"]] * 2


def test_without_tag_ranks_write_to_log_files_directly(through, tmp_path):
    script = "readlink /proc/self/fd/1; for n in $(seq 20); do echo err $n >&2; done"
    done = through("-n", "2", "--output", "files", "--log-dir", "a/b", *shell(script))
    for rank in range(2):
        path = tmp_path / f"a/b/{rank}.out"
        assert path.read_text() == f"{path}\n"
    assert (done.out, done.err) == (b"", b"")
    assert done.stats["last_lines"] == [[f"err {n}" for n in range(11, 21)]] * 2
    again = through("--output", "files", "--log-dir", "a/b", *shell("echo new"))
    assert b"a/b/0.out and 1 more log file already exist\nhint: use --force" in again.err
    through("--output", "files", "--log-dir", "a/b", "--force", *shell("echo new"))
    assert (tmp_path / "a/b/0.out").read_text() == "new\n"


@pytest.mark.parametrize("kind", ["pipe", "file", "socket", "terminal"])
def test_no_line_is_torn_when_all_output_goes_to_one_file(begin, tmp_path, kind):
    reader, writer = open_one_file(kind, tmp_path)
    script = (
        "import os\n"
        "for n in range(3000):\n"
        "    os.write(1, b'out %d' % n)\n"
        "    os.write(2, b'err %d' % n)\n"
        "    os.write(1, b' end\\n'); os.write(2, b' end\\n')"
    )
    process = begin(
        "-n", "4", "--output", "tag", "--chat", "0.01", *python(script), stdout=writer, stderr=writer
    )  # fmt: skip
    os.close(writer)
    out = (
        read_all(reader, process)
        if kind != "file"
        else (process.wait(60), (tmp_path / "all").read_bytes())[1]
    )
    process.wait(60)
    lines = Counter(MESSAGE.sub(b"", out).splitlines())
    assert lines == Counter(
        b"[%d] %s %d end" % (rank, what, n)
        for rank in range(4)
        for what in (b"out", b"err")
        for n in range(3000)
    )
    assert len(MESSAGE.findall(out)) == Done(tmp_path / "stats").stats["messages"] > 0


def open_one_file(kind, tmp_path):
    if kind == "pipe":
        return os.pipe()
    if kind == "socket":
        return tuple(end.detach() for end in socket.socketpair())
    if kind == "file":
        return -1, os.open(tmp_path / "all", os.O_WRONLY | os.O_CREAT)
    reader, writer = os.openpty()
    settings = termios.tcgetattr(writer)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(writer, termios.TCSANOW, settings)
    return reader, writer


def read_all(reader, process):
    """Read everything from a pipe or terminal; the end of a terminal is an error."""
    out = []
    while True:
        try:
            block = os.read(reader, 1 << 16)
        except OSError:
            break
        if not block:
            break
        out.append(block)
    os.close(reader)
    return b"".join(out)


def test_messages_are_queued_while_the_reader_is_stopped(begin, tmp_path):
    reader, writer = os.pipe()
    process = begin(
        "-n", "2", "--output", "tag", "--chat", "0.02", *shell(FLOOD.format(800_000)),
        stdout=writer, stderr=writer,
    )  # fmt: skip
    os.close(writer)
    time.sleep(0.7)
    out = read_all(reader, process)
    process.wait(60)
    messages = MESSAGE.findall(out)
    assert len(messages) == Done(tmp_path / "stats").stats["messages"] > 10
    assert set(MESSAGE.sub(b"", out).splitlines()) == {b"[0] " + LINE.encode(), b"[1] " + LINE.encode()}


@pytest.mark.parametrize("output", ["inherit", "tag"])
def test_messages_are_written_immediately(begin, output):
    process = begin("--output", output, "--chat", "0.1", *shell("sleep 60"))
    begun = time.monotonic()
    assert process.stderr.readline() == b"ompbind: message 0\n"
    assert time.monotonic() - begun < 20


def test_processes_that_left_their_rank_are_not_waited_for(begin, tmp_path):
    begun = time.monotonic()
    process = begin("--output", "tag", *shell("setsid sleep 60 & echo $!; printf half"))
    out, _ = process.communicate(timeout=30)
    assert time.monotonic() - begun < 20
    pid = int(out.split()[1])
    try:
        assert out == b"[0] %d\n[0] half\n" % pid
    finally:
        os.kill(pid, signal.SIGKILL)


def test_processes_that_never_stop_writing_are_not_waited_for(begin):
    process = begin("--output", "tag", *shell("setsid yes & echo $! >pid; sleep 0.2"))
    out, _ = process.communicate(timeout=30)
    assert out.startswith(b"[0] y\n")


def test_many_ranks(through):
    script = "printf 'a\\nb'; echo c >&2"
    done = through("-n", "300", "--output", "tag", *shell(script))
    wanted = Counter(b"[%d] %s" % (rank, text) for rank in range(300) for text in (b"a", b"b"))
    assert Counter(done.out.splitlines()) == wanted
    assert Counter(done.err.splitlines()) == Counter(b"[%d] c" % rank for rank in range(300))


def test_a_low_limit_of_open_files_is_an_error_before_any_rank_starts(through):
    limited = ("sh", "-c", 'ulimit -n 256; exec "$0" "$@"')
    done = through("-n", "100", "--output", "tag", *shell("echo never"), before=limited)
    assert (done.out, done.stats) == (b"", {})
    assert b"needs 340 open files, 256 are allowed" in done.err
    assert b"use --log-dir alone" in done.err


def test_a_limit_of_open_files_reached_later_names_the_rank():
    multiplexer = OutputMultiplexer(Output(tag=True), [0, 7])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        multiplexer.close_streams(*multiplexer.open_streams(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        with pytest.raises(LaunchError, match="rank 7: cannot open its output streams: Too many open"):
            multiplexer.open_streams(7)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


ON_TERMINAL = ("-n", "2", "--output", "tag", "--pty")


def test_ranks_see_a_pseudo_terminal(through):
    done = through(*ON_TERMINAL, *shell("test -t 1 && test ! -t 2 && stty size <&1; echo err >&2"))
    assert sorted(done.out.splitlines()) == [b"[0] 24 80", b"[1] 24 80"]
    assert sorted(done.err.splitlines()) == [b"[0] err", b"[1] err"]


def test_bytes_pass_a_pseudo_terminal_unchanged(through, tmp_path):
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300)"
    done = through("-n", "2", "--output", "tag,files", "--pty", *python(script))
    for rank in range(2):
        assert (tmp_path / f"logs/{rank}.out").read_bytes() == bytes(range(256)) * 300
    done = through(*ON_TERMINAL, *shell(FLOOD.format(800_000)))
    assert all(remove_prefixes(done.out, rank) == f"{LINE}\n".encode() * 10_000 for rank in range(2))


def test_when_the_reader_exits_ranks_on_terminals_are_reported(through):
    done = through(*ON_TERMINAL, "--", "yes", LINE, stdout=head_of_one())
    assert done.stats["codes"] == [-signal.SIGPIPE] * 2
    assert sorted(done.stats["killed"]) == [0, 1]
    assert done.err == b""


def test_ranks_on_terminals_that_do_not_write_are_not_killed(through):
    script = f"if [ $RANK = 0 ]; then exec yes {LINE}; else sleep 1; exit 3; fi"
    done = through(*ON_TERMINAL, *shell(script), stdout=head_of_one())
    assert done.stats["codes"] == [-signal.SIGPIPE, 3]
    assert done.stats["killed"] == [0]


def test_a_rank_that_ignores_sigpipe_gets_an_error_from_its_terminal(through):
    script = f"trap '' PIPE; yes {LINE}; echo after >&2"
    done = through(*ON_TERMINAL, *shell(script), stdout=head_of_one())
    assert done.stats["codes"] == [0, 0]
    assert done.err.count(b"after") == 2


def test_the_size_of_the_terminal_reaches_ranks(begin, tmp_path):
    reader, writer = os.openpty()
    termios.tcsetwinsize(writer, (33, 111))
    size = "stty size <&3"
    waits = f"until [ \"$({size})\" = '44 55' ]; do sleep 0.05; done"
    script = f"exec 3>&1; {size}; touch ready-$RANK; {waits}; {size}"
    process = begin(*ON_TERMINAL, *shell(script), stdout=writer)
    wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == 2, "both ranks have read their sizes")
    termios.tcsetwinsize(writer, (44, 55))
    os.close(writer)
    process.send_signal(signal.SIGWINCH)
    lines = read_all(reader, process).splitlines()
    assert sorted(lines) == [b"[0] 33 111", b"[0] 44 55", b"[1] 33 111", b"[1] 44 55"]
    assert process.wait(60) == 0


def test_pipes_of_few_ranks_are_enlarged():
    from ompbind.execution.output.multiplexer import choose_pipe_size, open_pipe

    assert [choose_pipe_size(streams) for streams in (2, 16, 32, 100, 2000)] == [
        1 << 20,
        1 << 20,
        1 << 19,
        1 << 17,
        1 << 16,
    ]
    read_end, write_end = open_pipe(choose_pipe_size(2))
    assert fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ) == 1 << 20
    os.close(read_end)
    os.close(write_end)
