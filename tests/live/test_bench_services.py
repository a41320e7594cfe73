"""Servers as candidates: ready, measured with and without a load generator, stopped; nothing is left."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ompbind.bench.metrics import make_metrics
from ompbind.bench.records import Status
from ompbind.bench.run_candidate import run_candidate
from ompbind.bench.service import READY_LIMIT_S, check_service, find_load_cpus, run_service
from ompbind.bench.start_ranks import Service, start_ranks
from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError, MeasurementError, PositionError, RequestError
from ompbind.execution.readiness import PortCheck
from tests.live.candidates import SLOT, make_settings, make_start
from tests.live.conftest import wait_until

PYTHON = (sys.executable, "-I", "-S", "-c")

SERVER = """
import os, signal, socket, sys
requests = 0
def end(*_):
    print("requests:", requests, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
server = socket.create_server(("127.0.0.1", int(sys.argv[1]) + int(os.environ["RANK"])))
print("listening on port", sys.argv[1], flush=True)
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
first, servers, total = map(int, sys.argv[1:])
began = time.monotonic()
for i in range(total):
    with socket.create_connection(("127.0.0.1", first + i % servers)) as client:
        client.sendall(b"x")
        client.recv(10)
print("requests/s:", total / (time.monotonic() - began))
print("cpus:", *os.sched_getaffinity(0))
"""
"""Sends requests to several servers in turn; prints the requests per second."""


def service_settings(*, duration_s=0.3, ready="", load=(), pattern=r"requests: (\d+)", **changes):
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


def run_wrong(start, settings, directory):
    with pytest.raises(MeasurementError) as raised:
        run_service(start, settings, str(directory))
    return raised.value.message


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
def test_a_load_generator_measures_servers_from_reserved_cpus(bound, scene, tmp_path):
    """Each server has its port; beside the unbound candidate the load generator has the same CPUs."""
    port, ranks = free_port(), 1 if bound else 2
    planned = make_server(scene, port, reserve_total=1)
    start = planned if bound else make_server(scene, port, ranks=ranks, bound=False)
    load_cpus = find_load_cpus((make_server(scene, port, bound=False), planned))
    settings = service_settings(
        duration_s=20, ready=f"tcp:{{rank+{port}}}", load=(*PYTHON, LOAD, str(port), "{size}", "40"),
        pattern="requests/s: ([0-9.]+)", load_cpus=load_cpus,
    )  # fmt: skip
    check_service((start,), settings)
    began = time.monotonic()
    env = {rank: {**command.env, "RANK": str(rank)} for rank, command in enumerate(start.commands)}
    start = start.replace(commands=[command.replace(env=env[command.rank]) for command in start.commands])
    outcome, (rate,) = run_service(start, settings, str(tmp_path))
    assert time.monotonic() - began < 10, "it does not wait for the end of the duration"
    assert rate > 40 / 10
    assert sorted((exit.rank, exit.code, exit.stopped) for exit in outcome.exits) == [
        (rank, 0, True) for rank in range(ranks)
    ]
    assert load_cpus == planned.plan.reserved
    assert f"cpus: {' '.join(map(str, load_cpus))}\n" in (tmp_path / "load" / "0.out").read_text()
    counts = [int((tmp_path / f"{rank}.out").read_text().split()[-1]) for rank in range(ranks)]
    assert counts == [40 // ranks] * ranks
    assert not scene.find()


def test_without_load_generator_the_ranks_report_after_the_duration(scene, tmp_path):
    script = 'trap "echo requests: 7; exit 0" TERM; echo up; while :; do sleep 0.01; done'
    settings = service_settings(duration_s=1.1, timeout_s=1.0, ready="^up$")
    began = time.monotonic()
    outcome, values = run_service(make_shell(script, scene, ranks=2), settings, str(tmp_path))
    assert time.monotonic() - began >= 1.1, "--timeout is for the time until ranks are ready"
    assert values == (14.0,)
    assert not any(rank_exit.failed for rank_exit in outcome.exits)
    assert not scene.find()


def test_the_duration_begins_when_all_ranks_are_ready(scene, tmp_path):
    """Rank 1 waits for a file, which appears only after rank 0 has been ready for some time."""
    script = (
        'trap "exit 0" TERM; if [ $RANK = 1 ]; then until [ -e $DIRECTORY/go ]; do sleep 0.01; done; fi;'
        " printf 'rank %s: ready' $RANK >&2; echo requests: 1; touch $DIRECTORY/ready.$RANK;"
        " [ $RANK = 1 ] || (sleep 0.3; touch $DIRECTORY/go); while :; do sleep 0.01; done"
    )
    settings = service_settings(duration_s=0.1, ready="rank {rank}: ready")
    _, values = run_service(make_shell(script, scene, ranks=2), settings, str(tmp_path))
    assert values == (2.0,)
    assert (scene.directory / "ready.1").exists()


def test_a_server_that_is_never_ready_is_an_error(scene, tmp_path):
    script = "echo loading; echo no memory >&2; exec sleep 300"
    settings = service_settings(ready="listening", timeout_s=0.3)
    message = run_wrong(make_shell(script, scene, ranks=2), settings, tmp_path)
    assert message == (
        "ranks 0-1 are not ready within 0.3 s (--timeout): "
        "no line of the output of rank 0 matches 'listening'; last lines: no memory"
    )
    assert not scene.find()


def test_a_port_without_server_is_an_error(scene, tmp_path):
    port = free_port()
    settings = service_settings(ready=f"tcp:{port}", timeout_s=0.2)
    message = run_wrong(make_shell("exec sleep 300", scene), settings, tmp_path)
    assert message.startswith(
        f"rank 0 is not ready within 0.2 s (--timeout): port {port} of rank 0 accepts no connection"
    )
    assert not scene.find()


def test_a_port_that_another_program_has_is_an_error_before_ranks_start(scene, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = service_settings(ready=f"tcp:{port}")
        message = run_wrong(make_shell("touch $DIRECTORY/started", scene), settings, tmp_path)
    assert message == f"port {port} accepts connections before rank 0 has started: another program has it"
    assert not (scene.directory / "started").exists()


def test_the_record_of_a_run_has_the_values_of_metrics(scene):
    settings = make_settings(metrics=make_metrics((r"a (\d+)", r"b (\d+)")))
    start = make_shell("echo a 1; echo a 2; echo b $((RANK + 3)) >&2", scene, ranks=2)
    run = run_candidate(start, settings, SLOT, verify=False)
    assert (run.values, run.status, run.exit_codes) == ((2.0, 4.0), Status.OK, (0, 0))


def test_a_run_without_the_number_has_failed(scene):
    settings = make_settings(metrics=make_metrics((r"a (\d+)",)))
    run = run_candidate(make_shell("echo b 1", scene), settings, SLOT, verify=False)
    assert (run.values, run.status, run.exit_codes, len(run.wall_s)) == ((), Status.FAILED, (0,), 1)
    assert run.reason == r"metric 'a (\d+)': no line of the output of rank 0 matches; last lines: b 1"


def test_the_record_of_a_server_has_no_exit_code_from_its_stop(scene):
    script = "echo requests: 3; exec sleep 300"
    settings = service_settings(ready="requests", duration_s=0.1)
    run = run_candidate(make_shell(script, scene, ranks=2), settings, SLOT, verify=False)
    assert (run.reason, run.values, run.exit_codes) == ("", (6.0,), (0, 0))
    assert not scene.find()


def test_the_record_of_a_server_that_fails_has_the_reason(scene):
    run = run_candidate(make_shell("exit 3", scene), service_settings(ready="up"), SLOT, verify=False)
    assert (run.status, run.exit_codes, run.reason) == (Status.FAILED, (3,), "rank 0 exited with code 3")
    run = run_candidate(make_shell("exit 0", scene), service_settings(ready="up"), SLOT, verify=False)
    assert run.status == Status.FAILED
    assert run.reason.startswith("rank 0 exited with code 0 before the end of the measurement")


SELF_CONNECTION = """
import fcntl, socket, struct
from ompbind.execution.readiness import PortCheck
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    SIOCSIFFLAGS, IFF_UP = 0x8914, 1
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
    file.write("20000 20001")
print([port for port in (20000, 20001) * 10 if PortCheck(port).is_ready()])
for port in (20000, 20001):
    with socket.create_server(("127.0.0.1", port)):
        print(PortCheck(port).is_ready())
"""


def test_a_check_of_a_port_does_not_connect_to_itself():
    """In a network namespace with two ports for outgoing connections; the server can have both afterwards."""
    words = ["unshare", "-n", sys.executable, "-c", SELF_CONNECTION]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespace here: {done.stderr}")
    assert done.stdout.splitlines() == ["[]", "True", "True"], done.stderr


@pytest.mark.parametrize("ready", ["never", ""], ids=["before ready", "while measured"])
def test_a_server_that_fails_stops_the_run_at_once(ready, scene, tmp_path):
    settings = service_settings(duration_s=60, ready=ready, load=("sleep", "300"), load_cpus=CpuSet((0,)))
    script = "[ $RANK = 0 ] && exec sleep 300; sleep 0.1; echo no port >&2; exit 3"
    began = time.monotonic()
    outcome, values = run_service(make_shell(script, scene, ranks=2), settings, str(tmp_path))
    assert time.monotonic() - began < 10 < READY_LIMIT_S
    failed = [rank_exit for rank_exit in outcome.exits if rank_exit.failed]
    assert [(rank_exit.rank, rank_exit.code, rank_exit.last_lines) for rank_exit in failed] == [
        (1, 3, ("no port",))
    ]
    assert values == ()
    assert not scene.find()


@pytest.mark.parametrize("ready", ["never", ""], ids=["before ready", "while measured"])
def test_a_server_that_exits_by_itself_is_an_error_even_with_code_0(ready, scene, tmp_path):
    script = "[ $RANK = 0 ] && exec sleep 300; echo bye"
    settings = service_settings(duration_s=60, ready=ready)
    began = time.monotonic()
    message = run_wrong(make_shell(script, scene, ranks=2), settings, tmp_path)
    assert time.monotonic() - began < 10
    assert message == "rank 1 exited with code 0 before the end of the measurement; last lines: bye"
    assert not scene.find()


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace_period(scene, tmp_path):
    script = "trap '' TERM; echo requests: 5; echo up; while :; do sleep 0.01; done"
    outcome, values = run_service(
        make_shell(script, scene), service_settings(ready="up", grace_s=0.2), str(tmp_path)
    )
    (rank_exit,) = outcome.exits
    assert (rank_exit.signal, rank_exit.failed, values) == (signal.SIGKILL, False, (5.0,))
    assert not scene.find()


SERVE = "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done"


def run_load(script, scene, directory, **changes):
    settings = service_settings(
        **{"ready": "up", "load": ("sh", "-c", script, scene.marker), "load_cpus": CpuSet((0,))} | changes
    )
    return run_service(make_shell(SERVE, scene), settings, str(directory))


def test_a_load_generator_that_fails_is_an_error_with_its_last_lines(scene, tmp_path):
    with pytest.raises(MeasurementError) as raised:
        run_load("echo requests: 4; echo connection refused >&2; exit 2", scene, tmp_path)
    assert raised.value.message == "the load generator exited with code 2; last lines: connection refused"
    with pytest.raises(MeasurementError, match=r"generator \(started at once: there is no --ready\) exited"):
        run_load("exit 2", scene, tmp_path / "at once", ready="")


def test_a_port_that_closed_connections_keep_is_explained(scene):
    """The server closes each connection first, so the kernel keeps its port for a minute."""
    server = "import socket, sys\ns = socket.socket()\ns.bind(('127.0.0.1', int(sys.argv[1])))\ns.listen()\n"
    server += "while c := s.accept()[0]:\n c.recv(1)\n c.close()"
    port = next(port for port in range(free_port(), 32_000) if not PortCheck(port).is_closing())
    start = make_start(*PYTHON, server, str(port), scene.marker, env=scene.environment())
    load = f"import socket; c = socket.create_connection(('127.0.0.1', {port})); c.send(b'x'); c.recv(1)"
    load = (*PYTHON, f"{load}; print('requests: 1')")
    settings = service_settings(ready=f"tcp:{port}", duration_s=5.0, load=load)
    run = run_candidate(start, settings, SLOT, verify=False)
    assert (run.reason, run.values) == ("", (1.0,))
    reason = run_candidate(start, settings, SLOT, verify=False).reason
    assert f"closed connections of an earlier run have port {port} for a minute" in reason
    assert "SO_REUSEADDR" in reason
    assert "Address already in use" in reason
    assert not scene.find()


def test_a_load_generator_is_stopped_at_the_end_of_the_duration(scene, tmp_path):
    script = "trap 'echo requests: 9; exit 3' TERM; echo requests: 1; while :; do sleep 0.01; done"
    assert run_load(script, scene, tmp_path)[1] == (9.0,)
    assert not scene.find()


def test_a_load_generator_that_hangs_without_result_is_an_error(scene, tmp_path):
    with pytest.raises(MeasurementError) as raised:
        run_load("trap '' TERM; while :; do sleep 0.01; done", scene, tmp_path, grace_s=0.1)
    assert raised.value.message == (
        "metric 'requests: (\\d+)': no line of the output of the load generator (stopped after 0.3 s) "
        "matches; it has written nothing"
    )
    assert not scene.find()


def test_a_load_generator_that_is_missing_is_an_error_before_ranks_start(scene):
    settings = service_settings(load=("no-such-program",))
    with pytest.raises(LaunchError, match="no-such-program"):
        check_service((make_shell("exit", scene),), settings)


def test_a_load_generator_that_cannot_be_bound_is_an_error(scene, tmp_path):
    settings = service_settings(load=("true",), load_cpus=CpuSet((60_000,)))
    assert "the load generator has not started: cannot bind to CPU 60000" in run_wrong(
        make_shell(SERVE, scene), settings, tmp_path
    )
    assert not scene.find()


@pytest.mark.parametrize(
    ("ready", "load", "message"),
    [
        ("tcp:none", (), "'none' is not a port"),
        ("tcp:{rank+65536}", (), "'65536' is not a port"),
        ("tcp:0", (), "'0' is not a port"),
        ("(", (), "wrong regular expression"),
        ("{cpus}", (), "{cpus} has no value here"),
        ("", ("true", "{rank}"), "{rank} has no value here"),
    ],
)
def test_texts_that_cannot_work_are_refused_before_ranks_start(ready, load, message, scene):
    with pytest.raises(PositionError) as raised:
        check_service((make_shell("exit", scene),), service_settings(ready=ready, load=load))
    assert raised.value.message.startswith(message)


def test_a_load_generator_needs_cpus_that_all_candidates_reserve(scene):
    reserved, other = (make_shell("exit", scene, reserve_total=count) for count in (1, 0))
    assert find_load_cpus((reserved, reserved)) == reserved.plan.reserved
    for starts in ((reserved, other), (make_shell("exit", scene, bound=False),), ()):
        with pytest.raises(RequestError, match="--load needs reserved CPUs") as raised:
            find_load_cpus(starts)
        assert "--reserve-total 1" in raised.value.hint


@pytest.mark.parametrize("delays_ms", [range(20), range(20, 60, 2)], ids=["at the start", "later"])
def test_a_run_that_is_stopped_at_any_moment_has_an_outcome(delays_ms, scene, tmp_path):
    """The rank exits after some 30 ms, so the stop comes before, while and after it runs."""
    start = make_shell("sleep 0.02", scene)
    for delay_ms in delays_ms:
        with start_ranks(start, make_settings(), str(tmp_path / str(delay_ms))) as ranks:
            ranks.has_exited(delay_ms / 3000)
            ranks.stop()
            outcome = ranks.wait()
        assert outcome.error is None
    assert not scene.find()


def test_a_signal_that_stops_the_ranks_interrupts_bench(scene, tmp_path):
    """As Ctrl-C, which may reach the supervisor before bench; here it reaches only the supervisor."""
    script = "kill $PPID; exec sleep 300"
    with pytest.raises(KeyboardInterrupt):
        run_service(make_shell(script, scene), service_settings(duration_s=60), str(tmp_path))
    assert not scene.find()


BENCH = """
import sys
from tests.live.test_bench_services import interrupted
interrupted(*sys.argv[1:])
"""


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
    environment = scene.environment(PYTHONPATH=str(Path(__file__).parents[2]))
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        wait_until(
            lambda: (scene.directory / "up").exists() and (scene.directory / "up").stat().st_size == 3,
            "two ranks and the load generator run",
        )
        process.send_signal(number)
        output, _ = process.communicate(timeout=20)
    assert output == ("interrupted\n" if number == signal.SIGINT else "")
    scene.check_nothing_left("the end of bench")
