"""Servers as candidates: ready, measured with and without a load generator, stopped; nothing is left."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import pytest

from ompbind.bench.metrics import make_metrics
from ompbind.bench.records import Status
from ompbind.bench.run_candidate import run_candidate
from ompbind.bench.service import READY_LIMIT_S, check_service, find_load_cpus, run_service
from ompbind.bench.start_ranks import Service
from ompbind.cpuset import CpuSet
from ompbind.errors import MeasurementError
from tests.live.candidates import SLOT, make_settings, make_start
from tests.live.conftest import wait_until
from tests.live.scenes import PYTHON

SERVER = """
import os, signal, socket, sys
requests = 0
def end(*_):
    print("requests:", requests, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
server = socket.create_server(("127.0.0.1", int(sys.argv[1]) + int(os.environ["RANK"])))
while True:
    client, _ = server.accept()
    request = client.recv(10)
    if request:
        requests += 1
        client.sendall(request)
    client.close()
"""
"""Echoes one request for each connection; prints the number of requests when it is stopped."""

LOAD = """
import os, socket, sys, time
first, servers, total, threads = map(int, sys.argv[1:])
began = time.monotonic()
for i in range(total):
    with socket.create_connection(("127.0.0.1", first + i % servers)) as client:
        client.sendall(b"x")
        client.recv(10)
print("requests/s:", total / (time.monotonic() - began))
print("cpus:", *os.sched_getaffinity(0), "threads:", threads)
"""
"""Sends requests to several servers in turn; prints the requests per second."""

FOREVER = "while :; do sleep 0.01; done"
SERVE = f"trap 'exit 0' TERM; echo up; {FOREVER}"


def service_settings(*, duration_s=0.1, ready="", load=(), pattern=r"requests: (\d+)", **changes):
    service = Service(duration_s=duration_s, ready=ready, load=load)
    return make_settings(metrics=make_metrics((pattern,), higher=True), service=service, **changes)


def free_port():
    """Return a port that no program uses, and the next one, below the ports of outgoing connections."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000, 2):
        try:
            for number in (port, port + 1):
                socket.create_server(("127.0.0.1", number)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")


def make_shell(script, scene, **options):
    return make_start("sh", "-c", script, scene.marker, env=scene.environment(), **options)


def make_server(scene, port, **options):
    return make_start(*PYTHON, SERVER, str(port), scene.marker, env=scene.environment(), **options)


@pytest.fixture
def serve(scene, tmp_path):
    """A function that runs a server; afterwards no process is left."""

    def run(script, *, ranks=1, **settings):
        start = make_shell(script, scene, ranks=ranks)
        return run_service(start, service_settings(**settings), mkdtemp(dir=tmp_path))

    yield run
    assert not scene.find()


@pytest.fixture
def fail(serve):
    """A function that runs a server and returns the message of the error."""

    def run(*args, **options):
        with pytest.raises(MeasurementError) as raised:
            serve(*args, **options)
        return raised.value.message

    return run


@pytest.fixture
def record(scene):
    """A function that returns the record of a run; afterwards no process is left."""
    yield lambda start, settings: run_candidate(start, settings, SLOT, verify=False)
    assert not scene.find()


@pytest.mark.two_cpus
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
def test_a_load_generator_measures_servers_from_reserved_cpus(bound, scene, tmp_path):
    """Each server has its port; beside the unbound candidate the load generator has the same CPUs."""
    port, ranks = free_port(), 1 if bound else 2
    planned = make_server(scene, port, reserve_total=1)
    start = planned if bound else make_server(scene, port, ranks=ranks, bound=False)
    load_cpus = find_load_cpus((make_server(scene, port, bound=False), planned))
    settings = service_settings(
        duration_s=20, ready=f"tcp:{{rank+{port}}}", pattern="requests/s: ([0-9.]+)", load_cpus=load_cpus,
        load=(*PYTHON, LOAD, str(port), "{size}", "40", "{threads}"),
    )  # fmt: skip
    check_service((start,), settings)
    began = time.monotonic()
    env = {rank: {**command.env, "RANK": str(rank)} for rank, command in enumerate(start.commands)}
    start = start.replace(commands=[command.replace(env=env[command.rank]) for command in start.commands])
    outcome, (rate,) = run_service(start, settings, str(tmp_path))
    assert time.monotonic() - began < 10, "it does not wait for the end of the duration"
    assert rate > 40 / 10
    ends = sorted((exit.rank, exit.code, exit.stopped) for exit in outcome.exits)
    assert ends == [(rank, 0, True) for rank in range(ranks)]
    assert load_cpus == planned.plan.reserved
    cpus = f"cpus: {' '.join(map(str, load_cpus))} threads: {len(load_cpus)}\n"
    assert cpus in (tmp_path / "load" / "0.out").read_text()
    counts = [int((tmp_path / f"{rank}.out").read_text().split()[-1]) for rank in range(ranks)]
    assert counts == [40 // ranks] * ranks
    assert not scene.find()


def test_without_load_generator_the_ranks_report_after_the_duration(serve):
    script = f'trap "echo requests: 7; exit 0" TERM; echo up; {FOREVER}'
    began = time.monotonic()
    outcome, values = serve(script, ranks=2, duration_s=0.8, timeout_s=0.7, ready="^up$")
    assert time.monotonic() - began >= 0.8, "--timeout is for the time until ranks are ready"
    assert values == (14.0,)
    assert not any(rank_exit.failed for rank_exit in outcome.exits)


def test_the_duration_begins_when_all_ranks_are_ready(serve, scene):
    """Rank 1 waits for a file, which appears only after rank 0 has been ready for some time."""
    script = (
        'trap "exit 0" TERM; if [ $RANK = 1 ]; then until [ -e $DIRECTORY/go ]; do sleep 0.01; done; fi;'
        " printf 'rank %s: ready' $RANK >&2; echo requests: 1; touch $DIRECTORY/ready.$RANK;"
        f" [ $RANK = 1 ] || (sleep 0.3; touch $DIRECTORY/go); {FOREVER}"
    )
    assert serve(script, ranks=2, ready="rank {rank}: ready")[1] == (2.0,)
    assert (scene.directory / "ready.1").exists()


def test_a_server_that_is_never_ready_is_an_error(fail):
    message = fail("echo no memory >&2; exec sleep 300", ranks=2, ready="listening", timeout_s=0.5)
    assert message.startswith("ranks 0-1 are not ready within 0.5 s (--timeout)")
    assert message.endswith("rank 0 matches 'listening'; last lines: no memory")
    port = free_port()
    message = fail("exec sleep 300", ready=f"tcp:{port}", timeout_s=0.2)
    assert f"port {port} of rank 0 accepts no connection" in message


def test_a_port_that_another_program_has_is_an_error_before_ranks_start(fail, scene):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = fail("touch $DIRECTORY/started", ready=f"tcp:{port}")
    assert message.startswith(f"port {port} ")
    assert message.endswith("another program has it")
    assert not (scene.directory / "started").exists()


@pytest.mark.parametrize(
    ("script", "patterns", "values", "code", "reason"),
    [
        ("echo a 1; echo a 2; echo b $((RANK + 3)) >&2", (r"a (\d+)", r"b (\d+)"), (2.0, 4.0), 0, ""),
        ("echo b 1", (r"a (\d+)",), (), 0, "rank 0 matches; last lines: b 1"),
        ("echo requests: 3; exec sleep 300", "requests", (6.0,), 0, ""),  # no exit code from its stop
        ("exit 3", "up", (), 3, "rank 0 exited with code 3"),
        ("exit 0", "up", (), 0, "exited with code 0 before the end of the measurement"),
    ],
    ids=["metrics", "no number", "server", "failed", "exited"],
)
def test_the_record_of_a_run(scene, record, script, patterns, values, code, reason):
    is_server = isinstance(patterns, str)
    settings = (
        service_settings(ready=patterns) if is_server else make_settings(metrics=make_metrics(patterns))
    )
    run = record(make_shell(script, scene, ranks=2 if values else 1), settings)
    assert (run.values, run.status == Status.OK) == (values, not reason)
    assert {*run.exit_codes} <= {code}
    assert reason in run.reason


@pytest.mark.parametrize("ready", ["never", ""], ids=["before ready", "while measured"])
def test_a_server_that_exits_by_itself_stops_the_run_at_once(ready, serve, fail):
    began = time.monotonic()
    script = "[ $RANK = 0 ] && exec sleep 300; echo bye >&2; exit {}"
    load = {"load": ("sleep", "300"), "load_cpus": CpuSet((0,))}
    outcome, values = serve(script.format(3), ranks=2, duration_s=60, ready=ready, **load)
    (failed,) = (rank_exit for rank_exit in outcome.exits if rank_exit.failed)
    assert (failed.rank, failed.code, failed.last_lines, values) == (1, 3, ("bye",), ())
    message = fail(script.format(0), ranks=2, duration_s=60, ready=ready)
    assert message == "rank 1 exited with code 0 before the end of the measurement; last lines: bye"
    assert time.monotonic() - began < 10 < READY_LIMIT_S


def load_with(script, scene, **changes):
    load = ("sh", "-c", script, scene.marker)
    return {"ready": "up", "load": load, "load_cpus": CpuSet((0,))} | changes


@pytest.mark.parametrize(
    ("script", "changes", "message"),
    [
        ("echo requests: 4; echo no >&2; exit 2", {"duration_s": 60}, "exited with code 2; last lines: no"),
        ("exit 2", {"ready": "", "duration_s": 60}, "(started at once: there is no --ready) exited"),
        (f"trap '' TERM; {FOREVER}", {"grace_s": 0.1}, "stopped after 0.1 s) matches"),
        ("true", {"load_cpus": CpuSet((60_000,))}, "has not started: cannot bind to CPU 60000"),
    ],
    ids=["fails", "fails at once", "hangs", "cannot be bound"],
)  # fmt: skip
def test_a_load_generator_without_a_result_is_an_error(scene, fail, script, changes, message):
    assert message in fail(SERVE, **load_with(script, scene, **changes))


def test_a_load_generator_is_stopped_at_the_end_of_the_duration(scene, serve):
    script = f"trap 'echo requests: 9; exit 3' TERM; echo requests: 1; {FOREVER}"
    assert serve(SERVE, **load_with(script, scene, duration_s=1.0))[1] == (9.0,)


def test_a_signal_that_stops_the_ranks_interrupts_bench(serve):
    """As Ctrl-C, which may reach the supervisor before bench; here it reaches only the supervisor."""
    with pytest.raises(KeyboardInterrupt):
        serve("kill $PPID; exec sleep 300", duration_s=60)


BENCH = "import sys; from tests.live.test_bench_services import interrupted; interrupted(*sys.argv[1:])"


def interrupted(directory, script):
    """Run a server and a load generator until this process is interrupted; then print that."""
    settings = service_settings(duration_s=300, load=("sh", "-c", script), load_cpus=CpuSet((0,)))
    try:
        run_service(make_start("sh", "-c", script, env=dict(os.environ), ranks=2), settings, directory)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_bench_leaves_neither_ranks_nor_load_generator(number, scene, tmp_path):
    command = [sys.executable, "-c", BENCH, str(tmp_path / "run"), "echo >>$DIRECTORY/up; exec sleep 300"]
    environment, up = scene.environment(PYTHONPATH=str(Path(__file__).parents[2])), scene.directory / "up"
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: up.exists() and up.stat().st_size == 3, "two ranks and the load generator run")
        process.send_signal(number)
        output, _ = process.communicate(timeout=20)
    assert output == ("interrupted\n" if number == signal.SIGINT else "")
    scene.check_nothing_left("the end of bench")
