"""Runs with several commands: what each group gets, who starts when, what ends the run, and what is left."""

import json
import os
import shlex
import signal
import socket
import sys
import time
from contextlib import nullcontext

import pytest

from tests.cli.command_lines import call
from tests.launchers.environments import make_env
from tests.live.conftest import is_alive, one_line, ranks_of, state_of, two_cpus, wait_until
from tests.live.test_kills import BARE, FAMILY, check_kill, moments, wait_for_supervisor
from tests.live.test_restarts import SHORT_WAITS
from tests.long import rounds
from tests.slurm import find_free_ports
from tests.soak_plans import SERVER as SOAK_SERVER

pytestmark = pytest.mark.usefixtures("stranger")

SHOW = """
import json, os
names = ("OMPBIND_", "RANK", "LOCAL_", "WORLD_", "MASTER_", "A", "B")
env = {name: value for name, value in os.environ.items() if name.startswith(names)}
os.write(1, (json.dumps({**env, "mask": sorted(os.sched_getaffinity(0))}) + "\\n").encode())
"""
PYTHON = [sys.executable, "-c"]
SERVER = ["sh", "-c", 'sleep "$1"; exec "$0" -um http.server -b 127.0.0.1 "$2"', sys.executable]
"""A server; its arguments are the seconds after which it starts, and its port."""


@pytest.fixture
def port():
    return str(*find_free_ports(1))


def group(scene, name, script, *options):
    """Return the words of a group whose ranks run a script of sh."""
    return ["--name", name, *options, *scene.command("sh", "-c", script)]


def reports(done):
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(found, key=lambda env: int(env["OMPBIND_RANK"]))


def test_ranks_have_the_cpus_and_the_variables_of_their_group(ompbind):
    first, second = two_cpus()
    words = ["--name", "server", "-m", str(second), "--env", "A={rank}/{size} {group_rank}/{group_size}"]
    words += ["--", *PYTHON, SHOW, ":", "--name", "load", "-n", "2", "-m", f"{first}|{second}"]
    words += ["--env", "B={group} {cpus:server} {local_rank}", "--", *PYTHON, SHOW]
    server, *clients = reports(ompbind("run", "--share", "--rendezvous", *words))
    names = ("OMPBIND_RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPBIND_GROUP",
             "OMPBIND_GROUP_RANK", "OMPBIND_GROUP_SIZE", "OMPBIND_CPUS", "mask")  # fmt: skip
    assert [[env[name] for name in names] for env in (server, *clients)] == [
        ["0", "0", "1", "0", "1", "server", "0", "1", str(second), [second]],
        ["1", "0", "2", "0", "2", "load", "0", "2", str(first), [first]],
        ["2", "1", "2", "1", "2", "load", "1", "2", str(second), [second]],
    ]
    assert server["A"] == "0/3 0/1"
    assert [env["B"] for env in clients] == [f"load {second} 0", f"load {second} 1"]
    assert clients[0]["MASTER_PORT"] == clients[1]["MASTER_PORT"] != server["MASTER_PORT"]


@pytest.mark.two_cpus
def test_a_run_in_a_rank_of_a_group_has_no_group(ompbind):
    words = ["--name", "a", "--", "true", ":", "--name", "b", "--", "ompbind", "run", "--share", "--"]
    done = ompbind("run", *words, *PYTHON, SHOW)
    (env,) = reports(done)
    assert (env["OMPBIND_RANK"], env["RANK"]) == ("0", "0")
    assert not [name for name in env if name.startswith("OMPBIND_GROUP")]
    assert "copies" not in one_line(done.stderr)


