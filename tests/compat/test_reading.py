"""Variables of vLLM and SGLang: how they are read, what overrides them, what ranks get; a new framework."""

import json

import pytest
from click.testing import CliRunner

from ompbind.cli.main import load_verb
from ompbind.compat.frameworks import FRAMEWORKS, FrameworkInput
from ompbind.compat.reading import fill_request, find_hidden_variables, make_rank_variables
from ompbind.compat.settings import make_foreign_settings
from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError, OmpbindError, OptionError, PlanError
from ompbind.machine.model import Level
from ompbind.masks.mask import MaskWord
from ompbind.masks.parse import parse_mask
from ompbind.openmp.binding import Bind
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import RunSpec, make_command, make_local_identities
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine
from tests.planning.test_faults_of_others import with_level
from tests.planning.test_planner import lists
from tests.planning.test_runtime_choice import workload
from tests.toys import run_with

DUAL = make_machine(Shape(packages=2, cores=4, smt=2), arch="x86_64")  # nodes 0-3,8-11 and 4-7,12-15
SNC = make_machine(Shape(packages=2, nodes=2, cores=4), arch="x86_64")  # four nodes of four CPUs
ARM = make_machine(Shape(packages=2, cores=2, smt=2), arch="aarch64")  # nodes 0-1,4-5 and 2-3,6-7
POWER = make_machine(Shape(packages=2, cores=2, smt=8, numbering="adjacent"), arch="ppc64le")
BIND, RESERVE, NODES, SLICES, MEMORY = (
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_CPU_NUM_OF_RESERVED_CPU",
    "CPU_VISIBLE_MEMORY_NODES",
    "VLLM_CPU_SIM_MULTI_NUMA",
    "VLLM_CPU_KVCACHE_SPACE",
)
SGLANG = "SGLANG_CPU_OMP_THREADS_BIND"


def wanted(env, ranks=2, given=(), framework="vllm", *, machine=DUAL, command=(), **options):
    source = FrameworkInput(machine=machine, env=env, command=command)
    return fill_request(Request(ranks=ranks, **options), framework, source, given)


def show(made):
    """The CPUs of each rank, with its service CPUs after a plus."""
    return [
        f"{rank.compute}+{rank.service_cpus}" if rank.service_cpus else str(rank.compute)
        for rank in made.placements
    ]


