"""The files of recipes in docs/ are run, with stand-ins for programs and for ssh."""

import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest

from tests.live.conftest import (
    OMPBIND,
    RUNTIME_DIR,
    python_with_torch,
    required,
    run_program,
    start_program,
    two_cpus,
    write_program,
)
from tests.live.containers import podman_run
from tests.live.other_user import NOBODY, as_user
from tests.live.test_nodes import nodes
from tests.nodes import NAMES, OPEN_MPI_5
from tests.slurm import find_free_ports, run_batch, start_slurm

__all__ = ["nodes"]  # a fixture

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = "".join(
    (DOCS / name).read_text()
    for name in ("mpi-slurm.md", "groups.md", "containers.md", "queue.md", "serve.md", "workers.md")
)
FILES = dict(re.findall(r"^`([\w.][\w./-]+)`[^\n]*:\n\n```\w+\n(.*?)```", PAGE, re.M | re.S))
"""The files that the pages show, by name."""


def shown_in(heading):
    """Return the lines that a recipe shows as output."""
    section = re.split(rf"^#+ {heading}$", PAGE, maxsplit=1, flags=re.M)[1]
    return re.search(r"```text\n(.*?)```", section, re.S)[1].splitlines()


def lines_of_ranks(size, ranks):
    """Return the lines that `-v` prints for some ranks, two on each node."""
    return [
        f"ompbind: rank {rank} of {size} on node {NAMES[rank // 2]}: CPU 0, 1 place, 1 thread"
        for rank in ranks
    ]


def without_numbers(lines):
    """Return lines in order, without the CPUs and threads of this machine."""
    return sorted(re.sub(r"CPUs? [\d,-]+|\d+ (?=threads?)|threads?$", "#", line) for line in lines)


def path_to(directory, program=OMPBIND):
    """Return the variable with which programs in a directory are found first, and then ompbind."""
    return {"PATH": f"{directory}:{os.path.dirname(program)}:{os.environ['PATH']}"}


def run_script(text, directory, env=None, before=()):
    return run_program(*before, "bash", "-c", text, cwd=directory, env=env, timeout=90)


def test_every_file_of_the_pages_is_tested():
    source = Path(__file__).read_text()
    assert len(FILES) >= 8
    assert not [name for name in FILES if f'"{name}"' not in source]


@pytest.mark.part("nodes")
def test_slurm(nodes, tmp_path):
    nodes.forget()
    work, directory = tmp_path / "work", tmp_path / "slurm"
    work.mkdir()
    directory.mkdir()
    write_program(work / "app", f'exec {nodes.together} sh -c "echo $RANK $CUDA_VISIBLE_DEVICES >$RANK"')
    (work / "job.sh").write_text(FILES["job.sh"])
    how = {"agent": (nodes.on,), "gpus": 2, "settings": f"TaskProlog={nodes.prolog}"}
    with start_slurm(directory, nodes.environment(), NAMES, **how) as env:
        code = run_batch("job.sh", env=env, cwd=work)
    output = (work / "job.out").read_text()
    assert code == 0, output
    lines = [line for line in output.splitlines() if " of 8 on node " in line]
    assert without_numbers(lines) == without_numbers(lines_of_ranks(8, range(8)))
    assert [(work / str(rank)).read_text() for rank in range(8)] == [f"{rank} 0,1\n" for rank in range(8)]


AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
OPEN_MPI_4 = (
    f"{AS_ROOT} OMPI_MCA_btl=self OMPI_MCA_plm_rsh_agent={{}} OMPI_MCA_plm_rsh_no_tree_spawn=1"
    " OMPI_MCA_oob_tcp_if_include=lo"
)
PRRTE = f"{AS_ROOT} PRTE_MCA_plm_ssh_agent={{}} PRTE_MCA_plm_ssh_no_tree_spawn=1"
HYDRA = "HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC={} HYDRA_IFACE=lo"
"""The settings of each launcher that replace ssh by the agent of the nodes."""


@pytest.mark.part("nodes")
@pytest.mark.parametrize(("text", "program", "real", "settings"), [
    pytest.param(FILES["run-openmpi.sh"], "mpirun", "mpirun.openmpi", OPEN_MPI_4, id="openmpi-4"),
    pytest.param(FILES["run-openmpi.sh"], "mpirun", f"{OPEN_MPI_5}/bin/mpirun", PRRTE, id="openmpi-5"),
    pytest.param(FILES["run-mpich.sh"], "mpiexec", "mpiexec.hydra", HYDRA, id="mpich"),
])  # fmt: skip
def test_mpi(nodes, tmp_path, text, program, real, settings):
    nodes.forget()
    before = f"unshare --net -- sh -c {shlex.quote(nodes.network())} sh" if settings == PRRTE else ""
    write_program(tmp_path / program, f'exec {before} {required(real)} "$@"')
    show = 'sh -c "grep Cpus_allowed_list /proc/self/status >$RANK"'
    write_program(tmp_path / "app", f"exec {nodes.together} {show}")
    env = nodes.environment(**dict(word.split("=") for word in settings.format(nodes.agent).split()))
    without = ("env", "-u", RUNTIME_DIR)  # each node has its own
    done = run_script(text, tmp_path, {**env, **path_to(tmp_path)}, without)
    assert (done.returncode, done.stdout, "ompbind" in done.stderr) == (0, "", False), done.stderr
    cpus = [(tmp_path / str(rank)).read_text().split()[1] for rank in range(8)]
    assert len(set(cpus[:2])) == 2
    assert cpus == cpus[:2] * 4