@pytest.mark.two_cpus
def test_tags_log_files_summary_and_report_have_the_groups(ompbind, tmp_path):
    report = tmp_path / "run.json"
    words = ["-v", "--output", "tag,files", "--log-dir", str(tmp_path / "logs"), "--report", str(report)]
    words += shlex.split("--name one -- cat : --name two --on-failure continue -- sh -c")
    script = "cat; echo second; echo wrong >&2; exit 3"
    done = ompbind("run", *words, script, input="first", stdin=None)
    assert done.returncode == 3
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("[")) == [
        "[one 0] first", "[two 0] second"
    ]  # fmt: skip
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == ["one.0.err", "one.0.out", "two.0.err", "two.0.out"]
    assert (tmp_path / "logs/two.0.err").read_text() == "wrong\n"
    assert "rank 1 (two 0, pid " in one_line(done.stderr)
    record = json.loads(report.read_text())
    assert record["commands"]["one"] == ["cat"]
    assert [(each["rank"], each["group"], each["group_rank"]) for each in record["ranks"]] == [
        (0, "one", 0), (1, "two", 0)
    ]  # fmt: skip
    assert [group["group"] for group in record["plan"]["groups"]] == ["one", "two"]


def test_formats_of_plan_show_all_groups_and_masks_give_the_same_cpus():
    groups = shlex.split("-c 2 --name a -- x : -n 2 --name b --memory bind -- y")
    plan = ["plan", "--topology", "sample:two-sockets", "--format"]
    done = call(*plan, "numactl", *groups)
    lines = ["numactl --physcpubind=0-1", "numactl --physcpubind=2-4 --membind=0-1",
             "numactl --physcpubind=5-7 --membind=1"]  # fmt: skip
    assert done.stdout.splitlines() == lines
    assert call(*plan, "numactl", "--rank", "1", *groups).stdout.splitlines() == lines[1:2]
    assert "OMPBIND_GROUP_RANK=1\n" in call(*plan, "env", "--rank", "2", *groups).stdout
    assert "rank 1 (b 0): CPUs 2-4" in call(*plan, "picture", *groups).stdout
    error = one_line(call(*plan, "slurm", *groups).stderr)
    assert "--format slurm has one --memory for all ranks, but the groups differ in it" in error
    words = shlex.split("--name a -n 2 -c 1 --service-cores 1 -- x : --name b -n 2 --reserve 1 -- y")
    first, second = map(shlex.split, call(*plan, "mask", *words).stdout.splitlines())
    masks = ["--name", "a", *first, "--", "x", ":", "--name", "b", *second, "--", "y"]
    cpus = call(*plan, "taskset", *words).stdout
    assert (call(*plan, "taskset", *masks).stdout, len(cpus.splitlines())) == (cpus, 4)


def test_the_last_mask_of_several_groups_is_for_all_ranks_of_one_launcher():
    at = ("--topology", "sample:two-sockets")
    words = shlex.split("--share --name a -m '0-3|2-3' -n 2 -- x : --name b -n 2 -c 2 -- y")
    mask = shlex.split(call("plan", *at, "--format", "mask", *words).stdout.splitlines()[-1])
    cpus = call("plan", *at, "--format", "taskset", *words).stdout
    assert call("plan", *at, "--format", "taskset", *mask, "--", "x").stdout == cpus
    for rank in range(4):
        env = make_env(f"RANK={rank} SIZE=4 LOCAL_RANK={rank} LOCAL_SIZE=4", "OMPI_COMM_WORLD_")
        shown = call("exec", *at, "--dry-run", *mask, "--", "x", **env).stdout.splitlines()[-1]
        assert f"CPUs {cpus.splitlines()[rank].split()[-1]}," in shown


@pytest.mark.two_cpus
@pytest.mark.parametrize("check", ["tcp:{port}", "http://127.0.0.1:{port}/", "text:^Serving", "exec:{show}"])
def test_a_group_starts_when_the_group_before_is_ready(ompbind, tmp_path, port, check):
    client = "import os, sys, urllib.request; urllib.request.urlopen(sys.argv[1]).close()"
    show = f"sh -c 'test $OMPBIND_GROUP = server && grep -q Serving {tmp_path}/server.0.out'"
    ready = check.replace("{port}", port).replace("{show}", show)
    words = ["--log-dir", str(tmp_path), "--name", "server", "--ready", ready, "--", *SERVER, "0.3", port]
    words += [":", "--name", "load", "--until", "load", "--"]
    done = ompbind("run", *words, *PYTHON, client, f"http://127.0.0.1:{port}/")
    assert done.returncode == 0, done.stderr
    assert "all ranks of group load have exited (--until)" in one_line(done.stderr)
    assert "stopping rank 0 with SIGTERM" in one_line(done.stderr)