@pytest.mark.parametrize(
    ("machine", "framework", "env", "ranks", "expected"),
    [
        (DUAL, "vllm", {}, 2, ["8-11", "12-14+15"]),
        (DUAL, "vllm", {BIND: ""}, 2, ["8-11", "12-14+15"]),
        (DUAL, "vllm", {BIND: "auto"}, 2, ["8-11", "12-14+15"]),
        (DUAL, "vllm", {BIND: " auto "}, 1, ["8-10+11"]),
        (DUAL, "vllm", {BIND: "auto"}, 4, ["8-9", "10-11", "12-13", "14+15"]),
        (DUAL, "vllm", {BIND: "auto"}, None, ["8-11", "12-14+15"]),
        (ARM, "vllm", {}, 2, ["0-1,4+5", "2-3,6+7"]),
        (ARM, "vllm", {}, None, ["0-1,4+5", "2-3,6+7"]),
        (ARM, "vllm", {RESERVE: "1"}, 2, ["0-1,4-5", "2-3,6+7"]),
        (POWER, "vllm", {}, 2, ["0-3,8-11", "16-19,24-26+27"]),
        (DUAL, "vllm", {BIND: "nobind"}, 2, ["0-15", "0-15"]),
        (DUAL, "vllm", {BIND: "0-3"}, 1, ["0-3"]),
        (DUAL, "vllm", {BIND: "4-7|0-3"}, 2, ["4-7", "0-3"]),
        (DUAL, "vllm", {BIND: "4-7|0-3"}, None, ["4-7", "0-3"]),
        (DUAL, "vllm", {BIND: "0|1-7"}, 2, ["0", "1-7"]),
        (DUAL, "vllm", {BIND: " 4 - 7 ,2 |\t0 -1 "}, 2, ["2,4-7", "0-1"]),
        (DUAL, "vllm", {BIND: "0-1,8-9|2,10"}, 2, ["0-1,8-9", "2,10"]),
        (DUAL, "vllm", {RESERVE: "1"}, 2, ["8-11", "12-14+15"]),
        (DUAL, "vllm", {RESERVE: "2"}, 2, ["8-10+11", "12-14+15"]),
        (DUAL, "vllm", {RESERVE: "5"}, 2, ["8-9+10-11", "12+13-15"]),
        (DUAL, "vllm", {RESERVE: " 0 "}, 2, ["8-11", "12-15"]),
        (DUAL, "vllm", {RESERVE: ""}, 2, ["8-11", "12-14+15"]),
        (DUAL, "vllm", {RESERVE: "2", BIND: "4-7|0-3"}, 2, ["4-6+7", "0-2+3"]),
        (DUAL, "vllm", {NODES: "1,0"}, 2, ["12-15", "8-10+11"]),
        (DUAL, "vllm", {NODES: "1"}, 2, ["12-13", "14+15"]),
        (DUAL, "vllm", {NODES: "1,0", RESERVE: "0"}, 4, ["12-13", "14-15", "8-9", "10-11"]),
        (DUAL, "vllm", {NODES: "1"}, None, ["12-14+15"]),
        (DUAL, "vllm", {NODES: "7,1,9"}, 1, ["12-14+15"]),
        (DUAL, "vllm", {NODES: "1", RESERVE: "2"}, 2, ["12+13", "14+15"]),
        (SNC, "vllm", {NODES: "3,0-1"}, 3, ["12-15", "0-3", "4-6+7"]),
        (SNC, "vllm", {NODES: " 2 , 0 - 1 "}, 3, ["8-11", "0-3", "4-6+7"]),
        (SNC, "vllm", {NODES: "0,2,1,3"}, 2, ["0-3", "8-10+11"]),
        (DUAL, "vllm", {BIND: "0|4", NODES: "1"}, 2, ["0", "4"]),
        (DUAL, "vllm", {SGLANG: "0|4"}, 2, ["8-11", "12-14+15"]),
        (DUAL, "vllm", {SLICES: "0"}, 1, ["8-10+11"]),
        (DUAL, "vllm", {SLICES: "1"}, 1, ["8-14+15"]),
        (DUAL, "vllm", {SLICES: "1", NODES: "1"}, 3, ["8-9", "10-11", "12+13"]),
        (SNC, "vllm", {SLICES: "1"}, 8, ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14+15"]),
        (DUAL, "vllm", {SLICES: "1", BIND: "0|4"}, 2, ["0", "4"]),
        (DUAL, "sglang", {}, 2, ["0-3", "4-7"]),
        (DUAL, "sglang", {SGLANG: "all"}, 2, ["0-3", "4-7"]),
        (DUAL, "sglang", {SGLANG: "4-7|0-3"}, 2, ["4-7", "0-3"]),
        (DUAL, "sglang", {BIND: "0|4", RESERVE: "1", NODES: "1"}, 2, ["0-3", "4-7"]),
    ],
)
def test_ranks_get_what_the_variables_say(machine, framework, env, ranks, expected):
    request = wanted(env, ranks, framework=framework, machine=machine)
    assert show(make_plan(machine, request)) == expected


def test_more_ranks_than_visible_nodes_share_cores_in_the_order_of_nodes():
    made = make_plan(DUAL, wanted({NODES: "1,0", RESERVE: "0"}, ranks=10, given=["smt", "sibling"]))
    assert lists(made) == ["4", "12", "5", "6", "7", "0", "8", "1", "2", "3"]


def test_threads_of_a_rank_follow_the_order_of_visible_nodes():
    (placement,) = make_plan(DUAL, wanted({NODES: "1,0"}, ranks=1, given=["strategy"])).placements
    assert placement.cpus == (12, 13, 14, 8, 9, 10, 11)
    assert placement.service_cpus == CpuSet([15])


@pytest.mark.parametrize(
    ("framework", "env", "marked", "message"),
    [
        ("vllm", {BIND: "0-3|4-x"}, "x", "'x' is not a number"),
        ("vllm", {BIND: "0 - 3|4 - 5 , 6|7,x"}, "x", "'x' is not a number"),
        ("vllm", {BIND: "0-3|"}, "", "an item is empty"),
        ("vllm", {BIND: "0-3,,5"}, ",", "an item is empty"),
        ("vllm", {BIND: "0-3|7-4"}, "7-4", "the range '7-4' is reversed"),
        ("vllm", {BIND: "0-3|7 - 4"}, "7 -", "the range '7-4' is reversed"),
        ("vllm", {BIND: "-1"}, "-", "negative"),
        ("vllm", {BIND: "none"}, "none", "vLLM does not accept 'none'"),
        ("vllm", {BIND: "auto|0"}, "auto", "cannot be combined with other items"),
        ("vllm", {RESERVE: " 1.5"}, "1.5", "'1.5' is not a number of CPUs"),
        ("vllm", {RESERVE: "-1"}, "-1", "'-1' is not a number of CPUs"),
        ("vllm", {NODES: "1,x"}, "x", "'x' is not allowed in a list"),
        ("vllm", {NODES: "1|0"}, "|", "is not allowed in a list"),
        ("vllm", {NODES: "node:1"}, "n", "is not allowed in a list"),
        ("vllm", {NODES: "0-1,1"}, "1", "NUMA node 1 is named twice"),
        ("vllm", {NODES: "1,,0"}, ",", "an item is empty"),
        ("vllm", {NODES: "3-1"}, "3-1", "reversed"),
        ("vllm", {MEMORY: " 4GiB"}, "4GiB", "'4GiB' is not a number of GiB"),
        ("sglang", {SGLANG: "nobind"}, "nobind", "SGLang does not accept 'nobind'"),
        ("sglang", {SGLANG: "auto"}, "auto", "SGLang does not accept 'auto'"),
        ("sglang", {SGLANG: "0-3|4-"}, "", "a number is missing"),
    ],
)
def test_errors_name_the_variable_and_mark_the_position(framework, env, marked, message):
    with pytest.raises(MaskError, match=message) as caught:
        make_foreign_settings(FRAMEWORKS[framework], FrameworkInput(machine=DUAL, env=env))
    ((name, text),) = env.items()
    assert caught.value.message.startswith(f"{name}: ")
    assert (caught.value.text, text[slice(*caught.value.span)]) == (text, marked)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("env", "ranks", "error", "message", "hint"),
    [
        ({BIND: "0-3|14-17"}, 2, MaskError, "CPUs 16-17 do not exist", f"{BIND}=0-3|14-17"),
        ({BIND: "0-3|4-7"}, 4, MaskError, "2 parts for 4 ranks", "unset a variable to ignore it"),
        ({BIND: "0-3|3-4"}, 2, MaskError, "ranks 0 and 1 would both get CPU 3", f"{BIND}=0-3|3-4"),
        ({BIND: "0-3|4-7"}, 3, MaskError, "2 parts for 3 ranks", "use -n 2"),
        ({NODES: "8,7"}, 2, MaskError, "no node with OS number 8", f"{NODES}=8,7"),
        ({RESERVE: "7"}, 2, PlanError, "rank 1 would have no CPU left", f"{RESERVE}=7 is read as"),
    ],
)
def test_the_hint_has_the_value_that_does_not_fit_the_machine(env, ranks, error, message, hint):
    with pytest.raises(error, match=message) as caught:
        make_plan(DUAL, wanted(env, ranks))
    assert hint in caught.value.hint
    if isinstance(caught.value, MaskError):
        assert caught.value.text in env.values()


