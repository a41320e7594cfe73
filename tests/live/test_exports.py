"""Plans for other tools and commands to copy, given to these tools and to a shell; Slurm is in test_slurm.py.

vLLM is too large to install: a shell exports its list here, and tests/report/test_export.py reads the list.
"""

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.live.conftest import OMPBIND, required, run_program, two_cpus
from tests.live.containers import podman_run
from tests.live.other_user import NOBODY, as_user, public_directory
from tests.tables import rows

WHERE = "grep -hE '(Cpus|Mems)_allowed_list' /proc/self/status"


def run(code, shell="sh"):
    """Run lines of a shell that has ompbind in its PATH."""
    return run_program(shell, "-c", code)


def exported(name, *args):
    """The plan in one format, without the newline at its end."""
    return run(shlex.join([OMPBIND, "plan", "--format", name, *args])).stdout.removesuffix("\n")


def allowed(text):
    return re.findall(r"Cpus_allowed_list:\s*(\S+)", text)


@pytest.mark.parametrize(("tool", "shell"), [("taskset", "bash"), ("taskset", "dash"), ("numactl", "dash")])
def test_what_goes_before_a_command_confines_it(tool, shell):
    required(tool)
    for rank, cpu in enumerate(two_cpus()):
        done = run(f"$(ompbind plan -n 2 --format {tool} --rank {rank}) {WHERE}", shell=required(shell))
        assert allowed(done.stdout) == [str(cpu)], done.stderr


NAME = 'my user\'s  ü "x" $HOME `y`, and further words so that lines are too long for a terminal'


@pytest.mark.parametrize(("line", "command"), rows("""
    run --chdir @/gone -- true          | mkdir -p
    run --report @/gone/report -- true  | mkdir -p
    run -- @/program                    | chmod +x
    run -- @/script                     | sed -i
    run --config @/ompbind.toml -- true | chmod go-w
    """))  # fmt: skip
def test_a_command_in_a_hint_can_be_copied(tmp_path, line, command):
    """No line ends within a path, and after the command in the hint the command line works."""
    place = tmp_path / NAME
    place.mkdir()
    for name, end, mode in (("program", "", 0o644), ("script", "\r", 0o755), ("ompbind.toml", "", 0o666)):
        (place / name).write_text(f"#!/bin/sh{end}\n")
        (place / name).chmod(mode)
    words = [OMPBIND, *(word.replace("@", str(place)) for word in line.split())]
    shown = run(shlex.join(words)).stderr
    done = run(re.search(rf"{re.escape(command)} .*'", re.sub(r"\n +", " ", shown))[0])
    assert NAME.partition("'")[2] in shown, "on one line"
    assert (done.returncode, done.stderr) == (0, "")
    assert run(shlex.join(words)).returncode == 0


def test_the_command_of_a_dry_run_can_be_copied(tmp_path):
    (tmp_path / NAME).mkdir()
    words = ["--chdir", str(tmp_path / NAME), "--", "printf", "<%s>", NAME, "", "{rank}", str(tmp_path)]
    done, dry = (run(shlex.join([OMPBIND, "run", *more, *words])).stdout for more in ((), ("--dry-run",)))
    assert run(re.search("^command of every rank: (.*)$", dry, re.M)[1]).stdout == done
    assert f"<{NAME}>" in done


SYSTEMD = ("/lib/systemd/systemd", "/usr/lib/systemd/systemd")
UNIT = """\
[Unit]
DefaultDependencies=no
[Service]
ExecStart=/bin/true
CPUAffinity=5000
NUMAPolicy=preferred
NUMAMask=77
Environment=KMP_AFFINITY=none OMP_NUM_THREADS=99
"""
MACHINE = "synthetic:pack:2 numa:1 core:40 pu:2(indexes=2*80:1*2)"
VALUE = 'it\'s "quoted" \\ $HOME ${x} 100% %h\té'


@pytest.mark.parametrize(("memory", "policy", "nodes"), [
    ((), "preferred", "77"), (("--memory", "bind"), "bind", "1"),
])  # fmt: skip
def test_systemd_understands_the_drop_in(memory, policy, nodes):
    """Its manager loads a unit with the drop-in for rank 1, prints the settings and starts nothing.

    It refuses to run as root.
    """
    manager = required(*SYSTEMD)
    if not Path("/sys/fs/cgroup").is_mount():
        pytest.skip("systemd needs a cgroup file system at /sys/fs/cgroup")
    before = as_user(NOBODY) if os.geteuid() == 0 else []
    options = ("-n", "2", "--rank", "1", "--smt", "all", "--env", f"VALUE={VALUE}", "--topology", MACHINE)
    with public_directory() as directory:
        (directory / "demo.service").write_text(UNIT)
        (directory / "demo.service.d").mkdir()
        (directory / "demo.service.d/ompbind.conf").write_text(exported("systemd", *options, *memory))
        env = {"SYSTEMD_UNIT_PATH": str(directory), "HOME": "/nonexistent"}
        command = [*before, manager, "--test", "--system", "--unit=demo.service"]
        done = run_program(*command, env=env, cwd="/")
    shown = re.findall(r"^\s*(\w+): ?(.*)$", done.stdout, re.M)
    settings = {name: [value for other, value in shown if other == name] for name, _ in shown}
    assert settings.get("CPUAffinity") == ["40-79 120-159"], done.stdout + done.stderr
    assert (settings["NUMAPolicy"], settings["NUMAMask"]) == ([policy], [nodes])
    assert f"VALUE={VALUE}" in settings["Environment"]
    assert {"RANK=1", "OMP_NUM_THREADS=80"} <= set(settings["Environment"])
    assert "KMP_AFFINITY" in settings["UnsetEnvironment"]


@pytest.mark.part("image")
def test_podman_confines_a_container():
    """The container has this machine's files."""
    show = shlex.join(["/bin/sh", "-c", f"{WHERE}; printenv VALUE OMP_PLACES"])
    with podman_run() as words:
        for rank, cpu in enumerate(two_cpus()):
            words_of_plan = ("-n", "2", "--memory", "bind", "--env", f"VALUE={VALUE}")
            options = exported("docker", *words_of_plan, "--rank", str(rank))
            done = run(f"{shlex.join(words)} {options} --rootfs /:O {show}")
            assert allowed(done.stdout) == [str(cpu)], done.stderr
            assert done.stdout.splitlines()[-2:] == [VALUE, f"{{{cpu}}}"]
            memory = re.search(r"Mems_allowed_list:\s*(\S+)", done.stdout)[1]
            has_nodes = Path("/sys/devices/system/node/node0").exists()
            assert f"--cpuset-mems={memory}" in options or not has_nodes
