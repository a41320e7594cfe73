"""Variables of vLLM and SGLang: how they are read, what overrides them, what ranks get; a new framework."""

import json

import pytest

from ompbind.commands.environment import RunSpec, make_identities
from ompbind.commands.rank_command import make_command
from ompbind.compat.frameworks import FRAMEWORKS, FrameworkInput
from ompbind.compat.reading import fill_request, make_foreign_settings
from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError, PlanError
from ompbind.masks.mask import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.cli.command_lines import call
from tests.machines import Shape, make_machine
from tests.planning.test_planner import texts_of
from tests.planning.test_runtime_choice import workload

DUAL = make_machine(Shape(packages=2, cores=4, smt=2), arch="x86_64")  # nodes 0-3,8-11 and 4-7,12-15
SNC = make_machine(Shape(packages=2, nodes=2, cores=4), arch="x86_64")  # four nodes of four CPUs
ARM = make_machine(Shape(packages=2, cores=2, smt=2), arch="aarch64")  # nodes 0-1,4-5 and 2-3,6-7
POWER = make_machine(Shape(packages=2, cores=2, smt=8, numbering="adjacent"), arch="ppc64le")
SMT8 = POWER.replace(arch="x86_64")
BIND, RESERVE, NODES = "VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU", "CPU_VISIBLE_MEMORY_NODES"
SLICES, MEMORY, SGLANG = "VLLM_CPU_SIM_MULTI_NUMA", "VLLM_CPU_KVCACHE_SPACE", "SGLANG_CPU_OMP_THREADS_BIND"


def wanted(
    env, ranks=2, given=(), framework="vllm", *, machine=DUAL, command=(), for_workers=False, **options
):
    source = FrameworkInput(machine=machine, env=env, command=command, for_workers=for_workers)
    return fill_request(Request(ranks=ranks, **options), framework, source, given)


def show(made):
    ranks = ((rank.compute, rank.service_cpus) for rank in made.placements)
    return " ".join(f"{compute}+{service}" if service else str(compute) for compute, service in ranks)


@pytest.mark.parametrize(("machine", "env", "ranks", "expected"), [
    (DUAL, {}, 2, "8-10+11 12-14+15"), (ARM, {}, "auto", "0-1,4+5 2-3,6+7"),
    (ARM, {RESERVE: "1"}, 2, "0-1,4-5 2-3,6+7"), (POWER, {}, 2, "0-3,8-11 16-19,24-26+27"),
    (DUAL, {BIND: "nobind"}, 2, "0-15 0-15"), (DUAL, {BIND: " 4 - 7 ,2 |\t0 -1 "}, 2, "2,4-7 0-1"),
    (DUAL, {RESERVE: "5"}, 2, "8-9+10-11 12+13-15"),
    (DUAL, {RESERVE: "2", BIND: "4-7|0-3"}, 2, "4-6+7 0-2+3"),
    (DUAL, {NODES: "1,0", RESERVE: "0"}, 4, "12-13 14-15 8-9 10-11"), (DUAL, {NODES: "7,1,9"}, 1, "12-14+15"),
    (DUAL, {NODES: "1,1-1", RESERVE: "0"}, 2, "12-13 14-15"), (SMT8, {}, 2, "7+15 23+31"),
    (SNC, {NODES: " 3 , 0 - 1 "}, 3, "12-14+15 0-2+3 4-6+7"), (DUAL, {SLICES: "1"}, 1, "8-14+15"),
    ("workers", {BIND: "4-7|0-3", RESERVE: "2"}, 2, "4-7 0-3"),  # else two calls of eval would reserve twice
    ("workers", {RESERVE: "2"}, 2, "8-10+11 12-14+15"), ("sglang", {}, 2, "0-3 4-7"),
    ("sglang", {SGLANG: "4-7|0-3"}, 2, "4-7 0-3"),
])  # fmt: skip
def test_ranks_get_what_the_variables_say(machine, env, ranks, expected):
    how = {"framework": "sglang" if machine == "sglang" else "vllm", "for_workers": machine == "workers"}
    machine = DUAL if isinstance(machine, str) else machine
    assert show(make_plan(machine, wanted(env, ranks, machine=machine, **how))) == expected