@pytest.mark.parametrize("for_workers", [False, True])
def test_lists_for_the_workers_of_a_server_keep_all_cpus(for_workers):
    """Otherwise the second of two equal commands with eval would reserve CPUs of the lists of the first."""
    env = {BIND: "4-7|0-3", RESERVE: "2"}
    source = FrameworkInput(machine=DUAL, env=env, for_workers=for_workers)
    made = make_plan(DUAL, fill_request(Request(ranks=2), "vllm", source))
    assert show(made) == (["4-7", "0-3"] if for_workers else ["4-6+7", "0-2+3"])
    note = f"{RESERVE}=2 is not used: {BIND} has CPU lists, and vLLM then reserves no CPUs"
    assert (note in made.request.compat.others) is for_workers


@pytest.mark.parametrize("for_workers", [False, True])
def test_workers_of_a_server_get_cpus_without_the_reserved_ones(for_workers):
    source = FrameworkInput(machine=DUAL, env={RESERVE: "2"}, for_workers=for_workers)
    made = make_plan(DUAL, fill_request(Request(ranks=2), "vllm", source))
    assert show(made) == ["8-10+11", "12-14+15"]


def test_nodes_without_allowed_cpus_are_refused_and_not_dropped():
    machine = DUAL.replace(allowed=CpuSet([0, 1, 8, 9]))
    with pytest.raises(MaskError, match="no CPU of NUMA node 1 is allowed") as caught:
        make_plan(machine, wanted({NODES: "0,1"}, machine=machine))
    assert caught.value.span == (2, 3)
    assert show(make_plan(machine, wanted({}, machine=machine))) == ["8", "9"]