def test_all_ranks_must_be_ready_and_the_text_may_have_placeholders(ompbind, tmp_path):
    script = '[ $RANK = 0 ] || sleep 0.5; touch "$0.$RANK"; sleep 30'
    check = f"exec:test -e {tmp_path}/up.{{group_rank}}"
    words = ["--share", "--name", "first", "--", "true", ":", "--name", "server", "-n", "2", "--ready", check]
    words += ["--", "sh", "-c", script, str(tmp_path / "up"), ":", "--name", "load", "--until", "load", "--"]
    done = ompbind("run", *words, "test", "-e", str(tmp_path / "up.1"))
    assert done.returncode == 0, done.stderr


@pytest.mark.two_cpus
@pytest.mark.parametrize(("options", "command", "code", "text"), [
    ("", "true", 125, "port {port} accepts connections before rank 0 (server 0) has started"),
    ("", "exit 0", 125, "rank 0 (server 0) exited before group server was ready"),
    ("", "exit 3", 3, "rank 0 (server 0, pid "), ("", "kill -9 $$", 137, "was killed by SIGKILL"),
    ("--on-failure continue", "exit 3", 125, "exited before group server was ready"),
])  # fmt: skip
def test_if_a_group_is_not_ready_nothing_starts(ompbind, tmp_path, port, options, command, code, text):
    report = tmp_path / "run.json"
    words = ["--report", str(report), "--name", "server", "--ready", f"tcp:{port}", *options.split()]
    words += ["--", "sh", "-c", command, ":", "--name", "load", "--", "touch", str(tmp_path / "started")]
    with socket.create_server(("127.0.0.1", int(port))) if command == "true" else nullcontext():
        done = ompbind("run", *words)
    assert (done.returncode, text.replace("{port}", port) in one_line(done.stderr)) == (code, True)
    assert not (tmp_path / "started").exists()
    assert json.loads(report.read_text())["exit_code"] == code


SERVES = """
import os, signal, sys, time
def stop(*_):
    started = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
    waited_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    os.write(3, str(waited_s).encode())
    os._exit(0)
os.dup2(os.open(f"{os.environ['DIRECTORY']}/{os.environ['OMPBIND_RUN_ID']}", os.O_WRONLY | os.O_CREAT), 3)
signal.signal(signal.SIGTERM, stop)
%s
time.sleep(60)
"""
"""A rank that writes after how many seconds it is stopped."""


def serve(answer):
    """Return the code of a server of the soak program: what it sends to a client first, and then again."""
    return f"sys.argv[1:] = [{answer!r}, 'PORT']{SOAK_SERVER}"


HTTP = "http://127.0.0.1:PORT/"
UNREADY = {
    "regex": ("text:[ab]*c", "os.write(1, b'a' * 1000000)"),  # takes minutes, and handles no signal
    "log": ("text:none", "os.truncate(1, 1 << 36)"),
    "command": ("exec:sh -c 'trap \"\" TERM; sleep 30 & sleep 30'", ""),
    "silent": (HTTP, serve("b'', None")),
    "slow": (HTTP, serve(r"b'HTTP/1.1 200 OK\r\nA: ', b'b'")),
    "endless": (HTTP, serve(r"b'HTTP/1.1 100 Continue\r\n\r\n' * 100000, None")),
    "closed": ("tcp:PORT", ""),
}
"""What does not get ready: the text of --ready, and what the rank does."""


@pytest.mark.alone
def test_the_time_limit_of_each_kind_of_check_is_hard(scene):
    runs = {}
    for (name, (check, does)), port in zip(UNREADY.items(), find_free_ports(len(UNREADY)), strict=True):
        words = ["--share", "--run-id", name, "--log-dir", str(scene.directory / f"logs-{name}")]
        words += ["--ready", check.replace("PORT", str(port)), "--ready-timeout", "1.5", "--name", "server"]
        words += [*scene.command(*PYTHON, SERVES % does.replace("PORT", str(port))), ":", "--name", "load"]
        runs[name] = scene.begin(*words, *scene.command("true"))
    messages = {name: one_line(process.communicate(timeout=20)[1]) for name, process in runs.items()}
    scene.check_nothing_left("the runs")
    for name, (check, _) in UNREADY.items():
        named = (check.partition(":")[2].partition("PORT")[0], "rank 0 (server 0)", "(--ready-timeout 1.5)")
        assert (runs[name].returncode, [text for text in named if text not in messages[name]]) == (125, [])
        assert 1.49 < float((scene.directory / name).read_text()) < 3, name


