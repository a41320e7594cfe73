"""Which devices are visible, by the variables of each vendor, and the variables that ranks get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.commands.environment import RunSpec, make_identities, make_variables
from ompbind.commands.rank_command import make_unbound_commands
from ompbind.planning.devices.visible import VENDOR_VARIABLES, find_visible_devices
from ompbind.planning.notes import explain
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine
from tests.planning.devices.gpus import (
    ROCM_UUIDS,
    UUIDS,
    make_amd_gpus,
    make_gpu,
    make_intel_gpus,
    make_nic,
    make_nvidia_gpus,
)

CUDA, ROCR, HIP = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
ORDINAL, ZE = "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"
PCI_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
MIXED = (make_gpu(0, product="2330"), make_gpu(1, product="1eb8"))
"""GPUs of two products: CUDA's own order is not known."""


def visible(gpus, env):
    return [device.index for device in find_visible_devices(gpus, env).devices]


def words(gpus, env=()):
    found = {}
    for word in find_visible_devices(gpus, dict(env)).words:
        found.setdefault(word.variable, {})[int(word.device.removeprefix("gpu:"))] = word.word
    return found


def remark(gpus, env=()):
    return " ".join(find_visible_devices(gpus, dict(env)).remarks)


def test_an_index_of_cuda_names_a_gpu_only_if_the_order_is_known():
    assert visible(MIXED, {CUDA: "1", **PCI_ORDER}) == [1]
    assert visible(MIXED, {CUDA: "1"}) == []
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in remark(MIXED, {CUDA: "1"})
    seen_by_cuda = tuple(gpu.replace(names=(f"cuda{1 - gpu.index}",)) for gpu in MIXED)
    assert visible(seen_by_cuda, {CUDA: "1"}) == [0]
    assert visible(seen_by_cuda, {CUDA: "1", **PCI_ORDER}) == [1]
    assert (visible(MIXED, {}), words(MIXED)) == ([0, 1], {})
    assert "ranks get no CUDA_VISIBLE_DEVICES" in remark(MIXED)


def test_indices_count_the_gpus_that_are_accessible_and_others_are_never_visible():
    gpus = tuple(gpu.replace(excluded="no access" if gpu.index < 2 else "") for gpu in make_nvidia_gpus())
    nics = (make_nic(0, "mlx5_0"), make_nic(1, "mlx5_1").replace(excluded="no cable"))
    assert visible(gpus, {CUDA: "1,0"}) == [3, 2]
    found = find_visible_devices((*gpus, *nics), {}).devices
    assert [device.name for device in found] == ["gpu:2", "gpu:3", "nic:0"]


def make_instances(*numbers, uuids=("", "", "")):
    return [make_gpu(n, uuid=uuids[i]).replace(partition=i, index=i) for i, n in enumerate(numbers)]


def test_mig_instances_are_named_by_their_uuids():
    parts = make_instances(0, 0, uuids=("MIG-11111111-1111", "MIG-22222222-2222"))
    assert visible(parts, {CUDA: "MIG-2222"}) == [1]
    assert visible(parts, {CUDA: "0"}) == []
    assert "index 0 is not known (name MIG instances by" in remark(parts, {CUDA: "0"})


def test_the_uuids_of_mig_instances_that_no_file_shows_reach_the_ranks_and_are_not_guessed():
    parts, both = make_instances(0, 0), {CUDA: "MIG-5678,MIG-1234"}
    assert visible(parts, both) == [0, 1]
    assert words(parts, both) == {CUDA: {0: "MIG-5678", 1: "MIG-1234"}}
    only = [parts[0].replace(excluded="no access"), parts[1]]
    assert (visible(only, both), words(only, both)) == ([1], {CUDA: {1: "MIG-5678"}})
    assert "CUDA ignores 'MIG-1234'" in remark(only, both)
    assert visible(parts, {CUDA: "MIG-1234,MIG-1234"}) == []
    assert visible([make_gpu(0)], {CUDA: "MIG-1234"}) == []
    several = make_instances(0, 0, 1)
    assert visible(several, {CUDA: "MIG-1234"}) == [], "not guessed"
    assert "the instance MIG-1234 is not known" in remark(several, {CUDA: "MIG-1234"})
    assert visible(parts, {}) == [], "CUDA would show each rank the same instance"
    assert "MIG instances gpu:0, gpu:1" in remark(parts)
    assert visible(parts[:1], {}) == [0]
    assert visible([*parts, make_gpu(2, uuid=UUIDS[0])], {}) == [2]


