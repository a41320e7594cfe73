"""The files of docs/recipes.md are run, with stand-ins for the program of the user and for ssh."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import OMPBIND, clean_environment, python_with_torch, required
from tests.live.containers import podman_run
from tests.live.runtimes import needs_packages
from tests.nodes import NAMES, OPEN_MPI_5, Nodes, can_make_namespaces
from tests.slurm import PROGRAMS, find_free_ports, run_batch, start_slurm

PAGE = (Path(__file__).parent.parent.parent / "docs/recipes.md").read_text()
FILES = dict(re.findall(r"^`([\w./-]+)`[^\n]*:\n\n```\w+\n(.*?)```", PAGE, re.M | re.S))
"""The files that the page shows, by name."""


def shown_in(heading):
    """Return the lines that a recipe shows as output."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.search(r"```text\n(.*?)```", section, re.S)[1].splitlines()


def without_numbers(lines):
    """Return lines in order, without the CPUs and threads of this machine."""
    return sorted(re.sub(r"CPUs? [\d,-]+|\d+ (?=threads?)|threads?$", "#", line) for line in lines)


def write_program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def nodes(tmp_path):
    can_make_namespaces()
    made = Nodes(tmp_path)
    yield made
    made.close()


def run(*command, **options):
    settings = {"capture_output": True, "text": True, "timeout": 90, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, **{**settings, "env": clean_environment(), **options})


def test_every_file_of_the_page_is_tested():
    source = Path(__file__).read_text()
    assert len(FILES) >= 8
    assert not [name for name in FILES if f'FILES["{name}"]' not in source]


@pytest.mark.part("nodes")
def test_slurm(nodes, tmp_path):
    for name in PROGRAMS:
        required(name)
    work = tmp_path / "work"
    work.mkdir()
    write_program(work / "app", f'exec {nodes.together} sh -c "echo $RANK $CUDA_VISIBLE_DEVICES >$RANK"')
    (work / "job.sh").write_text(FILES["job.sh"])
    settings = f"TaskProlog={nodes.prolog}"
    (tmp_path / "slurm").mkdir()
    with start_slurm(
        tmp_path / "slurm", nodes.environment(), NAMES, agent=(nodes.on,), gpus=2, settings=settings
    ) as env:
        code = run_batch("job.sh", env=env, cwd=work)
    output = (work / "job.out").read_text()
    assert code == 0, output
    lines = [line for line in output.splitlines() if " of 8 on node " in line]
    assert without_numbers(lines) == without_numbers(shown_in("Slurm"))
    assert [(work / str(rank)).read_text() for rank in range(8)] == [f"{rank} 0,1\n" for rank in range(8)]