@pytest.mark.parametrize(
    ("env", "given", "reason"),
    [
        ({BIND: "0|4"}, ["mask"], "--mask is given"),
        ({BIND: "0|4"}, ["strategy"], "--strategy is given"),
        ({BIND: "0|4"}, ["cores"], "--cores is given"),
        ({BIND: "nobind"}, ["cores"], "--cores is given"),
        ({BIND: "nobind"}, ["bind"], "--bind is given"),
        ({BIND: "nobind"}, ["smt"], "--smt is given"),
        ({BIND: "0|4"}, ["bind", "smt"], None),
        ({RESERVE: "1"}, ["service_total"], "--service-total is given"),
        ({RESERVE: "1"}, ["service_cores"], "--service-cores is given"),
        ({SLICES: "1"}, ["strategy"], "--strategy is given"),
        ({SLICES: "1", BIND: "0|4"}, [], "the mask selects the CPUs"),
        ({NODES: "1", SLICES: "1"}, [], "VLLM_CPU_SIM_MULTI_NUMA is set"),
        ({RESERVE: "1"}, ["reserve"], "--reserve is given"),
        ({RESERVE: "1"}, ["reserve_total"], "--reserve-total is given"),
        ({RESERVE: "1", BIND: "nobind"}, [], "ranks are not bound"),
        ({NODES: "1", BIND: "nobind"}, [], "ranks are not bound"),
        ({NODES: "1", BIND: "0|4"}, [], "the mask selects the CPUs"),
        ({NODES: "1"}, ["strategy"], None),
    ],
)
def test_options_override_variables(env, given, reason):
    made = wanted(env, given=given)
    name, value = next(iter(env.items()))
    others = {other: env[other] for other in env if other != name}
    untouched = wanted(others, given=given) if name != BIND else Request(ranks=2)
    untouched = untouched.replace(compat=made.compat)
    if reason:
        assert f"{name}={value} is not used: {reason}" in made.compat.others
        assert made == untouched
    else:
        assert made != untouched
        assert not [text for text in made.compat.others if "not used" in text]


def find_texts(made):
    return [note.text for note in made.notes if note.code == "compat"]


def test_notes_say_how_variables_were_read():
    made = make_plan(DUAL, wanted({RESERVE: "1", NODES: "1,0"}))
    assert find_texts(made) == [
        f"{RESERVE}=1 is read as service CPUs of all ranks together (--service-total 1)",
        f"{NODES}=1,0 is read as the NUMA nodes to use, in this order",
        f"{BIND} is not set: the CPUs that vLLM selects (-s numa --sibling last)",
        f"ranks get {BIND}=nobind, so that vLLM does not bind threads again",
    ]
    assert not [note for note in made.notes if note.warning]
    assert wanted({BIND: "nobind"}).mask.word is MaskWord.NONE
    assert "compat" not in {note.code for note in make_plan(DUAL, Request()).notes}


PACKAGES = with_level(make_machine(Shape(cores=4), arch="x86_64"), Level.PACKAGE, ["0-1", "2-3"])
INTERLEAVED = with_level(make_machine(Shape(cores=4), arch="x86_64"), Level.PACKAGE, ["0,2", "1,3"])
SMT4 = make_machine(Shape(cores=2, smt=4, numbering="adjacent"), arch="ppc64le")
RISCV = ARM.replace(arch="riscv64")
SMT8 = make_machine(Shape(cores=2, smt=8, numbering="adjacent"), arch="ppc64le")
ONLINE = CpuSet.from_list("0-3,8-11")
SMT4_OF_8 = SMT8.replace(
    online=ONLINE, allowed=ONLINE, domains=tuple(one.replace(cpus=one.cpus & ONLINE) for one in SMT8.domains)
)
BOUND = DUAL.replace(allowed=DUAL.nodes[1].cpus)