@pytest.mark.parametrize("replace", [
    'rm "$1"; mkfifo "$1"', 'echo ready >"$1.new"; ln -sf "$1.new" "$1"', 'ln -sf /dev/zero "$1"',
    'echo ready >"$1.new"; mv "$1.new" "$1"', 'rm "$1"',
])  # fmt: skip
def test_only_the_log_file_of_a_rank_makes_it_ready(scene, replace):
    """The second rank replaces its log before the first one is ready."""
    script = f"""cd "$1"; [ $RANK = 1 ] && set -- "$1/server.1.out" && {{ {replace}; : >replaced; }}
        until [ -e replaced ]; do sleep 0.01; done; [ $RANK = 1 ] || echo ready; exec sleep 30"""
    words = group(scene, "server", script, "-n", "2", "--ready", "text:ready")
    code, messages, _ = scene.run("--share", "--log-dir", str(scene.directory), *words, ":",
                                  *group(scene, "load", "exit 0"))  # fmt: skip
    assert code == 125
    assert f"group server is not ready: cannot read {scene.directory}/server.1.out: " in messages


LOOKS = """
import json, os
def files(pid):
    paths = {name: f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")}
    return {name: os.readlink(path) for name, path in paths.items() if os.path.lexists(path)}
found = {"cpus": sorted(os.sched_getaffinity(0)), "own": files("self"), "parent": files(os.getppid())}
with open(os.environ["DIRECTORY"] + "/found", "w") as file:
    json.dump(found, file)
"""


def test_a_check_runs_where_ompbind_runs_and_has_no_file_of_ranks(scene):
    script = 'readlink /proc/$$/fd/1 >"$DIRECTORY/out"; exec sleep 30'
    (scene.directory / "looks.py").write_text(LOOKS)
    check = f"exec:{shlex.join([sys.executable, str(scene.directory / 'looks.py')])}"
    words = ["--share", "--output", "tag", "-m", str(two_cpus()[1]), "--ready", check, "--name", "a"]
    words += [*scene.command("sh", "-c", script), ":", "--name", "b", "--until", "b"]
    waits = scene.command("sh", "-c", "until [ -e $DIRECTORY/out ]; do :; done")
    code, messages, _ = scene.run(*words, *waits)
    assert code == 0, messages
    found = json.loads((scene.directory / "found").read_text())
    assert found["cpus"] == sorted(os.sched_getaffinity(0))
    for files in (found["own"], found["parent"]):
        assert {files[name] for name in "012"} == {"/dev/null"}
        assert (scene.directory / "out").read_text().strip() not in files.values()
    assert not [file for name, file in found["own"].items() if name not in "012" and ":" in file]


def test_a_rank_gets_sigpipe_while_a_check_runs(scene):
    words = ["--share", "--output", "tag", "--name", "a", "--ready", "exec:sleep 60", *scene.command("yes")]
    process = scene.begin(*words, ":", "--name", "b", *scene.command("true"))
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=20) == 128 + signal.SIGPIPE
    scene.check_nothing_left("the run")


def test_the_time_of_a_pause_does_not_count_for_a_check(scene):
    """The pause is longer than the time limit."""
    words = ["--share", "--name", "a", "--ready", f"exec:test -e {scene.directory}/up"]
    words += ["--ready-timeout", "2", *scene.command("sh", "-c", 'touch "$DIRECTORY/started"; exec sleep 30')]
    words += [":", "--name", "b"]
    process = scene.begin(*words, "--until", "b", *scene.command("true"), process_group=0)
    scene.wait_for("started")
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: state_of(process.pid) == "T", "ompbind is stopped")
    time.sleep(2.2)
    (scene.directory / "up").touch()
    process.send_signal(signal.SIGCONT)
    code, messages, _ = scene.end(process)
    assert code == 0, messages


