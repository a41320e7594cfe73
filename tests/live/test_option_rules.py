"""Two options that have no effect together: the plan or the run differs, or a message names them.

And values of options that are refused.
"""

import os
from functools import cache
from itertools import product
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import pytest

from ompbind.cli.options import find_options
from ompbind.cli.run import VERB
from ompbind.cli.run_settings import make_output, make_run_options
from ompbind.cli.settings import make_planning_settings, make_request, make_run_spec
from ompbind.commands.environment import make_identities
from ompbind.commands.rank_command import make_command, make_spec_before_plan
from ompbind.cpuset import CpuSet
from ompbind.errors import OmpbindError
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from tests.cli.command_lines import call
from tests.long import LONG
from tests.machines import Shape, make_kinds, make_machine
from tests.planning.devices.gpus import UUIDS, make_gpu, make_nic
from tests.tables import rows

COMMAND = ("/bin/true", "{rank}")
INHERITED = {"OMP_NUM_THREADS": "3", "OMP_DYNAMIC": "true"}

EFFICIENT = CpuSet(cpu for cpu in range(64) if cpu % 16 >= 8)
FAST = CpuSet(range(64)) - EFFICIENT
NEAR = ((EFFICIENT, 1), (EFFICIENT, 1), (FAST, 0), (FAST, 0))
NICS = (
    make_nic(0, "mlx5_0").replace(cpus=FAST, node=0), make_nic(1, "mlx5_1").replace(cpus=EFFICIENT, node=1),
)  # fmt: skip
GPUS = (make_gpu(at, uuid=UUIDS[at], cpus=cpus, node=node) for at, (cpus, node) in enumerate(NEAR))
SHAPE = Shape(packages=2, l3s=2, cores=4, smt=4)
HYBRID = make_machine(SHAPE, source="live", kinds=make_kinds(FAST, EFFICIENT), devices=(*GPUS, *NICS))
"""16 cores of 4 CPUs on two NUMA nodes, the second for efficiency; core 0 has CPUs 0, 16, 32 and 48.

The first two GPUs and the second network interface are near the cores for efficiency.
"""

OTHER = LiveRun(run_id="other", pid=7, uid=0, started=1, ranks=((0, CpuSet([0, 8])),), claimed=CpuSet([0, 8]))

ENV_FILE = Path(__file__).with_name("variables.env")

VALUES = {
    "ranks": ["-n2"], "mask": ["-m0,12-13,16,32", "-n2 -m0,16,32|1,12,17,28", "-mnone"],
    "strategy": ["-sspread", "-scores", "-sall"], "smt": ["--smt=2", "--smt=all"],
    "sibling": ["--sibling=last"], "threads": ["-t2"], "cores": ["-c1"],
    "processes_per_rank": ["--processes-per-rank=2"], "service_cores": ["--service-cores=1"],
    "reserve": ["--reserve=1"], "reserve_total": ["--reserve-total=1"],
    "core_kind": ["--core-kind=efficiency"], "share": ["--share"], "avoid": ["--avoid"],
    "exclusive": ["--exclusive"], "wait": ["--wait", "--wait=5"], "allow_partial": ["--allow-partial"],
    "bind": ["--bind=thread", "--bind=exact", "--bind=none"], "proc_bind": ["--proc-bind=spread"],
    "omp_runtime": ["--omp-runtime=gomp"], "memory": ["--memory=bind"], "strict": ["--strict"],
    "expect": ["--expect=tcmalloc"], "env": ["--env=MODE=fast"], "env_file": [f"--env-file={ENV_FILE}"],
    "keep_env": ["--keep-env"], "freeze_threads": ["--freeze-threads"], "run_id": ["--run-id=mine"],
    "compat": ["--compat=vllm"], "fill": ["--fill"], "chdir": ["--chdir=/"], "wrap": ["--wrap=nice"],
    "devices": ["--devices=gpu", "--devices=nic", "--devices=gpu,nic", "--devices=auto"],
    "devices_per_rank": ["--devices-per-rank=1"], "share_devices": ["--share-devices"],
    "near": ["--near=gpu:0"], "stdin": ["--stdin=none"],
    "output": ["--output=tag", "--output=files --log-dir=logs"], "log_dir": ["--log-dir=logs"],
    "force": ["--force"], "timestamps": ["--timestamps"], "pty": ["--pty"], "quiet": ["--quiet"],
    "verbose": ["--verbose"],
    "on_failure": ["--on-failure=continue", "--on-failure=restart", "--on-failure=restart:2"],
    "timeout": ["--timeout=5"], "grace": ["--grace=3"], "keep_descendants": ["--keep-descendants"],
    "verify": ["--verify=", "--verify=strict"], "hold": ["--hold=", "--hold=fixed"],
    "report": ["--report=run.json"], "dry_run": ["--dry-run"],
}  # fmt: skip
"""Values of each option of `run`; each has an effect on HYBRID, at least with the options of NEEDED."""