@pytest.mark.parametrize(
    ("machine", "env", "ranks", "expected"),
    [
        (DUAL, {}, 2, None),
        (PACKAGES, {}, 2, None),
        (POWER, {}, 2, None),
        (ARM, {}, 2, None),
        (DUAL, {BIND: "0|1"}, 2, None),
        (DUAL, {}, 3, "more ranks than NUMA nodes or packages: ranks divide these evenly (vLLM stops"),
        (DUAL, {NODES: "1"}, 2, "more ranks than NUMA nodes or packages"),
        (PACKAGES, {}, 3, "more ranks than NUMA nodes or packages"),
        (PACKAGES, {NODES: "0"}, 2, f"vLLM ignores {NODES} if a NUMA node has several packages"),
        (SMT4_OF_8, {}, 1, None),
        (SMT4, {}, 1, "vLLM uses the CPUs with number % 8 < 4: on this machine it leaves whole cores idle"),
        (DUAL.replace(arch="loongarch64"), {}, 2, "vLLM cannot select CPUs on loongarch64; ranks get CPUs"),
        (BOUND, {}, 1, "NUMA node 0 skipped: no CPU is allowed; vLLM would give a rank no CPU"),
        (BOUND.replace(memory_allowed=CpuSet([1])), {}, 1, None),
        (DUAL, {RESERVE: "1", BIND: "0-1|2-3"}, 2, f"vLLM itself ignores {RESERVE} if CPU lists are given"),
        (RISCV, {SLICES: "1"}, 2, "vLLM slices hardware threads, so that ranks can share cores"),
        (DUAL, {SLICES: "1"}, 2, "vLLM slices hardware threads, so that ranks can share cores"),
        (SNC, {SLICES: "1"}, 2, None),
        (INTERLEAVED, {SLICES: "1"}, 2, "vLLM slices CPUs by number; ranks get cores that share packages"),
        (DUAL, {NODES: "1,5"}, 1, f"{NODES}: there is no NUMA node 5"),
        (
            DUAL.replace(memory_allowed=CpuSet([1])),
            {NODES: "0-2"},
            1,
            f"{NODES}: there is no NUMA node 2; NUMA node 0 not used, because its memory is not allowed",
        ),
        (DUAL.replace(memory_allowed=CpuSet([1])), {NODES: "1"}, 1, None),
        (
            DUAL.replace(memory_allowed=CpuSet([1])),
            {NODES: "0"},
            1,
            f"{NODES} has only NUMA nodes whose memory is not allowed: ranks use memory of other nodes",
        ),
        (RISCV, {}, 1, None),
        (RISCV, {}, 2, "vLLM takes this machine for one NUMA node, and stops; ranks divide all cores evenly"),
    ],
)
def test_a_note_names_each_difference_from_vllm(machine, env, ranks, expected):
    texts = find_texts(make_plan(machine, wanted(env, ranks, machine=machine)))
    usual = (" is read as ", " is not set: ", "so that vLLM does not bind threads again")
    different = [text for text in texts if not any(part in text for part in usual)]
    assert len(different) == bool(expected)
    assert not expected or different[0].startswith(expected)


@pytest.mark.parametrize(
    ("machine", "command", "expected"),
    [
        (DUAL, ("vllm", "serve", "m"), "1 service CPU of all ranks together (--service-total 1)"),
        (
            DUAL,
            ("vllm", "serve", "m", "--kv-transfer-config", "{}"),
            "2 service CPUs of all ranks together, 1 of them for --kv-transfer-config (--service-total 2)",
        ),
        (
            ARM,
            ("vllm", "serve", "--kv_transfer_config.kv_role=x"),
            "1 service CPU per rank and 1 service CPU of all ranks together, "
            "1 of them for --kv-transfer-config (--service-total 1)",
        ),
        (ARM, (), "1 service CPU per rank"),
    ],
)
def test_reserved_cpus_depend_on_the_machine_and_the_command(machine, command, expected):
    made = wanted({}, machine=machine, command=command)
    assert f"{RESERVE} is not set: {expected}" in made.compat.others