@pytest.mark.parametrize(("name", "text", "marked", "message"), [
    (BIND, "0 - 3|4 - 5 , 6|7,x", "x", "'x' is not a number"), (BIND, "0-3|", "", "an item is empty"),
    (BIND, "none", "none", "vLLM does not accept 'none'"),
    (BIND, "auto|0", "auto", "cannot be combined with other items"),
    (RESERVE, " 1.5", "1.5", "'1.5' is not a number of CPUs"),
    (NODES, "1|0", "|", "is not allowed in a list"),
    (MEMORY, " 4GiB", "4GiB", "'4GiB' is not a number of GiB"),
    (SGLANG, "nobind", "nobind", "SGLang does not accept 'nobind'"),
])  # fmt: skip
def test_errors_name_the_variable_and_mark_the_position(name, text, marked, message):
    framework = FRAMEWORKS["sglang" if name == SGLANG else "vllm"]
    with pytest.raises(MaskError, match=f"^{name}: .*{message}") as caught:
        make_foreign_settings(framework, FrameworkInput(machine=DUAL, env={name: text}))
    assert (caught.value.text, text[slice(*caught.value.span)]) == (text, marked)


@pytest.mark.parametrize(("machine", "words", "env", "expected"), [
    (DUAL, "vllm --device-ids 1", {}, "12-14+15"), (DUAL, "vllm --device_ids=1,0", {}, "12-14+15 8-10+11"),
    (DUAL, "vllm --device-ids 1", {NODES: "1,0"}, "8-10+11"),  # a position
    (DUAL, "vllm -dp 2", {RESERVE: "2"}, "8-9+10-11 12-13+14-15"),
    (DUAL, "vllm -tp 2", {RESERVE: "2"}, "8-10+11 12-14+15"),
    (POWER, "vllm -tp 2 -dp 2", {}, "0-3 8-10+11 16-19 24-26+27"),
    (DUAL, "sglang --base-gpu-id 1", {}, "4-7"),
    (DUAL, "sglang --base-gpu-id 1 --tp 2", {SGLANG: "0-1|2-3|4-5"}, "2-3 4-5"),
])  # fmt: skip
def test_workers_have_the_cpus_of_their_server_by_its_command(machine, words, env, expected):
    name, *command = words.split()
    how = {"framework": name, "command": command, "for_workers": True}
    made = make_plan(machine, wanted(env, len(expected.split()), machine=machine, **how))
    assert show(made) == expected
    selecting = [note.text for note in made.notes if note.warning and "start the server without" in note.text]
    assert len(selecting) == ("id" in words)


@pytest.mark.parametrize(("words", "env", "message"), [
    ("vllm --device-ids 2", {NODES: "0,1"}, "--device-ids: no such position in CPU_VISIBLE_MEMORY_NODES=0,1"),
    ("sglang --base-gpu-id 2", {}, "--base-gpu-id: there is no NUMA node or list 2"),
])  # fmt: skip
def test_errors_name_the_option_of_the_server(words, env, message):
    name, *command = words.split()
    with pytest.raises(MaskError, match=message):
        wanted(env, framework=name, command=command)


BOUND = DUAL.replace(allowed=DUAL.nodes[1].cpus)


@pytest.mark.parametrize(("machine", "env", "ranks", "error", "message", "hint"), [
    (DUAL, {BIND: "0-3|14-17"}, 2, MaskError, "CPUs 16-17 do not exist", f"{BIND}=0-3|14-17"),
    (DUAL, {BIND: "0-3|4-7"}, 3, MaskError, "2 parts for 3 ranks", "use -n 2"),
    (DUAL, {NODES: "8,7"}, 2, MaskError, "no node with OS number 8", f"{NODES}=8,7"),
    (BOUND, {NODES: "1,0"}, 2, MaskError, "no CPU of NUMA node 0 is allowed", f"{NODES}=1,0"),
    (DUAL, {RESERVE: "7"}, 2, PlanError, "rank 1 would have no CPU left", f"{RESERVE}=7 is read as"),
])  # fmt: skip
def test_the_hint_has_the_value_that_does_not_fit_the_machine(machine, env, ranks, error, message, hint):
    with pytest.raises(error, match=message) as caught:
        make_plan(machine, wanted(env, ranks, machine=machine))
    assert hint in caught.value.hint
    assert machine is not BOUND or caught.value.span == (2, 3), "the second node is marked"


