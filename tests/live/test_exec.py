"""`ompbind exec`: which rank it becomes, by hand and in launchers, and that all ranks make one plan."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ompbind.cpuset import CpuSet
from tests.cli.command_lines import call
from tests.launchers.environments import MPICH, OPEN_MPI_5, make_env
from tests.live.conftest import one_line, required, state_of, two_cpus, wait_until, write_program
from tests.tables import rows

ROOT = Path(__file__).parent.parent.parent

REPORT = """
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMPBIND_NUM_THREADS", "OMPBIND_RUN_ID")
report = {name: os.environ.get(name) for name in names}
report |= {"cpus": sorted(os.sched_getaffinity(0)), "pid": os.getpid()}
os.write(1, json.dumps(report).encode() + b"\\n")
"""
SHOW = (sys.executable, "-S", "-c", REPORT)

_STEP = "PROCID=5 LOCALID=1 NTASKS=6 NODEID=2 JOB_ID=77 STEP_ID=0 STEP_TASKS_PER_NODE='2(x3)'"
SLURM = make_env(_STEP, "SLURM_")
OPEN_MPI = make_env("RANK=3 SIZE=4 LOCAL_RANK=1 LOCAL_SIZE=2", "OMPI_COMM_WORLD_")


def read_report(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def numbers(report):
    return [int(report[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]


AGENT = """
sleep 1  # until the other agent runs: torchrun waits for it too
export GROUP_WORLD_SIZE=2 RANK=$2 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RUN_ID=x
PYTHON -m ompbind exec -m CPUS -- sh -c 'grep Cpus_allowed_list /proc/self/status; sleep 1'
"""


@pytest.mark.parametrize(("different", "together"), [("", 2), ("--job", 4)])
def test_agents_of_one_job_divide_the_machine(tmp_path, different, together):
    """Agents of two jobs know nothing of each other: each takes all CPUs."""
    cpus = ",".join(map(str, two_cpus()))
    script = AGENT.replace("PYTHON", shlex.quote(sys.executable)).replace("CPUS", cpus)
    agent = write_program(tmp_path / "pt_elastic", script)
    agents = [
        subprocess.Popen([agent, "--node-rank", str(i), f"{different}{i}" * bool(different)], cwd=ROOT,
                         stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=60)[0].split()[-1] for process in agents]
    assert sum(len(CpuSet.from_list(text)) for text in outputs) == together


def test_each_rank_reports_what_does_not_fit_its_own_part(ompbind):
    """Parts of different sizes: a number of threads that fits the first rank may not fit another."""
    first, second = two_cpus()
    options = ("--share", "-m", f"{first}|{first},{second}", "-n", "2")
    for rank, threads in enumerate("12"):
        env = make_env(f"RANK={rank} SIZE=2 LOCAL_RANK={rank} LOCAL_SIZE=2", "OMPI_COMM_WORLD_")
        script = ("sh", "-c", "echo $OMP_NUM_THREADS")
        done = ompbind("exec", *options, "--", *script, env={**env, "OMP_NUM_THREADS": "1"})
        assert done.stdout.strip() == threads
        assert ("of rank 1" in done.stderr) == bool(rank)
    bound = ompbind("exec", "-t", "2", "--", "true", env=env, before=("taskset", "-c", str(first)))
    assert "more threads than CPUs in rank 1" in one_line(bound.stderr)


BY_HAND = "--local-rank 1 --local-size 2"


@pytest.mark.parametrize(("env", "options", "rank", "size"), [
    (SLURM, "", 5, 6), ({}, f"{BY_HAND} -n 2", 1, 2), ({"LOCAL_RANK": "0"}, BY_HAND, 1, 2),
    (OPEN_MPI_5, f"{BY_HAND} --rank 5 --size 6", 5, 6),
])  # fmt: skip
def test_finds_its_rank_in_options_or_the_variables_of_launchers(ompbind, env, options, rank, size):
    first, second = two_cpus()
    done = ompbind("exec", "-m", f"{first},{second}", *options.split(), "--", *SHOW, env=env)
    report = read_report(done)
    assert (numbers(report), report["cpus"]) == ([rank, size, 1, 2], [second])
    assert report["OMPBIND_NUM_THREADS"] == "1"


def test_the_command_replaces_ompbind_and_without_a_launcher_it_is_one_rank(start, ompbind):
    _, second = two_cpus()
    process = start("exec", "-m", str(second), "--", *SHOW)
    report = json.loads(process.stdout.readline())
    assert (report["pid"], report["cpus"], numbers(report)) == (process.pid, [second], [0, 1, 0, 1])
    done = ompbind("exec", "-n", "2", "--", "true")
    assert (done.returncode, "no launcher" in done.stderr) == (125, True)


@pytest.mark.parametrize(("launcher", "changes", "options", "message"), rows("""
    slurm | SLURM_STEP_TASKS_PER_NODE= | -n 1 | Slurm does not set the number of ranks on this machine
    mpi   |                            | -n 3 | -n 3: Open MPI has started 2 ranks on this machine
    none  | RANK=3 WORLD_SIZE=8        |      | but LOCAL_RANK is not set
    none  |  | --topology / | a rank can only run on this machine
    none  |  | --verify     | --verify is an option of run
    none  |  | --local-size 2           | --local-size 2 needs --local-rank
    none  |  | --size 3 --local-rank 0 --local-size 1 | --size 3 needs --rank
    none  |  | --local-rank 2 --local-size 2 | --local-rank 2 and --local-size 2 contradict each other
    none  |  | --rank 1 --size 2 --local-rank 0 --local-size 3 | --local-size 3 and --size 2 contradict
    mpich | PMI_SIZE=4 | --exclusive --wait | has started ranks on other machines too
    none  |  | --local-rank 0 --local-size 2 -n 3 | -n 3: the caller has started 2 ranks on this machine
    """))  # fmt: skip
def test_a_rank_that_cannot_be_identified_does_not_start(launcher, changes, options, message):
    inherited = {"none": {}, "slurm": SLURM, "mpi": OPEN_MPI, "mpich": MPICH}[launcher]
    env = inherited | dict(change.split("=") for change in changes.split())
    done = call("exec", *options.split(), "--", "echo", "started", **env)
    assert (done.returncode, done.stdout) == (125, "")
    assert message in one_line(done.stderr)


def test_a_task_prolog_binds_only_the_task_that_waits_for_it(ompbind, start):
    """The prolog is a descendant of its task; no other process of the user is one."""
    first, _ = two_cpus()
    other = start("exec", "--", "sh", "-c", "echo up; exec sleep 300", up=1).pid
    before = [*map(os.sched_getaffinity, (other, 1))]
    for pid in ("1", str(other), "999999999", "9" * 5000, "-1", "one", ""):
        env = {**SLURM, "SLURM_LOCALID": "0", "SLURM_TASK_PID": pid}
        done = ompbind("exec", "--task-prolog", "-m", f"{first}|{first}", "--share", env=env)
        text = "is not the task of this prolog" if pid else "is not set"
        assert (done.returncode, done.stdout, text in one_line(done.stderr)) == (0, "", True), done.stderr
        assert len(done.stderr) < 500
    assert [*map(os.sched_getaffinity, (other, 1))] == before


def test_a_command_that_cannot_start_leaves_no_claim(ompbind, claims):
    for command, code in (("nosuch-command", 127), ("/etc/passwd", 126)):
        assert (ompbind("exec", "--", command).returncode, os.listdir(claims)) == (code, [])


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_inside_a_rank_of_ompbind_it_keeps_the_cpus_of_the_rank(ompbind, verb):
    done = ompbind("run", "-n", "2", "--", "ompbind", verb, "--", *SHOW)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(report["cpus"] for report in reports) == [[cpu] for cpu in two_cpus()]
    assert "warning" not in done.stderr


LAUNCHERS = {
    "openmpi": "mpirun.openmpi --allow-run-as-root --oversubscribe --mca btl self -n {} --bind-to {}",
    "mpich": "mpiexec.hydra -n {} -bind-to {}",
}
in_openmpi = pytest.mark.part("openmpi")
EACH_LAUNCHER = [pytest.param("openmpi", marks=in_openmpi), "mpich"]


def launcher_words(launcher, number, binding="none"):
    name, *args = LAUNCHERS[launcher].format(number, binding).split()
    return (required(name), *args)


@pytest.mark.parametrize(("size", "binding"), [(1, "none"), (1, "core"), (2, "none"), (2, "core")])
@pytest.mark.parametrize("launcher", EACH_LAUNCHER)
def test_under_real_launchers(ompbind, launcher, size, binding):
    each = [[*two_cpus()]] if (size, binding) == (1, "none") else [[cpu] for cpu in two_cpus()[:size]]
    done = ompbind("exec", "--", *SHOW, before=launcher_words(launcher, size, binding))
    reports = sorted(map(json.loads, done.stdout.splitlines()), key=lambda report: int(report["RANK"]))
    assert [report["cpus"] for report in reports] == each, done.stderr
    assert [numbers(report) for report in reports] == [[rank, size] * 2 for rank in range(size)]
    assert len({report["OMPBIND_RUN_ID"] for report in reports}) == 1
    assert done.stderr.count("already bound by") == (binding == "core")  # one message for all ranks


@pytest.mark.parametrize("option", ["-v", "--dry-run"])
def test_each_rank_prints_a_line_about_itself(ompbind, claims, option):
    done = ompbind("exec", option, "--", "true", before=launcher_words("mpich", 2, "core"))
    found = sorted(re.findall(r"rank \d of 2 on node .*", done.stdout + done.stderr))
    shown = re.findall(r"^ompbind: (rank .* on node .*)", (ROOT / "docs/mpi-slurm.md").read_text(), re.M)
    of_machine = r"node \S+: CPUs? [\d-]+|\d threads?"
    assert re.sub(of_machine, "", str(shown)) == re.sub(of_machine, "", str(found))
    assert [line.split()[-5] for line in found] == [f"{cpu}," for cpu in two_cpus()]
    assert done.stdout.count("OpenMP places") == (option == "--dry-run"), "one rank prints the plan"
    assert option == "-v" or os.listdir(claims) == [], "nothing is registered"


COPIES = (
    "Open MPI has started 2 copies of 'ompbind {}' on this machine, and each starts ranks of its own,"
    " numbered from 0 (use '{}mpirun --bind-to none -n 2 ompbind exec -- COMMAND'"
)
OF_RUN = COPIES.format("run", "")
UNBOUND = "Open MPI has bound this process to CPU 0: write 'mpirun --bind-to none -n {} ompbind exec ...'"


@in_openmpi
@pytest.mark.two_cpus
@pytest.mark.parametrize(("size", "binding", "words", "code", "text"), [
    (2, "none", "run --share -- true", 0, OF_RUN), (2, "core", "run --share -- true", 0, OF_RUN),
    (2, "none", "run -n 2 --share -- true", 0, OF_RUN), (2, "none", "run -q --share -- true", 0, ""),
    (2, "core", "bench --dry-run -- true", 0, COPIES.format("bench", "ompbind bench -- ")),
    (2, "core", "run -n 2 --share -- true", 0, ""),
    (2, "none", "exec --share -- ompbind run -- true", 0, ""),
    (2, "none", "exec -- ompbind run -n 2 -- true", 125, "hint: start at most 1 rank"),
    (1, "core", "exec -- true", 0, "they keep their CPUs (with 'mpirun --bind-to none', ompbind chooses)"),
    (1, "core", "exec -c 2 -- true", 125, UNBOUND), (2, "core", "exec -m 1|0 -- true", 125, UNBOUND),
    (2, "core", "run -n 2 -- true", 125, UNBOUND), (2, "core", "exec -m 9999 -- true", 125, "does not exist"),
    (2, "core", "exec -c 2 -- true", 125, "hint: request fewer cores with -c"),
    (2, "core", "exec --avoid --wait -- true", 125, "hint: write 'mpirun --bind-to none', or omit --wait"),
    (2, "core", "doctor", 1, "start the launcher as 'mpirun --bind-to none'"),
    (2, "core", "sh -c true", 2, "hint: to start a command, write 'ompbind exec -- sh'"),
])  # fmt: skip
def test_what_is_said_to_ranks_of_a_launcher(ompbind, size, binding, words, code, text):
    done = ompbind(*words.split(), before=launcher_words("openmpi", size, binding))
    shown = one_line(done.stdout + done.stderr)
    assert (done.returncode, shown.count("copies of")) == (code, "copies of" in text), shown
    assert text.format(size) in shown


def test_more_cpus_of_slurm_are_a_remedy_if_the_machine_has_them(ompbind):
    step = make_env("PROCID=0 LOCALID=0 NTASKS=1 JOB_ID=7 STEP_ID=0 STEP_TASKS_PER_NODE=1", "SLURM_")
    before = ("taskset", "-c", str(two_cpus()[0]))
    for cores, more in (("2", "; --cpus-per-task of srun requests more CPUs"), ("9999", "")):
        done = ompbind("exec", "-c", cores, "--", "true", env=step, before=before)
        assert one_line(done.stderr).endswith(f"hint: request fewer cores with -c{more}"), done.stderr


SIZE = """
#include <stdio.h>
extern int MPI_Init(int *, char ***), MPI_Comm_size(void *, int *), MPI_Finalize(void);
extern struct communicator ompi_mpi_comm_world;
int main(int count, char **words) {
    int size;
    MPI_Init(&count, &words);
    MPI_Comm_size(&ompi_mpi_comm_world, &size);
    printf("size %d\\n", size);
    return MPI_Finalize();
}
"""


@in_openmpi
@pytest.mark.two_cpus
def test_the_line_in_the_warning_starts_ranks_of_mpi_as_one_job(ompbind, tmp_path):
    required("mpirun.openmpi")
    command = [required("gcc"), "-o", tmp_path / "app", "-x", "c", "-", "-l:libmpi.so.40"]
    subprocess.run(command, input=SIZE, text=True, check=True, timeout=60)
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    own = ("--env", f"TMPDIR={tmp_path}/{{rank}}")  # Open MPI may fail if two jobs start in one directory
    for rank in "01":
        (tmp_path / rank).mkdir()
    alone = ompbind("run", *own, "-n", "2", "--", str(tmp_path / "app"), env=env)
    assert (alone.returncode, alone.stdout) == (0, "size 1\n" * 2), alone.stderr
    line = re.search("'(mpirun --bind-to none -n 2) ompbind exec -- .*app'", one_line(alone.stderr))[1]
    together = ompbind("exec", "--", str(tmp_path / "app"), env=env, before=line.split())
    assert (together.returncode, together.stdout, together.stderr) == (0, "size 2\n" * 2, "")
    quiet = ompbind("run", "-q", *own, "-n", "2", "--", str(tmp_path / "app"), env=env)
    assert quiet.stderr == ""
    assert line in one_line(ompbind("plan", "-n", "2", "--", str(tmp_path / "app")).stdout)


@pytest.mark.two_cpus
def test_ranks_of_one_script_are_one_job(ompbind, tmp_path):
    """Each rank has CPUs of its own, also with --avoid: they are no other runs for each other."""
    wait = f"touch {tmp_path}/$RANK; until [ -e {tmp_path}/0 -a -e {tmp_path}/1 ]; do sleep 0.02; done"
    line = f"ompbind exec --local-rank $r --local-size 2 --avoid -- sh -c 'echo $RANK $OMPBIND_CPUS; {wait}'"
    done = ompbind(before=("sh", "-c", f"for r in 0 1; do {line} & done; wait"))
    assert done.stderr == ""
    assert sorted(done.stdout.split("\n")[:-1]) == [f"{rank} {cpu}" for rank, cpu in enumerate(two_cpus())]


def test_a_rank_that_the_caller_has_bound_keeps_its_cpus_and_the_same_cpus_are_warned_about(ompbind):
    first, second = two_cpus()
    required("taskset")
    line = "taskset -c {} ompbind exec --local-rank {} --local-size {} -- sh -c 'echo $RANK $OMPBIND_CPUS'"
    done = ompbind(before=("sh", "-c", f"{line.format(second, 0, 2)}; {line.format(first, 1, 2)}"))
    assert done.stdout.split("\n")[:-1] == [f"0 {second}", f"1 {first}"]
    assert done.stderr.count("already bound by the caller") == 1
    done = ompbind(before=("sh", "-c", "; ".join(line.format(first, rank, 3) for rank in range(3))))
    assert done.returncode == 0
    assert one_line(done.stderr).count("for 3 ranks: their threads will compete (request a CPU") == 1


WAIT = ("sh", "-c", "echo up; exec sleep 300")


def test_ranks_with_different_options_are_warned(ompbind, start):
    first, second = two_cpus()
    command = ("exec", "--run-id", "job", "--local-size", "2")
    one = start(*command, "--local-rank", "0", "-m", f"{first}|{second}", "--", *WAIT, up=1)
    rest = ("--local-rank", "1", "-m")
    same = ompbind(*command, *rest, f"{first}|{second}", "--", "true")
    other = ompbind(*command, *rest, f"{second}|{first}", "--", "true")
    assert (same.returncode, same.stderr, other.returncode) == (0, "", 0)
    text = f"other ranks of this job (pid {one.pid}) have divided the CPUs in another way: give all ranks"
    assert text in one_line(other.stderr)


LOCAL_SIZE = 8
CONTENTS = '[defaults]\nshare = true\nthreads = 1\nenv = { MODEL = "m-{rank}" }\n'
SHOW_ALL = """
import json, os
with open("rank-" + os.environ["RANK"], "w") as file:  # Open MPI mixes long lines of ranks
    json.dump({"env": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0))}, file)