NEEDED = {
    "strategy": ["-n2", "-t2"], "omp_runtime": ["--bind=exact"], "proc_bind": ["--bind=thread"],
    "strict": ["--expect=tcmalloc"], "allow_partial": ["-m0,12-13,16,32,500"], "wait": ["--exclusive"],
    "force": ["--log-dir=logs"], "timestamps": ["--output=tag"], "pty": ["--output=tag"],
    "devices_per_rank": ["--devices=gpu"], "share_devices": ["-n5", "--devices=gpu"],
}  # fmt: skip
"""Options without which an option has no effect, and with which it has one."""

OTHERS = {
    "rendezvous": "opens a port", "topology": "is for a dry run alone", "preload": "reads files",
    "preset": "reads files", "config": "reads files", "group": "reads files",
    **dict.fromkeys(("name", "ready", "ready_timeout", "until"), "are for several commands"),
}  # fmt: skip
"""Options that this test leaves out: they have an effect with every other option."""

SAME = {
    ("verbose", "dry_run"): "a dry run shows the plan anyway, which is what -v requests",
    ("omp_runtime", "bind"): "a fact about the command; whether it matters depends on the command",
    ("omp_runtime", "proc_bind"): "as before",
    ("devices_per_rank", "share_devices"): "five ranks that share four GPUs get one each anyway",
    ("share_devices", "ranks"): "two ranks need not share four GPUs",
    ("share_devices", "strategy"): "as before", ("--share-devices", "-n2 -m0,16,32|1,12,17,28"): "as before",
    ("near", "devices_per_rank"): "a rank with one GPU gets the first",
    ("near", "core_kind"): "the first GPU is near the cores for efficiency",
    ("core_kind", "near"): "as before", ("core_kind", "devices_per_rank"): "as before",
    ("--allow-partial", "-m0,12-13,16,32"): "all CPUs of this mask are usable",
    ("--allow-partial", "-n2 -m0,16,32|1,12,17,28"): "as before",
    ("-sall", "-mnone"): "--mask none is --strategy all", ("--smt=all", "-mnone"): "and --smt all",
    ("--bind=none", "-mnone"): "and --bind none",
}  # fmt: skip
"""Pairs of options, or of values, of which the first does nothing that the second does not do."""


def plan_result(settings, runs):
    """Return what ranks get (CPUs, memory, variables), the plan, and its warnings; or the error alone."""
    try:
        spec = make_run_spec(settings, "run")
        plan = make_plan(HYBRID, make_request(settings, make_spec_before_plan(spec), HYBRID), runs)
    except OmpbindError as error:
        return None, None, error.message
    commands = [make_command(plan, identity, spec) for identity in make_identities(len(plan.placements))]
    orders = [placement.cpus for placement in plan.placements]
    warnings = " ".join(note.text for note in plan.notes if note.warning)
    return (commands, orders, plan.reserved), (plan, spec), warnings


def run_result(settings, planned):
    """Return how the run would behave, as far as its options decide it."""
    if settings.dry_run:
        return settings.dry_run, settings.quiet
    options = make_run_options(settings, *planned, make_output(settings), None)
    others = [settings.wait, settings.quiet, settings.verbose, settings.verify, settings.report]
    return options.replace(expected=None, run_id="").as_dict(), others


def result(words):
    """Return what a command line does, None if it is refused, and the messages of ompbind.

    The machine has another run; if the command line is refused because of it, it has not.
    """
    with patch.dict(os.environ, INHERITED, clear=True):  # without variables of a single test
        return parse_and_plan(tuple(words))


@cache
def parse_and_plan(words):
    try:
        context = VERB.make_context("run", [*words, "--", *COMMAND])
        settings = make_planning_settings(context)
    except OmpbindError as error:
        return None, error.message
    beside, planned, refused = plan_result(settings, (OTHER,))
    alone, planned, warnings = (beside, planned, "") if planned else plan_result(settings, ())
    done = (beside, alone, run_result(settings, planned)) if planned else None
    return done, f"{refused} {warnings} {context.messages}"


