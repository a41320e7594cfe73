"""Variables of vLLM and SGLang with real ranks: their CPUs, and the variables that they get."""

import os
import re
import shlex
import sys

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import one_line, required, two_cpus, write_program
from tests.live.test_exec import SLURM

BIND = "VLLM_CPU_OMP_THREADS_BIND"
SHOW = """
import os
names = ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU", "SGLANG_CPU_OMP_THREADS_BIND")
found = [os.environ.get(name) for name in names]
os.write(1, f"{os.environ['OMPBIND_RANK']} {sorted(os.sched_getaffinity(0))} {found}\\n".encode())
"""
COMMAND = ("--", sys.executable, "-c", SHOW)
INSIDE = "['nobind', None, None]"


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_ranks_are_bound_to_the_lists_in_their_order(ompbind, family):
    first, second = two_cpus()
    env = {f"{family.upper()}_CPU_OMP_THREADS_BIND": f" {second} | {first}"}
    env["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    done = ompbind("run", "-n", "2", "--compat", family, *COMMAND, env=env)
    inside = [INSIDE] * 2 if family == "vllm" else [f"[None, '0', '{cpu}']" for cpu in (second, first)]
    assert sorted(done.stdout.splitlines()) == [f"0 [{second}] {inside[0]}", f"1 [{first}] {inside[1]}"]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_rank_under_a_launcher_gets_its_list_or_keeps_its_cpus(ompbind):
    first, second = two_cpus()
    done = ompbind("exec", "--compat", "vllm", *COMMAND, env={**SLURM, BIND: f"{second}|{first}"})
    assert done.stdout == f"5 [{first}] {INSIDE}\n"
    bound = (required("mpiexec.hydra"), "-n", "2", "-bind-to", "core")
    env = {"CPU_VISIBLE_MEMORY_NODES": "0,77"}
    done = ompbind("exec", "--compat", "vllm", *COMMAND, before=bound, env=env)
    assert sorted(re.findall(r"\[(\d+)\]", done.stdout)) == [str(first), str(second)], done.stderr


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_lists_for_workers_of_one_server_are_written_as_they_are_read(family):
    variable, lists = f"{family.upper()}_CPU_OMP_THREADS_BIND", "{1}|{0}".format(*two_cpus())
    done = call("run", "--compat", family, "--", "true", **{variable: lists})
    assert (done.returncode, done.stdout) == (125, "")
    words = shlex.split(re.search(r"\$\((.*?)\)", one_line(done.stderr))[1])
    assert call(*words[1:], **{variable: lists}).stdout.startswith(f"export {variable}='{lists}'\n")


def test_the_variable_of_sglang_has_no_service_cpus(ompbind):
    """SGLang binds the threads of its scheduler process to the CPUs of its variable; no other process."""
    first, second = two_cpus()
    options = ("-n", "1", "--compat", "sglang", "--service-cores", "1", "-m", f"{first},{second}")
    done = ompbind("run", *options, *COMMAND)
    assert done.stdout == f"0 [{first}, {second}] [None, None, '{first}']\n", done.stderr


def test_a_plug_in_that_the_server_cannot_load_is_warned_about(tmp_path):
    two_cpus()
    version = "python{}.{}".format(*sys.version_info)
    python, site = tmp_path / "bin" / version, tmp_path / "lib" / version / "site-packages"
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    program = write_program(tmp_path / "bin/vllm", "", f"#!{python}")
    command = ("plan", "--compat", "vllm", "--", program, "serve", "M", "-tp", "2")
    for name, is_warned in (("other-1.dist-info", True), ("ompbind-0.1.dist-info", False)):
        (site / name).mkdir(parents=True)
        done = call(*command, OMPBIND_VLLM="1")
        assert ("instead of ompbind run" in one_line(done.stdout)) is is_warned, done.stdout