@pytest.mark.part("nodes")
def test_torchrun(nodes, tmp_path):
    nodes.forget()
    torchrun = f"{python_with_torch()} -m torch.distributed.run --local-addr 127.0.0.1"
    write_program(tmp_path / "torchrun", f'exec {torchrun} "$@"')
    write_program(tmp_path / "train", f'exec {nodes.together} sh -c "echo $RANK of $WORLD_SIZE"')
    env = nodes.environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(find_free_ports(1)[0]))
    agents = [
        start_program(nodes.on, NAMES[number], "bash", "-c", FILES["train.sh"], cwd=tmp_path,
                      env={**env, **path_to(tmp_path), "NODE_RANK": str(number)})
        for number in range(2)
    ]  # fmt: skip
    ended = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], ended
    assert sorted("".join(out for out, _ in ended).splitlines()) == [f"{rank} of 4" for rank in range(4)]
    lines = [line for line in ended[1][1].splitlines() if " of 4 on node " in line]
    assert without_numbers(lines) == without_numbers(lines_of_ranks(4, (2, 3)))


@pytest.mark.part("image")
@pytest.mark.parametrize("limit", [1, None])
def test_containers(limit):
    """The root of the container is this machine's, without an image."""
    text = FILES["Dockerfile"]
    entry, command = (json.loads(re.search(f"^{word} (.*)", text, re.M)[1]) for word in ("ENTRYPOINT", "CMD"))
    assert (entry, command[0]) == (["ompbind", "exec", "--"], "python")
    show = "import os; print(os.getpid(), os.environ['OMPBIND_NUM_THREADS'])"
    limits = ("--cpus", str(limit)) if limit else ()
    entry_point = ("--entrypoint", json.dumps([OMPBIND, *entry[1:]]))
    with podman_run() as words:
        done = run_program(*words, *limits, *entry_point, "--rootfs", "/:O", sys.executable, "-c", show)
    assert done.stdout == f"1 {limit or len(os.sched_getaffinity(0))}\n", done.stderr
    assert done.stderr.splitlines() == (shown_in("Limits") if limit else [])


@pytest.mark.two_cpus
def test_systemd(tmp_path):
    write_program(tmp_path / "serve", "echo ready")
    (tmp_path / "ompbind").symlink_to(OMPBIND)
    unit, text = tmp_path / "serve.service", FILES["serve.service"]
    verify = (required("systemd-analyze"), "verify", str(unit))
    unit.write_text(text.replace("/usr/local", str(tmp_path)))
    assert run_program(*verify).returncode == 1  # there is no such program
    text = text.replace("/usr/local/bin", str(tmp_path))
    unit.write_text(text)
    verified = run_program(*verify)
    assert (verified.returncode, verified.stderr) == (0, "")
    started = run_program(*shlex.split(re.search(r"ExecStart=(.*)", text)[1]))
    assert (started.returncode, sorted(started.stdout.splitlines())) == (0, shown_in("systemd"))


def test_kubernetes(yaml, tmp_path):
    pod = yaml.safe_load(FILES["serve.yaml"])
    (container,) = pod["spec"]["containers"]
    resources = container["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"].isdecimal()
    write_program(tmp_path / "python", 'echo "$1 $RANK"')
    done = run_program(*container["command"], *container["args"], env=path_to(tmp_path))
    assert sorted(done.stdout.splitlines()) == ["[0] /serve.py 0", "[1] /serve.py 1"], done.stderr


@pytest.mark.two_cpus
def test_programs_with_a_thread_option(tmp_path):
    commands = re.findall(r"\| `(ompbind [^`]*--fill -- [^`]*\{threads\}[^`]*)` \|", PAGE)
    assert len(commands) >= 7
    for command in commands:
        words = command.partition(" -- ")[2]
        write_program(tmp_path / words.split()[0], 'echo "$OMP_NUM_THREADS $RANK ${0##*/} $*"')
        done = run_script(command, tmp_path, path_to(tmp_path))
        lines = done.stdout.splitlines()
        assert len(lines) == (2 if " run " in command else 1), done.stderr
        for threads, rank, filled in (line.split(" ", 2) for line in lines):
            assert filled == words.replace("{threads}", threads).replace("{rank}", rank)


