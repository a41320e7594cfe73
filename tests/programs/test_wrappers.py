"""What programs before a command change, as their options say, and which processes launchers start."""

import os
import shlex

import pytest

from ompbind.cpuset import CpuSet
from ompbind.programs.command import read_workload, read_wrapped_workload
from ompbind.programs.wrappers import Wrapper, read_launch, read_wrapper
from tests.elves import make_elf, put
from tests.tables import rows
from tests.toys import PIP_SCRIPT

CPUS = CpuSet.from_list
FOUR = {"rebinds": True, "cpus": CPUS("0-3")}
UNKNOWN = {"rebinds": True}
NODE = {"rebinds": True, "nodes": CPUS("0")}
CLEARS = {"clears": True}


@pytest.fixture
def app(tmp_path):
    return put(tmp_path / "app", make_elf(["libc.so.6"]))


@pytest.mark.parametrize(("line", "expected"), [
    ("taskset -c 0-3 {app} x", FOUR), ("taskset 0xf {app}", FOUR), ("numactl -C 0-3 {app}", FOUR),
    ("numactl --physcpubind=+0-3 {app}", UNKNOWN),
    ("numactl --cpunodebind=0 --membind=0 {app}", {**NODE, "sets_memory": True}),
    ("numactl --localalloc {app}", {"sets_memory": True}), ("hwloc-bind core:0 -- {app}", UNKNOWN),
    ("hwloc-bind --membind node:0 -- {app}", {"sets_memory": True}),
    ("env -i A=1 {app}", {**CLEARS, "assigned": (("A", "1"),)}), ("env - {app} B=1", CLEARS),
    ("env -u A --unset=B C=1 D= {app}", {"removed": ("A", "B"), "assigned": (("C", "1"), ("D", ""))}),
    ("env -S A=1 {app}", {"assigned": (("A", "1"),)}),
    ("perf stat -o out {app} x", {}),  # there is also a program named `stat`
    *((line, {}) for line in (
        "taskset -p 1", "taskset -pc 0 1", "taskset -ap 3 1", "taskset", "numactl --show", "numactl -s",
        "numactl -H", "numactl --all {app}", "hwloc-bind --get", "env {app} -i", "env", "nice -n 5 {app}",
        "timeout 5 {app}", "env --nonesuch {app}", "{app} -c 0 A=1",
    )),
])  # fmt: skip
def test_options_say_what_a_wrapper_changes(app, line, expected):
    name, *words = line.format(app=app).split()
    wrapper, command = read_wrapper(f"/usr/bin/{name}" if "/" not in name else name, words, os.environ)
    assert wrapper.replace(text="") == Wrapper(text="", **expected)
    if expected:
        assert command[:1] == ([app] if app in words else [])
    else:
        assert not wrapper.changes


def test_the_program_has_the_environment_that_env_leaves(tmp_path, app):
    base = {**os.environ, "LD_PRELOAD": put(tmp_path / "libiomp5.so")}
    assert read_workload([app], base).libraries
    for words in (["-i"], ["-u", "LD_PRELOAD"], ["nice", "env", "-u", "LD_PRELOAD"]):
        assert not read_workload(["env", *words, app], base).libraries, words
    assert read_wrapped_workload(["env", "LD_PRELOAD=/nowhere/x.so"], [app], os.environ).preload_warnings


@pytest.mark.parametrize(("wrap", "texts"), rows("""
    {app} profile -o x    |
                          |
    nonesuch -x           |
    taskset -c 0-3        | taskset -c 0-3
    env A=1 taskset -c 0  | env A=1;taskset -c 0
"""))  # fmt: skip
def test_the_command_behind_any_wrapper_is_read(app, wrap, texts):
    env = {**os.environ, "PATH": f"{os.path.dirname(app)}:{os.environ['PATH']}"}
    for name in ("taskset", "numactl"):  # these need not be installed
        os.symlink(app, os.path.join(os.path.dirname(app), name))
    workload = read_wrapped_workload(wrap.format(app=app).split(), ["env", "B=1", app], env)
    assert workload.program == app
    assert [wrapper.text for wrapper in workload.wrappers] == [*filter(None, texts.split(";")), "env B=1"]