@pytest.mark.parametrize(
    ("env", "ranks", "options", "expected"),
    [
        ({}, 2, {}, "rank 0 has no service CPU: if each rank is a server, use --service-total 2"),
        (
            {RESERVE: "1"},
            3,
            {},
            "ranks 0-1 have no service CPU: if each rank is a server, use --service-total 3",
        ),
        ({}, 1, {}, None),
        ({RESERVE: "0"}, 2, {}, None),
        ({RESERVE: "2"}, 2, {}, None),
        ({RESERVE: "1"}, 2, {"cores": 2}, None),
        ({RESERVE: "1"}, 2, {"strategy": "all"}, None),
        ({}, 8, {}, None),  # one CPU each
    ],
)
def test_a_note_names_the_ranks_for_which_vllm_reserves_no_cpu(env, ranks, options, expected):
    made = make_plan(DUAL, wanted(env, ranks, given=tuple(options), **options))
    assert [note.text for note in made.notes if note.code == "service-uneven"] == [expected] * bool(expected)
    has_none = [rank.rank for rank in made.placements if not rank.service_cpus]
    assert bool(expected) == (0 < len(has_none) < ranks)  # not if all ranks are without
    plain = make_plan(DUAL, Request(ranks=2, service_total=1))
    assert "service-uneven" not in {note.code for note in plain.notes}


@pytest.mark.parametrize("option", ["mask", "service_total", "reserve", "reserve_total", "cores", "threads"])
def test_an_option_replaces_the_reserved_cpus_that_are_not_requested(option):
    options = {"mask": parse_mask("0|1")} if option == "mask" else {}
    made = wanted({}, given=[option], **options)
    assert not made.has_service
    assert not [text for text in made.compat.others if RESERVE in text]
    assert not wanted({}, bind=Bind.EXACT).has_service


def test_a_strategy_of_the_user_is_no_difference_of_the_machine():
    texts = find_texts(make_plan(DUAL, wanted({RESERVE: "0"}, given=["strategy"], strategy="balanced")))
    assert not [text for text in texts if "one NUMA node" in text]


@pytest.mark.parametrize(
    ("env", "start"), [({}, "vLLM reserves CPUs; ranks do not"), ({RESERVE: "2"}, RESERVE)]
)
def test_a_note_says_that_no_thread_could_use_reserved_cpus(env, start):
    texts = find_texts(make_plan(DUAL, wanted(env, bind=Bind.EXACT)))
    reason = "--bind exact leaves no thread that could use"
    assert [text.startswith(start) for text in texts if reason in text] == [True]


def test_requested_service_cpus_are_on_top_of_requested_cores():
    made = make_plan(DUAL, wanted({RESERVE: "2"}, given=["cores"], cores=2))
    assert show(made) == ["8-9+2,10", "12-13+6,14"]


@pytest.mark.parametrize(
    ("library", "env", "expected"),
    [
        ("preloaded iomp", {}, ("5", "0")),
        ("preloaded omp 18", {}, ("5", "0")),
        ("preloaded iomp", {"KMP_BLOCKTIME": "200"}, ("200", "0")),
        ("preloaded gomp", {}, (None, None)),
        ("available iomp", {}, (None, None)),
    ],
)
def test_ranks_get_the_variables_of_vllm_for_a_preloaded_runtime(library, env, expected):
    request = wanted({}, workload=workload("python", library))
    made = make_plan(DUAL, request)
    spec = RunSpec(argv=("x",), run_id="r", base=env)
    identity = make_local_identities(made)[0]
    found = make_command(made, identity, spec).env
    assert (found.get("KMP_BLOCKTIME"), found.get("KMP_TPAUSE")) == expected
    note = "ranks get KMP_BLOCKTIME=5 and KMP_TPAUSE=0 unless you set them, as vLLM does for this runtime"
    assert (note in find_texts(made)) is (expected[1] is not None)
    chosen = spec.replace(added_variables=(("KMP_TPAUSE", "1"),))
    assert make_command(made, identity, chosen).env["KMP_TPAUSE"] == "1"