@pytest.mark.parametrize(("env", "expected"), [
    ({}, [0, 1, 2, 3]), ({CUDA: ""}, []), ({CUDA: "0,1,0"}, []), ({CUDA: " 3 , 1 "}, [3, 1]),
    ({CUDA: "0,2,-1,1"}, [0, 2]),  # the example of the CUDA Programming Guide
    ({CUDA: f"{UUIDS[3]},{UUIDS[0]}"}, [3, 0]), ({CUDA: "GPU-66,GPU-5"}, [2, 1]), ({CUDA: "GPU-5555,0"}, [1]),
    ({CUDA: "GPU-"}, []),  # not unambiguous
    ({CUDA: "gpu-4444"}, []), ({CUDA: "MIG-12345678"}, []),
    ({ROCR: ""}, []), ({ROCR: f"0,{ROCM_UUIDS[3]}"}, [0, 3]), ({ROCR: "gpu-5555"}, [1]),
    # the container runtime of NVIDIA, and CUDA counts what the container has
    ({"NVIDIA_VISIBLE_DEVICES": "void"}, [0, 1, 2, 3]), ({"NVIDIA_VISIBLE_DEVICES": "none"}, []),
    ({"NVIDIA_VISIBLE_DEVICES": "9"}, [0, 1, 2, 3]), ({"NVIDIA_VISIBLE_DEVICES": "2,3", CUDA: "1"}, [3]),
    # Slurm with ConstrainDevices: numbers within the job; without it: numbers on the node
    ({"SLURM_JOB_GPUS": "2,3", CUDA: "1"}, [3]), ({"SLURM_JOB_GPUS": "2,3", CUDA: "3"}, [3]),
    ({"SLURM_JOB_GPUS": "2,9", CUDA: "1"}, [1]), ({"SLURM_JOB_GPUS": "2,3", CUDA: UUIDS[1]}, [1]),
    ({"SLURM_JOB_GPUS": "0,1,2", "SLURM_STEP_GPUS": "2", CUDA: "0"}, [2]),
])  # fmt: skip
def test_variables_of_the_vendor_of_containers_and_of_slurm_select_gpus(env, expected):
    assert visible(make_amd_gpus() if ROCR in env else make_nvidia_gpus(), env) == expected


@pytest.mark.parametrize(("env", "expected", "written"), [
    ({CUDA: "2,0"}, [2, 0], {CUDA: ["2", "0"]}), ({HIP: "1", CUDA: "0"}, [1], {HIP: ["1"]}),
    ({ROCR: "3,1", HIP: "3"}, [], {}), ({HIP: ""}, [0, 1, 2, 3], {ROCR: [*ROCM_UUIDS[:4]]}),
    ({ORDINAL: "3,2"}, [3, 2], {HIP: ["3", "2"], ORDINAL: ["3", "2"]}),
    # Slurm sets both to equal numbers
    ({ROCR: "2,3", ORDINAL: "2,3"}, [2, 3], {ROCR: [ROCM_UUIDS[2], ROCM_UUIDS[3]]}),
    ({HIP: "0,3", ORDINAL: "3,2"}, [3], {HIP: ["3"], ORDINAL: ["3"]}),
    ({ZE: ""}, [0, 1, 2, 3], {ZE: ["0", "1", "2", "3"]}),
    ({ZE: "2,0"}, [0, 2], {ZE: ["0", "2"]}),  # a filter: its order has no meaning
    ({ZE: "1.0,1.1,3.0"}, [1, 3], {ZE: ["1.0,1.1", "3.0"]}), ({ZE: "9"}, [], {}),
])  # fmt: skip
def test_variables_that_count_what_rocr_has_left_or_that_filter(env, expected, written):
    gpus = make_intel_gpus() if ZE in env else make_amd_gpus()
    assert visible(gpus, env) == expected
    assert {name: [*own.values()] for name, own in words(gpus, env).items()} == written