@pytest.mark.parametrize(("line", "instead", "workers"), rows("""
    mpirun -n 4 cat x               | mpirun --bind-to none -n 4 ompbind exec -- cat x      |
    mpiexec.hydra -bind-to core -n 4 cat x | mpiexec.hydra --bind-to none -n 4 ompbind exec -- cat x |
    srun -n 8 nonesuch              | srun --cpu-bind=none ... ompbind exec -- CMD          |
    flux run -n 4 cat               | flux run -n 4 ompbind exec -- cat                     |
    torchrun --nproc-per-node 4 t.py --lr 1 | torchrun --no-python --nproc-per-node 4 X python t.py --lr ... | 4
    torchrun --standalone --nproc_per_node=gpu -m p.t | torchrun --no-python --standalone --nproc_per_node=gpu X python -m p.t | gpu
    torchrun --no-python --nproc-per-node=2 ./app | torchrun --no-python --nproc-per-node=2 X ./app | 2
    python3 -m torch.distributed.run --nproc-per-node 2 t.py | python3 -m torch.distributed.run --no-python --nproc-per-node 2 X python t.py | 2
    accelerate launch --multi_gpu --num_processes 2 t.py --lr 1 | accelerate launch --no_python --multi_gpu --num_processes 2 X python t.py --lr ... | 2
    accelerate launch --num-processes=4 -m p.t | accelerate launch --no_python --num-processes=4 p.t X CMD | 4
    accelerate launch --no_python --num-processes=2 cat x.py | accelerate launch --no_python --num-processes=2 X cat x.py | 2
    gunicorn -w 4 app:api           |                                                       | 4
    uv run --frozen pytest -nauto   |                                                       | auto
    celery -A shop worker           |                                                       | one per CPU
    uvicorn app:api                 |                                                       | 3
    make -j16 all                   | make -j{threads}                                      | 16
    ctest                           |                                                       | 5
    ctest -j -V                     |                                                       | one per CPU
    tox run-parallel -p 8           |                                                       | 8
    tox -p                          |                                                       | one per CPU
    tox -p 4 -- -p 9                |                                                       | 4
    meson test --num-processes=4    |                                                       | 4
    cargo test                      | cargo test -j{threads}                                | 7
    cargo run -j 6 -- -j 999        | cargo run -j{threads}                                 | 6
    cargo test -j 2 -- --test-threads 4 | cargo test -- --test-threads={threads}          | 4
    cmake --build . --parallel 8    | cmake --build -j{threads}                             | 8
    cargo nextest run --test-threads 6 | cargo nextest -j{threads}                          | 6
    bazel test :all                 | bazel test -j{threads}                                | one per CPU
    scons -j64                      | scons -j{threads}                                     | 64
    python -m snakemake --cores 64  | snakemake -c{threads}                                 | 64
    nextflow run flow.nf            |                                                       | one per CPU
    ninja                           | ninja -j{threads}                                     | one per CPU
"""))  # fmt: skip # noqa: E501
def test_a_program_that_starts_several_processes_is_recognized(line, instead, workers):
    name, *words = line.split()
    env = {"WEB_CONCURRENCY": "3", "CTEST_PARALLEL_LEVEL": "5", "CARGO_BUILD_JOBS": "7"}
    launch = read_launch(f"/usr/bin/{name}", words, {**os.environ, **env})
    assert (launch.instead, launch.workers) == (instead.replace("X", "ompbind exec --"), workers)


@pytest.mark.parametrize("line", """
    mpirun -n 4 ompbind exec -- cat|torchrun t.py|torchrun --nproc-per-node 1 t.py|torchrun --help|
    torchrun --no-python --nproc-per-node 4 /x/ompbind exec -- python t.py|flux jobs|flux|python|cat mpirun|
    python -m pkg.train|gunicorn app:api|uvicorn --workers 1 app:api|pytest tests|pytest -n 0|uv run|
    celery -A shop beat|make|make -j|
    celery -A shop worker -c 4 --pool=gevent|fastapi dev --workers 4|accelerate launch t.py|accelerate config|
    accelerate launch --cpu --num_processes 2 t.py|cargo fmt|cargo fmt -- run -j9|
    meson compile -j4|snakemake --cores all
""".replace("\n", "").split("|"))  # fmt: skip
def test_other_commands_start_no_processes_that_exec_should_bind(line):
    name, *words = line.split()
    assert read_launch(f"/usr/bin/{name}", words, os.environ) is None


def test_what_a_launcher_starts_is_not_known_and_a_python_behind_torchrun_is(tmp_path, app):
    for name in ("mpirun.openmpi", "mpiexec"):
        os.symlink(app, tmp_path / name)
        assert read_workload([str(tmp_path / name), "-n", "2", "x"], os.environ).opaque
    script = put(tmp_path / "torchrun", PIP_SCRIPT)
    workload = read_workload([script, "--nproc-per-node", "2", "t.py"], os.environ)
    assert workload.python
    assert [wrapper.launch.workers for wrapper in workload.wrappers] == ["2"]