@pytest.mark.parametrize(
    ("gib", "ranks", "expected"),
    [
        ("1", 2, []),
        ("2", 2, ["rank 0 needs 2 GiB of memory, but NUMA node 0 has 1 GiB",
                  "rank 1 needs 2 GiB of memory, but NUMA node 1 has 1 GiB"]),
        ("1", 4, ["ranks 0-1 need 2 GiB of memory, but NUMA node 0 has 1 GiB",
                  "ranks 2-3 need 2 GiB of memory, but NUMA node 1 has 1 GiB"]),
    ],
)  # fmt: skip
def test_a_warning_names_ranks_that_need_more_memory_than_their_nodes_have(gib, ranks, expected):
    made = make_plan(DUAL, wanted({MEMORY: gib, RESERVE: "0"}, ranks))
    assert [note.text for note in made.notes if note.code == "memory-needs"] == expected
    assert f"{MEMORY}={gib} is read as {gib} GiB of memory for each rank" in made.request.compat.read


@pytest.mark.parametrize("text", ["0", "00"])
def test_a_size_of_zero_leaves_the_size_to_the_server(text):
    made = make_plan(DUAL, wanted({MEMORY: text, RESERVE: "0"}, 2))
    assert f"{MEMORY}={text} is read as memory of a size that the server selects" in made.request.compat.read
    assert made.request.memory_bytes == 0


ENV = {BIND: "4-7|0-3", RESERVE: "1", NODES: "0", "VLLM_CPU_SIM_MULTI_NUMA": "1", SGLANG: "0-3", "HOME": "/"}


@pytest.mark.parametrize(
    ("framework", "found", "lost"),
    [
        ("vllm", (BIND, ["nobind", "nobind"]), {RESERVE, NODES, "VLLM_CPU_SIM_MULTI_NUMA"}),
        ("sglang", (SGLANG, ["4-7", "0-3"]), set()),
    ],
)
def test_ranks_get_values_that_keep_their_cpus(framework, found, lost):
    made = make_plan(DUAL, Request(ranks=2, mask=parse_mask("4-7|0-3")))
    spec = RunSpec(
        argv=("x",),
        run_id="r",
        base=ENV,
        added_variables=make_rank_variables(framework),
        removed_variables=find_hidden_variables(framework),
        keep_env=True,
    )
    envs = [make_command(made, identity, spec).env for identity in make_local_identities(made)]
    assert [env[found[0]] for env in envs] == found[1]
    assert {name for name in ENV if name not in envs[0]} == lost
    overridden = spec.replace(added_variables=(*spec.added_variables, (found[0], "mine")))
    assert make_command(made, make_local_identities(made)[0], overridden).env[found[0]] == "mine"


def shown(*args, env=None, **expected):
    """Run `ompbind plan` in this process on a described machine and return its JSON."""
    runner = CliRunner(env={BIND: None, RESERVE: None, NODES: None, SGLANG: None, **(env or {})})
    machine = "synthetic:pack:2 numa:1 core:4 pu:1"
    words = ["-n", "2", "--format", "json", "--topology", machine, *args]
    done = runner.invoke(load_verb("plan"), words, standalone_mode=False)
    if done.exception:
        raise done.exception
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        ([], {BIND: "4-7|0-3"}, ["0-3", "4-7"]),
        (["--compat", "vllm"], {BIND: "4-7|0-3"}, ["4-7", "0-3"]),
        ([], {BIND: "4-7|0-3", "OMPBIND_COMPAT": "vllm"}, ["4-7", "0-3"]),
        ([], {SGLANG: "4-7|0-3", "OMPBIND_COMPAT": "sglang"}, ["4-7", "0-3"]),
        (["--compat", "vllm", "-m", "0|1"], {BIND: "4-7|0-3"}, ["0", "1"]),
        (["--compat", "vllm"], {BIND: "4-7|0-3", "OMPBIND_MASK": "0|1"}, ["0", "1"]),
        (["--compat", "vllm"], {BIND: "4-7|0-3", "OMPBIND_MASK": ""}, ["4-7", "0-3"]),
        (["--compat", "vllm", "-m", "2|3"], {BIND: "4-7|0-3", "OMPBIND_MASK": "0|1"}, ["2", "3"]),
        (["--compat", "vllm", "-s", "balanced"], {BIND: "4-7|0-3"}, ["0-3", "4-7"]),
        (["--compat", "vllm", "-c", "2"], {BIND: "4-7|0-3"}, ["0-1", "4-5"]),
        (["--compat", "vllm", "--reserve", "0"], {RESERVE: "1"}, ["0-3", "4-7"]),
        (["--compat", "vllm"], {RESERVE: "2"}, ["0-2", "4-6"]),
        (["--compat", "vllm", "--service-total", "4"], {RESERVE: "2"}, ["0-1", "4-5"]),
        (["--compat", "vllm", "-c", "2"], {RESERVE: "2"}, ["0-1", "4-5"]),
        (["--compat", "vllm"], {RESERVE: "1", "OMPBIND_RESERVE": "2"}, ["0-1", "4-5"]),
        (["--compat", "vllm", "--reserve-total", "1"], {RESERVE: "3"}, ["0-2", "4-7"]),
        (["--compat", "vllm", "-s", "cores"], {NODES: "1,0"}, ["4", "5"]),
    ],
)
def test_options_override_their_variables_which_override_compatibility(args, env, expected):
    ranks = shown(*args, env=env)["ranks"]
    assert [str(CpuSet(rank["cpus"])) for rank in ranks] == expected