@pytest.mark.two_cpus
@pytest.mark.parametrize(("server", "client", "options", "code"), [
    ("sleep 30", "exit 0", [], 0), ("sleep 30", "exit 5", [], 5), ("sleep 30", "kill -9 $$", [], 137),
    ("exit 4", "sleep 30", [], 4),  # the server stops the run before the clients have exited
    ("exit 4", "sleep 0.5", ["--on-failure", "continue"], 0),
    ("trap '' TERM; sleep 30 & wait; wait; sleep 30", "exit 0", ["--grace", "0.3"], 0),
])  # fmt: skip
def test_until_a_group_has_exited(scene, server, client, options, code):
    words = group(scene, "server", server, "--until", "load", *options)
    found, messages, _ = scene.run(*words, ":", *group(scene, "load", client))
    assert found == code, messages


@pytest.mark.parametrize("options", [[], ["--keep-descendants"]])
def test_a_restarted_server_restarts_no_client_and_what_a_check_leaves_is_stopped(scene, options):
    """The first attempt exits before the group is ready, the second one while the client runs."""
    server = """echo $OMPBIND_ATTEMPT >>"$1/server"; [ $OMPBIND_ATTEMPT = 1 ] && exit 1; touch "$1/up"
        until [ -e "$1/client" ]; do sleep 0.02; done; [ $OMPBIND_ATTEMPT = 2 ] && exit 1
        touch "$1/again"; exec sleep 30"""
    client = 'echo $OMPBIND_ATTEMPT >>"$1/client"; until [ -e "$1/again" ]; do sleep 0.02; done'
    check = f"exec:sh -c 'sleep 60 & test -e {scene.directory}/up'"
    words = group(scene, "a", server, "--until", "b", "--on-failure", "restart", "--ready", check)
    before = (sys.executable, SHORT_WAITS, "0.02")
    words = [*options, "--share", *words, ":", *group(scene, "b", client)]
    code, messages, _ = scene.run(*words, before=before)
    assert (code, "attempt 3 starts in 0.04 s" in messages) == (0, True), messages
    assert (scene.directory / "server").read_text().split() == ["1", "2", "3"]
    assert (scene.directory / "client").read_text().split() == ["1"]


SLOW = "exec:sh -c 'touch {}/checks; sleep 60'"
SEARCH = "text:[ab]*c"
"""Takes minutes on a long line of a, and no handler of a signal runs meanwhile."""


@pytest.mark.parametrize(("number", "check", "options", "codes", "message"), [
    (signal.SIGTERM, SLOW, ["--keep-descendants"], (143, -15), "not starting rank 1"),
    (signal.SIGINT, SLOW, [], (130, -2), "not starting rank 1"),
    (signal.SIGKILL, SLOW, [], (125,), "the supervisor"),
    (signal.SIGTERM, SEARCH, [], (143, -15), ""),
    pytest.param(signal.SIGINT, SEARCH, [], (130, -2), "", marks=pytest.mark.long),
])  # fmt: skip
def test_a_signal_while_a_group_is_not_ready_ends_the_run(scene, number, check, options, codes, message):
    """The supervisor is killed, ompbind gets other signals."""
    script = "yes a | head -n 1000000 | tr -d '\n'; touch $DIRECTORY/written; exec sleep 60"
    words = group(scene, "a", script, "--ready", check.format(scene.directory))
    words += [":", *group(scene, "b", "touch $DIRECTORY/started")]
    process = scene.begin(*options, "--share", "--log-dir", f"{scene.directory}/logs", *words)
    scene.wait_for("written", *["checks"] * (check == SLOW))
    os.kill(wait_for_supervisor(process) if number == signal.SIGKILL else process.pid, number)
    code, messages, _ = scene.end(process)
    assert (code in codes, message in messages) == (True, True), messages
    assert not (scene.directory / "started").exists()