@pytest.mark.parametrize(("env", "given", "reason"), [
    ({BIND: "0|4"}, ["mask"], "--mask is given"), ({BIND: "0|4"}, ["bind", "smt"], None),
    ({RESERVE: "1"}, ["service_cores"], "--service-cores is given"),
    ({NODES: "1", SLICES: "1"}, [], "VLLM_CPU_SIM_MULTI_NUMA is set"),
    ({NODES: "1", SLICES: "0"}, [], "VLLM_CPU_SIM_MULTI_NUMA is set"),  # vLLM tests whether it is there
    ({RESERVE: "1", BIND: "nobind"}, [], "ranks are not bound"),
    ({NODES: "1", BIND: "0|4"}, [], "the mask selects the CPUs"), ({NODES: "1"}, ["strategy"], None),
])  # fmt: skip
def test_options_override_variables(env, given, reason):
    made = wanted(env, given=given)
    name, value = next(iter(env.items()))
    others = {other: env[other] for other in env if other != name}
    untouched = wanted(others, given=given) if name != BIND else Request(ranks=2)
    assert (made == untouched.replace(compat=made.compat)) is bool(reason)
    found = [text for text in made.compat.others if "not used" in text and text.startswith(name)]
    assert found == ([f"{name}={value} is not used: {reason}"] if reason else [])


SMT4 = make_machine(Shape(cores=2, smt=4, numbering="adjacent"), arch="ppc64le")
RISCV, LOONGARCH = ARM.replace(arch="riscv64"), DUAL.replace(arch="loongarch64")
MEMORY_OF_1 = DUAL.replace(memory_allowed=CpuSet([1]))
UNEVEN = "more ranks than NUMA nodes"


@pytest.mark.parametrize(("machine", "env", "ranks", "expected"), [
    (DUAL, {}, 2, None), (DUAL, {}, 3, UNEVEN),
    (SMT4, {}, 1, "vLLM uses the CPUs with number % 8 < 4: on this machine it leaves whole cores idle"),
    (LOONGARCH, {}, 2, "vLLM cannot select CPUs on loongarch64"),
    (BOUND, {}, 1, "NUMA node 0 skipped: no CPU is allowed; vLLM would give a rank no CPU"),
    (BOUND.replace(memory_allowed=CpuSet([1])), {}, 1, None),
    (DUAL, {RESERVE: "1", BIND: "0-1|2-3"}, 2, f"vLLM itself ignores {RESERVE} if CPU lists are given"),
    (DUAL, {SLICES: "1"}, 2, "vLLM slices CPUs by number"),
    (DUAL, {NODES: "1,5"}, 1, f"{NODES}: there is no NUMA node 5"),
    (MEMORY_OF_1, {NODES: "0-2"}, 1, f"{NODES}: there is no NUMA node 2; NUMA node 0 not used"),
    (MEMORY_OF_1, {NODES: "0"}, 1, f"{NODES} has only NUMA nodes whose memory is not allowed"),
    (RISCV, {}, 2, "vLLM takes this machine for one NUMA node, and stops"),
])  # fmt: skip
def test_a_note_names_each_difference_from_vllm(machine, env, ranks, expected):
    texts = texts_of(make_plan(machine, wanted(env, ranks, machine=machine)), "compat")
    usual = (" is read as ", " is not set: ", "so that vLLM does not bind threads again")
    different = [text for text in texts if not any(part in text for part in usual)]
    assert len(different) == bool(expected)
    assert not expected or different[0].startswith(expected)


@pytest.mark.parametrize(("machine", "ranks", "command", "expected"), [
    (DUAL, 2, "m --kv-transfer-config {}", "8-9+10-11 12-13+14-15"),
    (ARM, 2, "--kv_transfer_config.kv_role=x", "0-1+4-5 2-3+6-7"),
    # the plug-in divides the CPUs of a rank among the workers of its server
    (DUAL, 1, "m -tp 2", "8-13+14-15"), (DUAL, 2, "m -tp 2", "8-9+10-11 12-13+14-15"),
])  # fmt: skip
def test_reserved_cpus_depend_on_the_machine_and_the_command(machine, ranks, command, expected):
    env = {"OMPBIND_VLLM": "1"} if "-tp" in command else {}
    words = ("vllm", "serve", *command.split())
    made = make_plan(machine, wanted(env, ranks, machine=machine, command=words))
    assert (show(made), [note for note in made.notes if note.warning]) == (expected, [])


def test_ranks_get_the_variables_of_vllm_for_a_preloaded_runtime():
    spec = RunSpec(argv=("x",), run_id="r", base={}, added_variables=(("KMP_TPAUSE", "1"),))
    for library, blocktime in (("preloaded iomp", "5"), ("preloaded gomp", None)):
        made = make_plan(DUAL, wanted({}, workload=workload("python", library)))
        found = make_command(made, make_identities(len(made.placements))[0], spec).env
        assert (found.get("KMP_BLOCKTIME"), found["KMP_TPAUSE"]) == (blocktime, "1")