def test_every_option_of_run_is_in_the_table():
    assert {option.name for option in find_options("run")} == VALUES.keys() | OTHERS.keys()


@pytest.mark.parametrize("name", VALUES)
def test_each_option_has_an_effect(name):
    needed = NEEDED.get(name, [])
    for value in VALUES[name]:
        assert result([*needed, *value.split()]) != result(needed), value


def needed_words(name, words):
    """Return what an option needs, without options that some words give."""
    given = {option_of(word) for word in words}
    return [word for word in NEEDED.get(name, []) if option_of(word) not in given]


def sample(name):
    """The values of an option that are tried with those of others: in a short run, one of most options."""
    return VALUES[name] if LONG or name in ("mask", "strategy", "smt", "bind") else VALUES[name][:1]


def option_of(word):
    return word.partition("=")[0] if word.startswith("--") else word[:2]


@pytest.mark.parametrize("name", VALUES)
def test_no_option_of_a_pair_is_silently_without_effect(name):
    silent = []
    # in a short run, the same third of all pairs each time
    others = [each for each in VALUES if LONG or crc32(f"{name} {each}".encode()) % 3 == 0]
    for value, other in product(sample(name), others):
        for other_value in sample(other):
            words, other_words = value.split(), other_value.split()
            base = [*needed_words(name, other_words), *needed_words(other, words), *other_words]
            repeated = {option_of(word) for word in words} & {option_of(word) for word in base}
            if repeated or SAME.keys() & {(name, other), (value, other_value)}:
                continue
            without, messages = result(base)
            if without and result([*base, *words]) == (without, messages):
                silent.append(f"{value} has no effect with {' '.join(base)}")
    assert not silent, "\n".join(silent)


MESSAGES = rows("""
    -m none --bind exact                   | --bind exact and --mask none contradict each other
    -n 2 -m 0|1 -s spread                  | --strategy spread has no effect with --mask '0|1'
    --proc-bind spread                     | has no effect with the default --bind rank hint: use --bind core
    -q -v                                  | --verbose and --quiet contradict each other
    STRATEGY=spread MASK=0|1               | OMPBIND_STRATEGY=spread has no effect with OMPBIND_MASK='0|1'
    --devices-per-rank 1                   | --devices-per-rank 1 has no effect without --devices hint: add
    --allow-partial --dry-run              | warning: --allow-partial has no effect without --mask
    -v --dry-run SHARE_DEVICES=1           | OMPBIND_SHARE_DEVICES is not used with the default --devices none
    -m 0 --smt all --dry-run               | warning: --smt all has no effect with --mask 0: ranks get
    --dry-run --report a.json --timeout 5  | warning: --timeout 5 and --report a.json have no effect with
    --dry-run -q --report a.json           |
    --dry-run -m 0 STRATEGY=spread         |
    --dry-run -v -m none BIND=exact        | OMPBIND_BIND=exact is not used with --mask none
    --dry-run --no-bind BIND=none          |
    --dry-run --no-wait --share WAIT=0.1   |
    --dry-run RUNTIME_DIR=/no/such         | this plan does not avoid the CPUs of other runs: cannot read live
    --output files                         | --output files needs --log-dir DIR
    --wrap nice{rnk}                       | nice{rnk} ^^^^^ hint: did you mean {rank}?
    --output inherit --log-dir logs        | --log-dir logs has no effect with --output inherit
    --output tag,inherit                   | inherit cannot be combined with other modes
    --force                                | --force needs --log-dir
    --on-failure restart:3 --rendezvous    | --on-failure restart:3 cannot be used with --rendezvous
    --wait                                 | --wait needs --avoid or --exclusive
    --avoid --wait true                    | before a command write --wait --
    --verify true                          | 'true' is not strict: write --verify or --verify=strict;
""")


@pytest.mark.parametrize(("line", "text"), MESSAGES)
def test_messages(line, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [word for word in line.split() if not word[0].isupper()]
    env = dict(f"OMPBIND_{word}".split("=") for word in line.split() if word[0].isupper())
    done = call("run", *words, "--", "true", **env)
    said = " ".join(done.stderr.split())
    code = 0 if "dry" in line else 125
    assert (done.returncode, text in said, bool(said)) == (code, True, bool(text)), said
    assert os.listdir() == []