@pytest.mark.parametrize(("line", "text", "lost"), rows("""
    docker run -it image ./app                    | docker run        | CPUs and variables
    /usr/bin/docker --debug container run image   | docker --debug container run | CPUs and variables
    docker --context foo run image                | docker --context foo run | CPUs and variables
    docker run -itd --name=a image --cpuset-cpus=0 | docker run       | CPUs and variables
    docker exec box ./app                         | docker exec       | CPUs and variables
    docker compose -f x.yml run service           | docker compose -f x.yml run | CPUs and variables
    kubectl exec pod -- ./app                     | kubectl exec      | CPUs and variables
    kubectl -n prod exec pod -- ./app             | kubectl -n prod exec | CPUs and variables
    ramalama run model                            | ramalama run      | CPUs and variables
    ssh ompbind-host ./app                        | ssh               | CPUs and variables
    systemd-run --user ./app                      | systemd-run       | CPUs and variables
    tmux -L socket new -d ./app                   | tmux -L socket new | CPUs and variables
    tmux start ';' new -d ./app                   | tmux start ; new  | CPUs and variables
    screen -S name -X screen ./app                | screen -S name -X | CPUs and variables
    screen -dmS name ./app                        | screen -dmS       | background
    at now                                        | at                | the CPUs of the rank
    nice su - -c ./app                            | su -              | removes variables
    sudo -u root cat -E                           | sudo -u root      | removes variables
    sudo --preserve-env=PATH cat                  | sudo --preserve-env=PATH | removes variables
    su - -c ./app                                 | su -              | removes variables
    runuser -l root -c ./app                      | runuser -l        | removes variables
    sudo -n taskset -c 0 cat                      | sudo -n           | removes variables
    doas ./app                                    | doas              | removes variables
    docker compose -f x.yml up                    | docker compose -f x.yml up | CPUs and variables
    incus exec box -- ./app                       | incus exec        | CPUs and variables
    sbatch job.sh                                 | sbatch            | the CPUs of the rank
    lxc list                                      |                   |
    docker ps                                     |                   |
    docker run --rm -v /a:/b --cpuset-cpus 0 image |                  |
    podman run --cpuset-cpus 0 image ./app        |                   |
    docker exec box ompbind exec -- ./app         |                   |
    ramalama --nocontainer run model              |                   |
    ssh host /opt/bin/ompbind run -- ./app        |                   |
    systemd-run --scope ./app                     |                   |
    systemd-run -p AllowedCPUs=0-3 ./app          |                   |
    tmux new -d 'ompbind run -- ./app'            |                   |
    screen -D -m ./app                            |                   |
    sudo -nE cat                                  |                   |
    sudo --preserve-env=HOME,OMP_NUM_THREADS cat  |                   |
    sudo ompbind run -- ./app                     |                   |
    su -c 'ls -l'                                 |                   |
    runuser -u root -- ls -l                      |                   |
    bash -l -c ./app                              |                   |
"""))  # fmt: skip
def test_what_of_a_rank_does_not_reach_a_program_that_another_process_starts(line, text, lost):
    found = [wrapper for wrapper in read_workload(shlex.split(line), os.environ).wrappers if wrapper.lost]
    assert [wrapper.text for wrapper in found] == [text] * bool(text)
    assert all(lost in wrapper.lost and wrapper.remedy for wrapper in found)


BINDS = """
    gmx mdrun -pin on -nt 4                            | GROMACS (-pin on)
    mpirun -n 4 /opt/bin/gmx_mpi mdrun -pin on         | GROMACS (-pin on)
    gmx mdrun -pin auto                                |
    app -pin on                                        |
    redis-server --port 7000 --server_cpulist 0-3      | redis (--server_cpulist)
    redis-server {tmp}/binds.conf                      | redis (bio_cpulist)
    redis-server {tmp}/plain.conf                      |
    redis-server {tmp}/data                            |
    app {tmp}/binds.conf                               |
    redis-server {tmp}/absent.conf                     |
    ./namd +p4 +setcpuaffinity                         | Charm++ (+setcpuaffinity)
    ./namd +p4 +pemap 0-3                              | Charm++ (+pemap)
    ./namd +p4                                         |
    ./app --hpx:threads=4                              | HPX (--hpx:threads=4)
    ./app --hpx:threads=4 --hpx:use-process-mask       |
    ./app --hpx:bind=none                              |
    python -m torch.backends.xeon.run_cpu train.py     | PyTorch (torch.backends.xeon.run_cpu)
    {tmp}/hpx                                          | HPX (libhpx)
    {tmp}/hpx --hpx:use-process-mask                   |
"""


@pytest.mark.parametrize(("line", "text"), rows(BINDS))
def test_programs_that_bind_themselves_are_known_by_their_words_and_libraries(tmp_path, line, text):
    (tmp_path / "binds.conf").write_text("port 1\n  bio_cpulist 1,3\n")
    (tmp_path / "data").write_text("port 1\n  bio_cpulist 1,3\n")
    (tmp_path / "plain.conf").write_text("port 1\n# bio_cpulist 1,3\n")
    for name, needed in (("libhpx.so.1", []), ("hpx", ["libhpx.so.1"])):
        put(tmp_path / name, make_elf(needed))
    env = {"PATH": "/nowhere", "LD_LIBRARY_PATH": str(tmp_path)}
    found = read_workload([word.format(tmp=tmp_path) for word in line.split()], env).wrappers
    binding = [wrapper for wrapper in found if wrapper.rebinds]
    assert [wrapper.text for wrapper in binding] == [text] * bool(text)
    assert all(wrapper.remedy for wrapper in binding)