@pytest.mark.parametrize(("gib", "ranks", "expected"), [
    ("2", 2, ["2 GiB of memory needed by rank 0 are more than the 1 GiB of NUMA node 0",
              "2 GiB of memory needed by rank 1 are more than the 1 GiB of NUMA node 1"]),
    ("1", 4, ["2 GiB of memory needed by ranks 0-1 are more than the 1 GiB of NUMA node 0",
              "2 GiB of memory needed by ranks 2-3 are more than the 1 GiB of NUMA node 1"]),
    ("00", 2, []),  # a size that the server selects
])  # fmt: skip
def test_a_warning_names_ranks_that_need_more_memory_than_their_nodes_have(gib, ranks, expected):
    made = make_plan(DUAL, wanted({MEMORY: gib, RESERVE: "0"}, ranks))
    assert texts_of(made, "memory-needs") == expected
    assert made.request.memory_bytes == int(gib) << 30


@pytest.mark.parametrize(("framework", "command", "workers"), [
    ("vllm", "vllm serve MODEL -tp 2", 2),
    ("vllm", "vllm serve MODEL -pcp 2 --tensor-parallel-size 2", 4),
    ("vllm", "vllm serve --tensor_parallel_size=2 MODEL -dp 2 --pipeline-parallel-size 3", 12),
    ("sglang", "sglang serve --tp-size=2 --pp-size 2 --dp 8", 32),
    ("sglang", "sglang serve --tp 4 --dp 4 --enable-dp-attention", 4),
    ("sglang", "python -m sglang.launch_server -tp 2", 1),
])  # fmt: skip
def test_workers_of_a_server_in_a_rank_are_a_warning(framework, command, workers):
    made = make_plan(DUAL, wanted({}, "auto", framework=framework, command=tuple(command.split())))
    texts = [note.text for note in made.notes if note.warning]
    plan = f'use eval "$(ompbind plan -n {workers} --compat {framework} --format {framework})"'
    found = [f"each server starts {workers} workers" in text and plan in text for text in texts]
    assert found == [True] * (workers > 1)


def test_lists_for_the_workers_of_one_server_get_a_hint_unless_the_user_has_given_the_mask():
    hint = wanted({BIND: "0-1|2-3"}, 2).compat.workers
    assert hint.startswith("for one server with 2 workers (vllm serve -tp 2), use eval ")
    mask = parse_mask("0-1|2-3")
    for made in (wanted({}, 2, mask=mask, given=("mask",)), wanted({BIND: "0-3"}, 1)):
        assert made.compat.workers == ""


@pytest.mark.parametrize("ranks", ["auto", 2, 4])
def test_a_plan_for_workers_needs_a_list_for_each(ranks):
    command = ("vllm", "serve", "MODEL", "-tp", "2", "-dp", "2")
    made = make_plan(DUAL, wanted({}, ranks, command=command, for_workers=True))
    text = "the server starts 4 workers, and the plan has 2 CPU lists; use -n 4"
    assert [note.text for note in made.notes if note.warning] == [text] * (ranks == 2)
    unbound = make_plan(DUAL, wanted({}, "auto", command=command, mask=parse_mask("none")))
    assert not [note for note in unbound.notes if note.warning]


LISTS = {BIND: "4-7|0-3"}


@pytest.mark.parametrize(("words", "env", "expected"), [
    ("", LISTS, "0-3 4-7"), ("--compat vllm", LISTS, "4-7 0-3"),
    ("", {**LISTS, "OMPBIND_COMPAT": "vllm"}, "4-7 0-3"), ("--compat vllm -s balanced", LISTS, "0-3 4-7"),
    ("--compat vllm --service-cores 2", {RESERVE: "2"}, "0-1 4-5"),
    ("--compat vllm -s cores", {NODES: "1,0"}, "4 5"),
])  # fmt: skip
def test_options_override_their_variables_which_override_compatibility(words, env, expected):
    machine = ("--topology", "synthetic:pack:2 numa:1 core:4 pu:1")
    done = call("plan", *f"-n 2 --format json {words}".split(), *machine, **env)
    assert " ".join(str(CpuSet(rank["cpus"])) for rank in json.loads(done.stdout)["ranks"]) == expected