SETTINGS = {
    "openmpi-4": {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self",
        "OMPI_MCA_plm_rsh_agent": "{agent}", "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_oob_tcp_if_include": "lo",
    },
    "openmpi-5": {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": "{agent}", "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    },
    "mpich": {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": "{agent}", "HYDRA_IFACE": "lo"},
}  # fmt: skip
"""The settings of each launcher that replace ssh by the agent of the nodes."""


@pytest.mark.part("nodes")
@pytest.mark.parametrize(
    ("name", "text", "programs"),
    [
        ("openmpi-4", FILES["run-openmpi.sh"], ("mpirun", "mpirun.openmpi")),
        ("openmpi-5", FILES["run-openmpi.sh"], ("mpirun", f"{OPEN_MPI_5}/bin/mpirun")),
        ("mpich", FILES["run-mpich.sh"], ("mpiexec", "mpiexec.hydra")),
    ],
    ids=SETTINGS,
)
def test_mpi(nodes, tmp_path, name, text, programs):
    work = tmp_path / "work"
    work.mkdir()
    before = "unshare --net -- sh -c {network} sh" if name == "openmpi-5" else ""
    before = before.format(network=shlex.quote(nodes.network()))
    write_program(work / programs[0], f'exec {before} {required(programs[1])} "$@"')
    write_program(
        work / "app", f'exec {nodes.together} sh -c "grep Cpus_allowed_list /proc/self/status >$RANK"'
    )
    env = nodes.environment(**{key: value.format(agent=nodes.agent) for key, value in SETTINGS[name].items()})
    env["PATH"] = f"{work}:{env['PATH']}"
    done = run("bash", "-c", text, env=env, cwd=work)
    assert (done.returncode, done.stdout, "ompbind" in done.stderr) == (0, "", False), done.stderr
    cpus = [(work / str(rank)).read_text().split()[1] for rank in range(8)]
    assert len(set(cpus[:2])) == 2
    assert cpus == cpus[:2] * 4


@pytest.mark.part("nodes")
def test_torchrun(nodes, tmp_path):
    python = python_with_torch()
    write_program(
        tmp_path / "torchrun", f'exec {python} -m torch.distributed.run --local-addr 127.0.0.1 "$@"'
    )
    write_program(tmp_path / "train", f'exec {nodes.together} sh -c "echo $RANK of $WORLD_SIZE"')
    port = str(find_free_ports(1)[0])
    env = nodes.environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    agents = [
        subprocess.Popen(
            [nodes.on, node, "bash", "-c", FILES["train.sh"]], env={**env, "NODE_RANK": str(number)},
            cwd=tmp_path, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number, node in enumerate(NAMES[:2])
    ]  # fmt: skip
    ended = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], ended
    assert sorted("".join(out for out, _ in ended).splitlines()) == [f"{rank} of 4" for rank in range(4)]
    lines = [line for line in ended[1][1].splitlines() if " of 4 on node " in line]
    assert without_numbers(lines) == without_numbers(shown_in("torchrun"))


def test_systemd(tmp_path):
    write_program(tmp_path / "serve", "echo ready")
    (tmp_path / "ompbind").symlink_to(OMPBIND)
    text = FILES["serve.service"].replace("/usr/local/bin", str(tmp_path))
    (tmp_path / "serve.service").write_text(text)
    verified = run(required("systemd-analyze"), "verify", str(tmp_path / "serve.service"))
    assert (verified.returncode, verified.stderr) == (0, "")
    started = run(*shlex.split(re.search(r"ExecStart=(.*)", text)[1]))
    assert (started.returncode, sorted(started.stdout.splitlines())) == (0, shown_in("systemd"))


def test_systemd_would_refuse_a_wrong_unit(tmp_path):
    """The check of the test before can fail."""
    (tmp_path / "serve.service").write_text(FILES["serve.service"].replace("/usr/local", str(tmp_path)))
    assert run(required("systemd-analyze"), "verify", str(tmp_path / "serve.service")).returncode == 1


@pytest.mark.part("image")
@pytest.mark.parametrize("limit", [1, None])
def test_containers(limit):
    """The root of the container is this machine's, without an image."""
    text = FILES["Dockerfile"]
    entry, command = (json.loads(re.search(f"^{word} (.*)", text, re.M)[1]) for word in ("ENTRYPOINT", "CMD"))
    assert (entry, command[0]) == (["ompbind", "exec", "--"], "python")
    show = "import os; print(os.getpid(), os.environ['OMP_NUM_THREADS'])"
    limits = ("--cpus", str(limit)) if limit else ()
    entry_point = ("--entrypoint", json.dumps([OMPBIND, *entry[1:]]))
    with podman_run() as words:
        done = run(*words, *limits, *entry_point, "--rootfs", "/:O", sys.executable, "-c", show)
    threads = limit or len(os.sched_getaffinity(0))
    assert done.stdout == f"1 {threads}\n", done.stderr
    assert done.stderr.splitlines() == (shown_in("Containers with a CPU limit") if limit else [])


def as_rank_program(directory, name, text):
    """Return an environment in which a program of the user is a shell script."""
    write_program(directory / name, text)
    env = clean_environment()
    return {**env, "PATH": f"{directory}:{env['PATH']}"}


def test_kubernetes(tmp_path):
    needs_packages("yaml")
    import yaml

    pod = yaml.safe_load(FILES["serve.yaml"])
    (container,) = pod["spec"]["containers"]
    resources = container["resources"]
    assert (pod["kind"], pod["apiVersion"]) == ("Pod", "v1")
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"].isdecimal()
    env = as_rank_program(tmp_path, "python", 'echo "$1 $RANK"')
    done = run(*container["command"], *container["args"], env=env)
    assert sorted(done.stdout.splitlines()) == ["[0] /serve.py 0", "[1] /serve.py 1"], done.stderr


def test_github_actions(tmp_path):
    needs_packages("yaml")
    import yaml

    workflow = yaml.safe_load(FILES[".github/workflows/test.yml"])
    assert workflow[True] == ["push"]  # YAML 1.1 reads the key "on" as true
    *_, install, step = workflow["jobs"]["test"]["steps"]
    assert install["run"].startswith("pip install ")
    write_program(tmp_path / "test.sh", 'echo "part $RANK of $WORLD_SIZE"')
    done = run("bash", "-e", "-c", step["run"], cwd=tmp_path)
    assert sorted(done.stdout.splitlines()) == shown_in("GitHub Actions"), done.stderr
    write_program(tmp_path / "test.sh", "exit $((RANK * 4))")
    assert run("bash", "-e", "-c", step["run"], cwd=tmp_path).returncode == 4


def test_llama_cpp(tmp_path):
    show = 'echo "llama-server $*: $LLAMA_ARG_THREADS threads"'
    env = as_rank_program(tmp_path, "llama-server", show)
    done = run("bash", "-c", FILES["llama.sh"], env=env)
    assert without_numbers(done.stdout.splitlines()) == without_numbers(shown_in("llama.cpp")), done.stderr
