"""Which devices are visible: the rules of each variable, as its vendor describes them."""

import pytest
from hypothesis import strategies as st

from ompbind.planning.devices.visible import VENDOR_VARIABLES, find_visible_devices
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
    """The numbers of the visible GPUs, in their order."""
    return [device.index for device in find_visible_devices(gpus, env).devices]


def words(gpus, env=()):
    """The words of the visible GPUs, by variable."""
    found = {}
    for word in find_visible_devices(gpus, dict(env)).words:
        found.setdefault(word.variable, {})[int(word.device.removeprefix("gpu:"))] = word.word
    return found


def remark(gpus, env=()):
    return " ".join(find_visible_devices(gpus, dict(env)).remarks)


@pytest.mark.parametrize(("text", "expected"), {
    None: [0, 1, 2, 3], "": [], "0,1,0": [], " 3 , 1 ": [3, 1],
    "0,2,-1,1": [0, 2],  # the example of the CUDA Programming Guide
    f"{UUIDS[3]},{UUIDS[0]}": [3, 0], "GPU-66,GPU-5": [2, 1], "GPU-5555,0": [1],
    "GPU-": [],  # not unambiguous
    "gpu-4444": [], "MIG-12345678": [],
}.items())  # fmt: skip
def test_cuda_visible_devices(text, expected):
    assert visible(make_nvidia_gpus(), {} if text is None else {CUDA: text}) == expected


def test_words_of_nvidia_gpus_are_uuids_where_they_are_known_else_the_words_that_were_inherited():
    known, unknown = make_nvidia_gpus(), make_nvidia_gpus(with_uuids=False)
    assert words(known, {CUDA: "3,1"}) == {CUDA: {3: UUIDS[3], 1: UUIDS[1]}}
    assert words(unknown, {CUDA: "3,1"}) == {CUDA: {3: "3", 1: "1"}}
    assert words(unknown) == {CUDA: {n: str(n) for n in range(4)}}


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
    """MIG instances, each of the GPU with a number."""
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
    # the container runtime of NVIDIA, and CUDA counts what the container has
    ({"NVIDIA_VISIBLE_DEVICES": "void"}, [0, 1, 2, 3]), ({"NVIDIA_VISIBLE_DEVICES": "none"}, []),
    ({"NVIDIA_VISIBLE_DEVICES": "9"}, [0, 1, 2, 3]), ({"NVIDIA_VISIBLE_DEVICES": "2,3", CUDA: "1"}, [3]),
    # Slurm with ConstrainDevices: numbers within the job; without it: numbers on the node
    ({"SLURM_JOB_GPUS": "2,3", CUDA: "1"}, [3]), ({"SLURM_JOB_GPUS": "2,3", CUDA: "3"}, [3]),
    ({"SLURM_JOB_GPUS": "2,9", CUDA: "1"}, [1]), ({"SLURM_JOB_GPUS": "2,3", CUDA: UUIDS[1]}, [1]),
    ({"SLURM_JOB_GPUS": "0,1,2", "SLURM_STEP_GPUS": "2", CUDA: "0"}, [2]),
])  # fmt: skip
def test_containers_and_slurm_jobs(env, expected):
    assert visible(make_nvidia_gpus(), env) == expected


@pytest.mark.parametrize(("text", "expected"), {
    None: [0, 1, 2, 3], "": [], f"0,{ROCM_UUIDS[3]}": [0, 3], "gpu-5555": [1],
}.items())  # fmt: skip
def test_rocr_visible_devices(text, expected):
    assert visible(make_amd_gpus(), {} if text is None else {ROCR: text}) == expected


@pytest.mark.parametrize(("env", "expected", "written"), [
    ({CUDA: "2,0"}, [2, 0], {CUDA: ["2", "0"]}), ({HIP: "1", CUDA: "0"}, [1], {HIP: ["1"]}),
    ({ROCR: "3,1", HIP: "3"}, [], {}), ({HIP: ""}, [0, 1, 2, 3], {ROCR: [*ROCM_UUIDS[:4]]}),
    ({ORDINAL: "3,2"}, [3, 2], {HIP: ["3", "2"], ORDINAL: ["3", "2"]}),
    # Slurm sets both to equal numbers
    ({ROCR: "2,3", ORDINAL: "2,3"}, [2, 3], {ROCR: [ROCM_UUIDS[2], ROCM_UUIDS[3]]}),
    ({HIP: "0,3", ORDINAL: "3,2"}, [3], {HIP: ["3"], ORDINAL: ["3"]}),
])  # fmt: skip
def test_variables_that_count_what_rocr_has_left(env, expected, written):
    assert visible(make_amd_gpus(), env) == expected
    assert {name: [*own.values()] for name, own in words(make_amd_gpus(), env).items()} == written


def test_amd_gpus_are_named_by_uuids_or_in_the_order_of_the_driver():
    shared = tuple(gpu.replace(uuid=ROCM_UUIDS[0]) for gpu in make_amd_gpus(2))  # partitions
    assert words(shared) == {ROCR: {0: "0", 1: "1"}}
    reverse = tuple(gpu.replace(ordinal=3 - gpu.index) for gpu in make_amd_gpus())
    assert visible(reverse, {ROCR: "0,1"}) == [3, 2]
    unknown = make_amd_gpus(2, with_uuids=False)
    unknown = tuple(gpu.replace(ordinal=None, product=str(gpu.index)) for gpu in unknown)
    assert [visible(unknown, env) for env in ({ROCR: "0"}, {HIP: "0"}, {})] == [[], [], [0, 1]]
    assert "UUIDs" in remark(unknown, {ROCR: "0"})


@pytest.mark.parametrize(("text", "expected", "written"), [
    ("", [0, 1, 2, 3], {0: "0", 1: "1", 2: "2", 3: "3"}),
    ("2,0", [0, 2], {0: "0", 2: "2"}),  # a filter: its order has no meaning
    ("1.0,1.1,3.0", [1, 3], {1: "1.0,1.1", 3: "3.0"}), ("9", [], {}),
])  # fmt: skip
def test_ze_affinity_mask(text, expected, written):
    assert visible(make_intel_gpus(), {ZE: text}) == expected
    assert words(make_intel_gpus(), {ZE: text}).get(ZE, {}) == written


def test_gpus_of_intel_with_tiles_need_whole_gpus_and_cuda_visible_devices_is_nvidias_before_amds():
    gpus = make_intel_gpus(2, product="0bd5")
    assert visible(gpus, {ZE: "1"}) == []
    assert "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE" in remark(gpus, {ZE: "1"})
    assert visible(gpus, {ZE: "1", "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}) == [1]
    assert (visible(gpus, {}), words(gpus)) == ([0, 1], {})
    gpus = (make_gpu(0, uuid=UUIDS[0]), make_amd_gpus(1)[0].replace(index=1, address="0000:21:00.0"))
    assert [visible(gpus, {CUDA: text}) for text in ("0", "")] == [[0, 1], [1]]


ITEMS = st.sampled_from(
    ["0", "1", "2", "3", "4", "-1", "", "x", "GPU-", "GPU-4", "GPU-44", "GPU-5555", "MIG-1", "0.1", UUIDS[3]]
)
TEXTS = st.lists(ITEMS, max_size=5).map(",".join)
NAMES = (*VENDOR_VARIABLES, "NVIDIA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
ENVIRONMENTS = st.dictionaries(st.sampled_from(NAMES), TEXTS)