def begin_three(scene, **options):
    words = ["--share", "--name", "a", "--ready", "exec:true", *scene.command("sh", "-c", FAMILY), ":"]
    words += ["--name", "b", "-n", "2", "--on-failure", "restart", *scene.command("sh", "-c", BARE), ":"]
    return scene.begin(*words, "--name", "c", "-n", "2", *scene.command("sh", "-c", FAMILY), **options)


@pytest.mark.parametrize("who", ["foreground", "supervisor", "signal"])
def test_nothing_is_left_of_three_groups(scene, who):
    for moment in moments(scene, 5, rounds(12), begin_three):
        check_kill(scene, who, moment, begin_three(scene))


@pytest.mark.two_cpus
def test_ps_inspect_and_verify_show_the_groups(scene, ompbind):
    words = ["--run-id", "mixed", *group(scene, "server", "exec sleep 30"), ":"]
    process = scene.begin("--verify", *words, *group(scene, "load", "exec sleep 30"))
    ranks = wait_until(lambda: len(ranks_of(process)) == 2 and ranks_of(process), "both ranks run")
    assert "server 1, load 1" in ompbind("ps").stdout
    (run,) = json.loads(ompbind("ps", "--format", "json").stdout)["runs"]
    assert run["groups"] == {"server": 1, "load": 1}
    done = ompbind("inspect", "mixed")
    assert "rank 0 (server 0) of run mixed" in done.stdout
    assert "rank 1 (load 0) of run mixed" in done.stdout
    crews = json.loads(ompbind("inspect", "mixed", "--format", "json").stdout)["crews"]
    assert [(crew["rank"], crew["group"], crew["group_rank"]) for crew in crews] == [
        (0, "server", 0), (1, "load", 0)
    ]  # fmt: skip
    assert os.sched_getaffinity(ranks[0]) != os.sched_getaffinity(ranks[1])
    done = ompbind("stop", "mixed")
    assert done.returncode == 0, done.stderr
    process.communicate(timeout=20)
    assert not any(map(is_alive, ranks))


@pytest.mark.two_cpus
def test_bench_varies_each_group_and_measures_the_group_that_ends_the_run(ompbind, port):
    words = ["--metric", "value: ([0-9.]+)", "--until", "load", "--max-rounds", "1", "--seed", "1"]
    words += ["--share", "--format", "jsonl", "--name", "server", "--ready", f"tcp:{port}"]
    words += ["--vary", "bind=rank,none", "--", *SERVER, "0", port, ":", "--name", "load", "-n", "2"]
    done = ompbind("bench", *words, "--vary", "mask=0|0;0|1", "--", "sh", "-c", 'echo "value: 1$RANK"')
    assert done.returncode == 0, done.stderr
    header, *events = map(json.loads, done.stdout.splitlines())
    assert [candidate["name"] for candidate in header["candidates"]] == [
        "unbound", "default", "server.bind=rank, load.mask=0|0", "server.bind=rank, load.mask=0|1",
        "server.bind=none, load.mask=0|0", "server.bind=none, load.mask=0|1",
    ]  # fmt: skip
    runs = [event for event in events if event["event"] == "run"]
    assert {run["status"] for run in runs} == {"ok"}
    assert {tuple(run["values"]) for run in runs} == {(11.0,)}  # the slowest of 10 and 11
    varied = header["candidates"][-1]
    line = ["run", *varied["options"], "--dry-run", "--", *varied["words"]]
    assert "--vary" not in line
    done = ompbind(*line)
    assert done.returncode == 0, done.stderr
    assert "server (1 rank, balanced) and load (2 ranks, mask)" in done.stdout
    assert "words" not in header["candidates"][0]


def test_without_vary_bench_proposes_a_choice_for_each_group():
    words = ["bench", "--topology", "synthetic:pack:2 l3:2 core:4 pu:2", "--dry-run", "--name", "a"]
    rest = shlex.split("-- true : --name b -n 2 -- true")
    done = call(*words, *rest)
    assert done.returncode == 0, done.stderr
    assert {"a.smt=all", "b.smt=all"} <= {line.split("  ")[0] for line in done.stdout.splitlines()}
    assert "--name cannot be varied" in one_line(call(*words, "--vary", "name=a,b", *rest).stderr)