def test_amd_gpus_are_named_by_uuids_or_in_the_order_of_the_driver():
    shared = tuple(gpu.replace(uuid=ROCM_UUIDS[0]) for gpu in make_amd_gpus(2))  # partitions
    assert words(shared) == {ROCR: {0: "0", 1: "1"}}
    reverse = tuple(gpu.replace(ordinal=3 - gpu.index) for gpu in make_amd_gpus())
    assert visible(reverse, {ROCR: "0,1"}) == [3, 2]
    unknown = make_amd_gpus(2, with_uuids=False)
    unknown = tuple(gpu.replace(ordinal=None, product=str(gpu.index)) for gpu in unknown)
    assert [visible(unknown, env) for env in ({ROCR: "0"}, {HIP: "0"}, {})] == [[], [], [0, 1]]
    assert "UUIDs" in remark(unknown, {ROCR: "0"})


def test_gpus_of_intel_with_tiles_need_whole_gpus_and_cuda_visible_devices_is_nvidias_before_amds():
    gpus = make_intel_gpus(2, product="0bd5")
    assert visible(gpus, {ZE: "1"}) == []
    assert "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE" in remark(gpus, {ZE: "1"})
    assert visible(gpus, {ZE: "1", "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}) == [1]
    assert (visible(gpus, {}), words(gpus)) == ([0, 1], {})
    gpus = (make_gpu(0, uuid=UUIDS[0]), make_amd_gpus(1)[0].replace(index=1, address="0000:21:00.0"))
    assert [visible(gpus, {CUDA: text}) for text in ("0", "")] == [[0, 1], [1]]


MACHINE = make_machine(Shape(packages=4, cores=4))
OWN = {"OMPBIND_RANK_DEVICES", "OMPBIND_NICS"}


def planned(devices, given, env, **options):
    """A plan for as many ranks as there are groups of devices in `given`."""
    seen = find_visible_devices(devices, env)
    kinds = tuple(dict.fromkeys(device.kind for group in given for device in group))
    request = Request(ranks=len(given), visible=seen, **options)
    plan = make_plan(MACHINE.replace(devices=tuple(devices)), request)
    pairs = zip(plan.placements, given, strict=True)
    placements = tuple(placement.replace(devices=tuple(group)) for placement, group in pairs)
    return plan.replace(placements=placements, request=request.replace(devices=kinds))


def variables(devices, given, env=(), *, keep_env=False, added=(), **options):
    plan = planned(devices, given, dict(env), **options)
    spec = RunSpec(argv=(), run_id="run", base=dict(env), keep_env=keep_env, added_variables=added)
    made = [make_variables(plan, identity, spec) for identity in make_identities(len(plan.placements))]
    names = (*VENDOR_VARIABLES, *OWN)
    return [{name: own[name] for name in names if name in own} for own in made]


def one_each(devices):
    return [[device] for device in devices]


@pytest.mark.parametrize(("gpus", "env", "name", "expected"), [
    (make_nvidia_gpus(2), {}, CUDA, UUIDS[:2]), (make_amd_gpus(2), {ROCR: "1,0"}, ROCR, ROCM_UUIDS[:2]),
    (make_nvidia_gpus(2), {CUDA: "1,0"}, CUDA, UUIDS[:2]),
    (make_nvidia_gpus(2, with_uuids=False), {CUDA: "1,0"}, CUDA, ("0", "1")),
    (make_nvidia_gpus(2, with_uuids=False), {}, CUDA, ("0", "1")),
    (make_amd_gpus(2), {ROCR: "1,0", HIP: "0,1"}, HIP, ("1", "0")),
    (make_amd_gpus(2), {CUDA: "1,0"}, CUDA, ("0", "1")),
    (make_intel_gpus(2), {ZE: "0.0,1.0,1.1"}, ZE, ("0.0", "1.0,1.1")),
])  # fmt: skip
def test_gpus_are_given_by_uuids_or_by_the_last_variable_that_counts(gpus, env, name, expected):
    made = variables(gpus, one_each(gpus), env)
    assert tuple(own[name] for own in made) == expected
    assert [own["OMPBIND_RANK_DEVICES"] for own in made] == ["gpu:0", "gpu:1"]
    assert all(own.keys() == {name, *OWN} for own in made)


def test_a_rank_with_a_gpu_of_one_vendor_sees_none_of_another_and_hip_finds_its_own_beside_nvidias():
    gpus = (make_gpu(0, uuid=UUIDS[0]), *(gpu.replace(index=gpu.index + 1) for gpu in make_amd_gpus(2)))
    first, second = variables(gpus, one_each(gpus[:2]))
    assert (first[CUDA], first[ROCR]) == (UUIDS[0], "")
    assert (second[CUDA], second[ROCR]) == ("", ROCM_UUIDS[0])
    (made,) = variables(gpus, [gpus])
    assert made[CUDA] == UUIDS[0], "HIP would read it"
    assert made[ROCR] == f"{ROCM_UUIDS[0]},{ROCM_UUIDS[1]}"
    assert made[HIP] == "0,1", "positions among the GPUs of ROCR_VISIBLE_DEVICES"


def test_warnings_of_gpus_without_words_and_of_variables_of_the_user():
    assert variables(MIXED, one_each(MIXED))[0].keys() == OWN
    gpus, user = make_nvidia_gpus(2), ((CUDA, "0"),)
    assert variables(gpus, one_each(gpus), added=user)[1][CUDA] == "0"
    overridden = planned(gpus, one_each(gpus), {}, user_variables=user)
    for plan, code, text in (
        (planned(MIXED, one_each(MIXED), {}), "devices-visible", "ranks get no CUDA_VISIBLE_DEVICES"),
        (overridden, "devices-overridden", f"{CUDA}=0 (from --env"),
    ):
        (note,) = [note for note in explain(plan) if note.code == code]
        assert note.warning
        assert note.text.startswith(text)


def test_only_variables_of_outer_ranks_are_removed_where_ranks_get_no_variables_of_devices():
    gpus = make_nvidia_gpus(2)
    env = {"OMPBIND_RANK_DEVICES": "gpu:7", "OMPBIND_NICS": "mlx5_0", CUDA: "0,1"}
    kept = variables(gpus, one_each(gpus), env, keep_env=True)
    assert kept[1] == {"OMPBIND_RANK_DEVICES": "gpu:1", "OMPBIND_NICS": None}
    assert variables(gpus, [[]], env) == [{"OMPBIND_RANK_DEVICES": None, "OMPBIND_NICS": None}]
    assert variables(gpus, [[]]) == [{}]
    spec = RunSpec(argv=("true",), run_id="run", base=env)
    (unbound,) = make_unbound_commands([1], spec, MACHINE.allowed)
    assert unbound.env[CUDA] == "0,1"
    assert "OMPBIND_RANK_DEVICES" not in unbound.env


NICS = (make_nic(0, "mlx5_0", "ib0"), make_nic(1, "mlx5_10"), make_nic(2, network="eth0"))


def test_network_interfaces_have_the_names_of_their_drivers_and_words_the_order_of_the_variable():
    made = variables(NICS, [NICS[:2], NICS[1:]])
    assert [rank["OMPBIND_NICS"] for rank in made] == ["mlx5_0,mlx5_10", "mlx5_10,eth0"]
    gpus = make_nvidia_gpus(4, with_uuids=False)
    made = variables((*NICS, *gpus), [[gpus[0], gpus[2]], [gpus[1], gpus[3]]], {CUDA: "3,2,1,0"})
    assert [(own["OMPBIND_NICS"], own[CUDA]) for own in made] == [(None, "2,0"), (None, "3,1")]


ITEMS = st.sampled_from(
    ["0", "1", "2", "3", "4", "-1", "", "x", "GPU-", "GPU-4", "GPU-44", "GPU-5555", "MIG-1", "0.1", UUIDS[3]]
)
TEXTS = st.lists(ITEMS, max_size=5).map(",".join)
NAMES = (*VENDOR_VARIABLES, "NVIDIA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
ENVIRONMENTS = st.dictionaries(st.sampled_from(NAMES), TEXTS)


@given(ENVIRONMENTS, st.booleans(), st.sampled_from([make_nvidia_gpus, make_amd_gpus, make_intel_gpus]))
def test_ranks_get_only_inherited_words_or_uuids_and_no_word_twice(env, has_uuids, make):
    gpus = make() if make is make_intel_gpus else make(with_uuids=has_uuids)
    found = find_visible_devices(gpus, env).devices
    assert len(set(found)) == len(found)
    assert {word.device for word in find_visible_devices(gpus, env).words} <= {gpu.name for gpu in found}
    seen = {}
    for own in variables(gpus, one_each(found), env) if found else ():
        for name in VENDOR_VARIABLES:
            seen.setdefault(name, []).extend(own[name].split(",") if name in own else [])
    for name, words in seen.items():
        assert len(words) == len(set(words)), name
        if env.get(name):
            assert set(words) <= {item.strip() for item in env[name].split(",")} | {gpu.uuid for gpu in gpus}