"""


@pytest.mark.parametrize("launcher", EACH_LAUNCHER)
def test_every_rank_has_its_part_of_the_plan_of_the_machine(ompbind, tmp_path, launcher):
    """It is what `ompbind plan -n LOCAL_SIZE` prints."""
    (tmp_path / "ompbind.toml").write_text(CONTENTS)
    options = {"cwd": tmp_path, "env": {"HOME": str(tmp_path)}}
    rest = ("--run-id", "job", "--", sys.executable, "-S", "-c", SHOW_ALL)
    plan = ompbind("plan", "-n", str(LOCAL_SIZE), "--format", "json", *rest, **options).stdout
    done = ompbind("exec", *rest, before=launcher_words(launcher, LOCAL_SIZE), **options)
    assert (done.returncode, "warning: other ranks" in done.stderr) == (0, False), done.stderr
    for number, rank in enumerate(json.loads(plan)["ranks"]):
        report = json.loads((tmp_path / f"rank-{number}").read_text())
        assert {name: report["env"].get(name) for name in rank["env"]} == rank["env"]
        assert report["cpus"] == sorted(rank["cpus"])


@pytest.mark.parametrize("launcher", EACH_LAUNCHER)
def test_ranks_of_a_job_avoid_the_same_cpus(ompbind, start, tmp_path, launcher):
    """The first rank decides for all, although the other run exits as soon as a rank has started."""
    first, second = two_cpus()
    wait = "while [ $(ls {}/started-* 2>/dev/null | wc -l) -lt {} ]; do sleep 0.05; done"
    other = start("run", "-m", str(second), "--", "sh", "-c", f"echo up; {wait.format(tmp_path, 1)}", up=1)
    code = f"echo $RANK $OMPBIND_CPUS; touch {tmp_path}/started-$RANK; {wait.format(tmp_path, LOCAL_SIZE)}"
    before = launcher_words(launcher, LOCAL_SIZE)
    done = ompbind("exec", "--avoid", "-s", "all", "--", "sh", "-c", code, before=before)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} {first}" for rank in range(LOCAL_SIZE)]
    assert other.wait(20) == 0


def test_nothing_of_ompbind_is_left_in_a_rank(start, claims):
    """No code, no process, no memory: only the open file of its claim, which releases the CPUs at its end."""
    rank = start("exec", "--local-rank", "0", "--local-size", "1", "--", *WAIT, up=1)
    process = Path(f"/proc/{rank.pid}")
    wait_until(lambda: state_of(rank.pid) == "S", "the rank sleeps, and opens no more libraries")
    assert not re.search("python|ompbind", (process / "maps").read_text())
    files = [os.readlink(file) for file in (process / "fd").iterdir() if int(file.name) > 2]
    assert [Path(file).parent for file in files] == [claims]
    assert (process / f"task/{rank.pid}/children").read_text() == ""