@pytest.mark.two_cpus
def test_llama_cpp(tmp_path):
    write_program(tmp_path / "llama-server", 'echo "llama-server $*: $LLAMA_ARG_THREADS threads"')
    done = run_script(FILES["llama.sh"], tmp_path, path_to(tmp_path))
    assert without_numbers(done.stdout.splitlines()) == without_numbers(shown_in("llama.cpp")), done.stderr


JOB = """
import os, sys, time
cpus = os.sched_getaffinity(0)
assert len(cpus) == 1, cpus
for cpu in cpus:
    os.mkdir(f"cpu-{cpu}")  # an error if another job has this CPU now
time.sleep(0.2)
for cpu in cpus:
    os.rmdir(f"cpu-{cpu}")
open(f"done-{sys.argv[1]}-{os.environ['RANK']}", "x")
"""


@pytest.mark.two_cpus
@pytest.mark.parametrize(("tool", "mpirun", "ranks"), [
    ("parallel", "", 1), ("xargs", "", 1), ("make", "", 1), ("ctest", "", 1), ("pytest", "mpiexec.hydra", 2),
    pytest.param("pytest", "mpirun.openmpi --allow-run-as-root", 2, marks=pytest.mark.part("openmpi")),
])  # fmt: skip
def test_jobs_of_a_queue_never_share_a_cpu(tmp_path, tool, mpirun, ranks):
    """Four jobs at a time start on two CPUs."""
    required(tool)
    (tmp_path / "job.py").write_text(JOB)
    write_program(tmp_path / "job", f'exec {shlex.join([sys.executable, str(tmp_path / "job.py")])} "$@"')
    if mpirun:
        program, *options = mpirun.split()
        write_program(tmp_path / "mpirun", f'exec {shlex.join([required(program), *options])} "$@"')
    for name in ("Makefile", "CMakeLists.txt", "test_jobs.py"):
        (tmp_path / name).write_text(FILES[name])
    section = PAGE.partition("\n## A queue of jobs\n")[2]
    line = next(line for line in re.findall(r"^\| .* \| `(.*?)`", section, re.M) if f"{tool} -" in line)
    cpus = ",".join(map(str, two_cpus()))
    done = run_script(line.replace("\\|", "|"), tmp_path, path_to(tmp_path), ("taskset", "-c", cpus))
    assert done.returncode == 0, (done.stdout, done.stderr)
    expected = {f"done-{job}-{rank}" for job in range(1, 7) for rank in range(ranks)}
    assert {path.name for path in tmp_path.rglob("done-*")} == expected


@pytest.mark.two_cpus
@pytest.mark.parametrize("command", [FILES["load.sh"], re.search("ompbind run --group all .*", PAGE)[0]])
def test_a_server_and_its_clients(tmp_path, command):
    port = find_free_ports(1)[0]
    for name in ("group_server.py", "group_client.py", "ompbind.toml"):
        text = FILES[name].replace('"5"', '"1"').replace("8000", str(port))
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    write_program(tmp_path / "python", f'exec {shlex.quote(sys.executable)} "$@"')
    env = {**path_to(tmp_path), "HOME": str(tmp_path)}
    done = run_script(command.replace(" 8000 5 4", " 8000 1 4").replace("8000", str(port)), tmp_path, env)
    assert done.returncode == 0, done.stderr
    shown = "\n".join([*shown_in("A server and its clients"), ""])
    assert re.sub(r"\d+(\.\d+)?", "#", done.stdout) == re.sub(r"\d+(\.\d+)?", "#", shown)
    *_, rate = re.findall(r"[\d.]+$", done.stdout.strip())
    assert float(rate) > 10


@pytest.mark.part("postgres")
def test_postgres_and_pgbench(request):
    """PostgreSQL refuses to run as root: another user runs the file, in a directory of its own."""
    required("pgbench")
    two_cpus()
    is_root = os.geteuid() == 0
    before = as_user(NOBODY) if is_root else []
    program = request.getfixturevalue("public_ompbind") if is_root else OMPBIND
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as directory:  # paths of sockets are short
        if is_root:
            os.chown(directory, NOBODY, NOBODY)
        env = {RUNTIME_DIR: directory, "TMPDIR": directory, "HOME": directory, **path_to(directory, program)}
        done = run_script(FILES["database.sh"].replace(" -T 10", " -T 1"), directory, env, before)
        left = [path.name for path in Path(directory).iterdir() if path.name.startswith("tmp.")]
    assert (done.returncode, left) == (0, []), done.stderr
    assert "number of failed transactions: 0 " in done.stdout