def test_json_has_the_family_the_nodes_and_the_variables():
    plan = shown("--compat", "vllm", env={NODES: "1,0", RESERVE: "1"})
    assert (plan["request"]["compat"], plan["request"]["nodes"], plan["request"]["mask"]) == (
        "vllm",
        [1, 0],
        "auto",
    )
    env = plan["ranks"][0]["env"]
    assert (env[BIND], env[NODES], env[RESERVE], env["OMP_PLACES"]) == ("nobind", None, None, "{4,5,6,7}")
    plain = shown(env={NODES: "1,0"})
    assert (plain["request"]["compat"], plain["request"]["nodes"]) == (None, [])
    assert not {BIND, NODES} & plain["ranks"][0]["env"].keys()


@pytest.mark.parametrize(
    ("framework", "variable", "command"),
    [("vllm", BIND, "vllm serve -tp 2"), ("sglang", SGLANG, "python -m sglang.launch_server --tp 2")],
)
def test_several_lists_for_one_rank_are_for_the_workers_of_one_server(framework, variable, command):
    with pytest.raises(MaskError, match="the mask has 2 parts for 1 rank") as caught:
        shown("-n", "1", "--compat", framework, env={variable: "0|1"})
    plan = f"ompbind plan -n 2 --compat {framework} --format {framework}"
    assert f'for one server with 2 workers ({command}), use eval "$({plan})"' in caught.value.hint
    for ranks, args, env in (
        ("3", ["--compat", framework], {variable: "0|1"}),
        ("1", ["--compat", framework, "-m", "0|1"], {}),
        ("1", ["-m", "0|1"], {variable: "0|1"}),
    ):
        with pytest.raises(MaskError, match="the mask has 2 parts") as caught:
            shown("-n", ranks, *args, env=env)
        assert "for one server" not in caught.value.hint


def test_unknown_families_are_usage_errors():
    with pytest.raises(OptionError, match="is not vllm or sglang"):
        shown("--compat", "ray")
    with pytest.raises(OmpbindError, match=f"{BIND}: "):
        shown("--compat", "vllm", env={BIND: "x"})


TOY = """
from ompbind.compat.frameworks import Framework, Selection
from ompbind.compat.frameworks import FRAMEWORKS
FRAMEWORKS["tgi"] = Framework(
    title="TGI", bind="TGI_CPUS", automatic="each", reserve="TGI_SPARE", inside="{cpus}",
    selections=(Selection(request_fields={"smt": 1}),),
    effect="ranks get their CPUs in TGI_CPUS",
)
"""


def test_a_framework_is_one_row():
    assert "--compat vllm|sglang|tgi" in run_with(TOY, "plan", "--help-all")
    options = ("-n", "2", "--compat", "tgi", "--topology", "synthetic:pack:1 core:8 pu:1")
    text = run_with(TOY, "plan", *options, TGI_CPUS="4-7|0-3", TGI_SPARE="1")
    assert " 1 3 3 0 0-2 3 " in text
    assert "TGI_CPUS=4-7|0-3 is read as the CPUs of ranks (-m)" in text
    assert "ranks get their CPUs in TGI_CPUS" in text
    sh = run_with(TOY, "plan", *options, "--format", "sh", "--rank", "1", TGI_CPUS="4-7|0-3", TGI_SPARE="1")
    assert "export TGI_CPUS=0-2" in sh
    assert "unset TGI_SPARE" in sh
    assert "TGI_CPUS: TGI does not accept 'none'" in run_with(TOY, "plan", *options, TGI_CPUS="none")
