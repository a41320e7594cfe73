"""Which devices are visible: the rules of each variable, as its vendor describes them."""

import pytest
from hypothesis import given
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

PCI_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
MIXED = (make_gpu(0, product="2330"), make_gpu(1, product="1eb8"))
"""GPUs of two products: CUDA's own order is not known."""


def visible(gpus, **env):
    """The numbers of the visible GPUs, in their order."""
    return [device.index for device in find_visible_devices(gpus, env).devices]


def words(gpus, **env):
    """The words of the visible GPUs, by variable."""
    found = {}
    for word in find_visible_devices(gpus, env).words:
        found.setdefault(word.variable, {})[word.device] = word.word
    return found


def remark(gpus, **env):
    return " ".join(find_visible_devices(gpus, env).remarks)


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        None: [0, 1, 2, 3],
        "": [],
        "2": [2],
        "2,1": [2, 1],
        "0,2,-1,1": [0, 2],  # the example of the CUDA Programming Guide
        "-1": [],
        "NoDevFiles": [],  # Slurm: no GPU was allocated
        "0,7,1": [0],
        "0,x,1": [0],
        "0,0": [],
        "0,1,0": [],
        " 3 , 1 ": [3, 1],
        UUIDS[2]: [2],
        f"{UUIDS[3]},{UUIDS[0]}": [3, 0],
        "GPU-4444": [0],
        "GPU-66,GPU-5": [2, 1],
        "GPU-": [],  # not unambiguous
        "gpu-4444": [],
        "GPU-4444,GPU-44": [],
        "0,GPU-5555": [0],
        "GPU-5555,0": [1],
        "MIG-12345678": [],
        ",0": [],
    }.items(),
)
def test_cuda_visible_devices(text, expected):
    env = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    assert visible(make_nvidia_gpus(), **env) == expected


def test_words_of_nvidia_gpus_are_uuids_where_they_are_known_else_the_words_that_were_inherited():
    known, unknown = make_nvidia_gpus(), make_nvidia_gpus(with_uuids=False)
    inherited = {"CUDA_VISIBLE_DEVICES": "3,1"}
    assert words(known, **inherited)["CUDA_VISIBLE_DEVICES"] == {"gpu:3": UUIDS[3], "gpu:1": UUIDS[1]}
    assert words(unknown, **inherited)["CUDA_VISIBLE_DEVICES"] == {"gpu:3": "3", "gpu:1": "1"}
    assert words(unknown)["CUDA_VISIBLE_DEVICES"] == {f"gpu:{i}": str(i) for i in range(4)}


def test_an_index_of_cuda_names_a_gpu_only_if_the_order_is_known():
    assert visible(MIXED, CUDA_VISIBLE_DEVICES="1", **PCI_ORDER) == [1]
    assert visible(MIXED, CUDA_VISIBLE_DEVICES="1") == []
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in remark(MIXED, CUDA_VISIBLE_DEVICES="1")
    seen_by_cuda = tuple(gpu.replace(names=(f"cuda{1 - gpu.index}",)) for gpu in MIXED)
    assert visible(seen_by_cuda, CUDA_VISIBLE_DEVICES="1") == [0]
    assert visible(seen_by_cuda, CUDA_VISIBLE_DEVICES="1", **PCI_ORDER) == [1]


def test_gpus_without_uuids_and_order_are_visible_but_have_no_words():
    assert visible(MIXED) == [0, 1]
    assert words(MIXED) == {}
    assert "ranks get no CUDA_VISIBLE_DEVICES" in remark(MIXED)


def test_indices_count_the_gpus_that_are_accessible():
    gpus = make_nvidia_gpus()
    gpus = tuple(gpu.replace(excluded="no access") if gpu.index < 2 else gpu for gpu in gpus)
    assert visible(gpus, CUDA_VISIBLE_DEVICES="1,0") == [3, 2]
    assert visible(gpus) == [2, 3]


def test_mig_instances_are_named_by_their_uuids():
    parts = tuple(
        make_gpu(0, uuid=uuid).replace(partition=number, index=number)
        for number, uuid in enumerate(("MIG-11111111-1111", "MIG-22222222-2222"))
    )
    assert visible(parts, CUDA_VISIBLE_DEVICES="MIG-2222") == [1]
    assert visible(parts, CUDA_VISIBLE_DEVICES="0") == []
    assert "index 0 is not known (name MIG instances by" in remark(parts, CUDA_VISIBLE_DEVICES="0")


def make_instances(*numbers):
    """MIG instances without a known UUID, each of the GPU with a number."""
    return [make_gpu(number).replace(partition=i, index=i) for i, number in enumerate(numbers)]


def test_the_uuids_of_mig_instances_that_no_file_shows_reach_the_ranks():
    parts = make_instances(0, 0)
    both = {"CUDA_VISIBLE_DEVICES": "MIG-5678,MIG-1234"}
    assert visible(parts, **both) == [0, 1]
    assert words(parts, **both) == {"CUDA_VISIBLE_DEVICES": {"gpu:0": "MIG-5678", "gpu:1": "MIG-1234"}}
    only = [parts[0].replace(excluded="no access"), parts[1]]
    assert visible(only, **both) == [1]
    assert words(only, **both) == {"CUDA_VISIBLE_DEVICES": {"gpu:1": "MIG-5678"}}
    assert "CUDA ignores 'MIG-1234'" in remark(only, **both)
    assert visible(parts, CUDA_VISIBLE_DEVICES="MIG-1234,MIG-1234") == []
    assert visible([make_gpu(0)], CUDA_VISIBLE_DEVICES="MIG-1234") == []


def test_mig_instances_of_several_gpus_are_not_guessed():
    parts = make_instances(0, 0, 1)
    assert visible(parts, CUDA_VISIBLE_DEVICES="MIG-1234") == []
    assert "the instance MIG-1234 is not known" in remark(parts, CUDA_VISIBLE_DEVICES="MIG-1234")


def test_several_mig_instances_without_a_known_uuid_are_not_given_unasked():
    """CUDA would show each rank the same instance."""
    parts = make_instances(0, 0)
    assert visible(parts) == []
    assert "no file shows the UUIDs of the MIG instances gpu:0, gpu:1: set" in remark(parts)
    assert visible(parts[:1]) == [0]
    assert visible([*parts, make_gpu(2, uuid=UUIDS[0])]) == [2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", [0, 1, 2, 3]),
        ("void", [0, 1, 2, 3]),
        ("", [0, 1, 2, 3]),
        ("none", []),
        ("3,1", [1, 3]),
        (f"{UUIDS[2]}", [2]),
        ("9", [0, 1, 2, 3]),
    ],
)
def test_container_runtime_of_nvidia(text, expected):
    assert visible(make_nvidia_gpus(), NVIDIA_VISIBLE_DEVICES=text) == expected


def test_cuda_counts_what_the_container_has():
    env = {"NVIDIA_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "1"}
    assert visible(make_nvidia_gpus(), **env) == [3]


@pytest.mark.parametrize(
    ("job", "text", "expected"),
    [
        ("2,3", "0,1", [2, 3]),  # ConstrainDevices: numbers within the job
        ("2,3", "2,3", [2, 3]),  # without it: numbers on the node
        ("2,3", "1", [3]),
        ("2,3", "3", [3]),
        ("2,3", None, [2, 3]),
        ("0,1,2,3", "1", [1]),
        ("2,9", "1", [1]),
        ("2,3", UUIDS[1], [1]),
    ],
)
def test_numbers_within_a_slurm_job(job, text, expected):
    env = {"SLURM_JOB_GPUS": job} | ({} if text is None else {"CUDA_VISIBLE_DEVICES": text})
    assert visible(make_nvidia_gpus(), **env) == expected


def test_the_step_of_slurm_counts_before_the_job():
    env = {"SLURM_JOB_GPUS": "0,1,2", "SLURM_STEP_GPUS": "2", "CUDA_VISIBLE_DEVICES": "0"}
    assert visible(make_nvidia_gpus(), **env) == [2]


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        None: [0, 1, 2, 3],
        "": [],
        "2,0": [2, 0],
        f"0,{ROCM_UUIDS[3]}": [0, 3],
        "GPU-5": [1],
        "gpu-5555": [1],
        "GPU-": [],
        f"{ROCM_UUIDS[3]}0": [],
        "1,1,2": [1],
        "1,-1,2": [1],
        "1,9,2": [1],
        " 3": [3],
    }.items(),
)
def test_rocr_visible_devices(text, expected):
    env = {} if text is None else {"ROCR_VISIBLE_DEVICES": text}
    assert visible(make_amd_gpus(), **env) == expected


@pytest.mark.parametrize(
    ("env", "expected", "written"),
    [
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0], {"HIP_VISIBLE_DEVICES": ["2", "0"]}),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0], {"CUDA_VISIBLE_DEVICES": ["2", "0"]}),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, [1], {"HIP_VISIBLE_DEVICES": ["1"]}),
        (
            {"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "1"},
            [1],
            {"HIP_VISIBLE_DEVICES": ["1"]},
        ),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "3"}, [], {}),
        ({"HIP_VISIBLE_DEVICES": "-1"}, [], {}),
        ({"HIP_VISIBLE_DEVICES": "1,x,2"}, [1], {"HIP_VISIBLE_DEVICES": ["1"]}),
        (
            {"GPU_DEVICE_ORDINAL": "3,2"},
            [3, 2],
            {"HIP_VISIBLE_DEVICES": ["3", "2"], "GPU_DEVICE_ORDINAL": ["3", "2"]},
        ),
        (
            {"ROCR_VISIBLE_DEVICES": "2,3", "GPU_DEVICE_ORDINAL": "2,3"},  # Slurm sets both to equal numbers
            [2, 3],
            {"ROCR_VISIBLE_DEVICES": [ROCM_UUIDS[2], ROCM_UUIDS[3]]},
        ),
        (
            {"HIP_VISIBLE_DEVICES": "0,3", "GPU_DEVICE_ORDINAL": "3,2"},
            [3],
            {"HIP_VISIBLE_DEVICES": ["3"], "GPU_DEVICE_ORDINAL": ["3"]},
        ),
    ],
)
def test_variables_that_count_what_rocr_has_left(env, expected, written):
    gpus = make_amd_gpus()
    assert visible(gpus, **env) == expected
    assert {name: list(items.values()) for name, items in words(gpus, **env).items()} == written


def test_an_empty_variable_of_hip_hides_nothing():
    assert visible(make_amd_gpus(2), HIP_VISIBLE_DEVICES="") == [0, 1]


def test_words_of_amd_gpus_are_uuids_unless_partitions_share_them():
    assert words(make_amd_gpus(2))["ROCR_VISIBLE_DEVICES"] == {"gpu:0": ROCM_UUIDS[0], "gpu:1": ROCM_UUIDS[1]}
    shared = tuple(gpu.replace(uuid=ROCM_UUIDS[0]) for gpu in make_amd_gpus(2))
    assert words(shared)["ROCR_VISIBLE_DEVICES"] == {"gpu:0": "0", "gpu:1": "1"}


def test_indices_of_rocm_follow_the_order_of_its_driver():
    gpus = tuple(gpu.replace(ordinal=3 - gpu.index) for gpu in make_amd_gpus())
    assert visible(gpus, ROCR_VISIBLE_DEVICES="0,1") == [3, 2]


def test_without_the_order_of_rocm_an_index_names_no_gpu():
    gpus = tuple(
        gpu.replace(ordinal=None, product=str(gpu.index)) for gpu in make_amd_gpus(2, with_uuids=False)
    )
    assert visible(gpus, ROCR_VISIBLE_DEVICES="0") == []
    assert "UUIDs" in remark(gpus, ROCR_VISIBLE_DEVICES="0")
    assert visible(gpus, HIP_VISIBLE_DEVICES="0") == []
    assert visible(gpus) == [0, 1]


@pytest.mark.parametrize(
    ("env", "expected", "written"),
    [
        ({}, [0, 1, 2, 3], {0: "0", 1: "1", 2: "2", 3: "3"}),
        ({"ZE_AFFINITY_MASK": ""}, [0, 1, 2, 3], {0: "0", 1: "1", 2: "2", 3: "3"}),
        ({"ZE_AFFINITY_MASK": "2,0"}, [0, 2], {0: "0", 2: "2"}),  # a filter: its order has no meaning
        ({"ZE_AFFINITY_MASK": "1.0,1.1,3.0"}, [1, 3], {1: "1.0,1.1", 3: "3.0"}),
        ({"ZE_AFFINITY_MASK": "9"}, [], {}),
    ],
)
def test_ze_affinity_mask(env, expected, written):
    gpus = make_intel_gpus()
    assert visible(gpus, **env) == expected
    named = words(gpus, **env).get("ZE_AFFINITY_MASK", {})
    assert named == {f"gpu:{number}": word for number, word in written.items()}


def test_gpus_with_tiles_have_known_numbers_only_if_whole_gpus_are_counted():
    gpus = make_intel_gpus(2, product="0bd5")
    assert visible(gpus, ZE_AFFINITY_MASK="1") == []
    assert "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE" in remark(gpus, ZE_AFFINITY_MASK="1")
    assert visible(gpus, ZE_AFFINITY_MASK="1", ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE") == [1]
    assert visible(gpus) == [0, 1]
    assert words(gpus) == {}


def test_on_a_machine_with_both_vendors_cuda_visible_devices_is_nvidias():
    gpus = (make_gpu(0, uuid=UUIDS[0]), make_amd_gpus(1)[0].replace(index=1, address="0000:21:00.0"))
    assert visible(gpus, CUDA_VISIBLE_DEVICES="0") == [0, 1]
    assert visible(gpus, CUDA_VISIBLE_DEVICES="") == [1]


def test_excluded_devices_are_never_visible():
    nics = (make_nic(0, "mlx5_0"), make_nic(1, "mlx5_1").replace(excluded="no cable"))
    gpus = tuple(gpu.replace(excluded="no access") for gpu in make_nvidia_gpus(2))
    assert [device.name for device in find_visible_devices((*gpus, *nics), {}).devices] == ["nic:0"]


ITEMS = st.sampled_from(
    ["0", "1", "2", "3", "4", "-1", "", "x", "GPU-", "GPU-4", "GPU-44", "GPU-5555", "MIG-1", "0.1", UUIDS[3]]
)
TEXTS = st.lists(ITEMS, max_size=5).map(",".join)
NAMES = (*VENDOR_VARIABLES, "NVIDIA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
ENVIRONMENTS = st.dictionaries(st.sampled_from(NAMES), TEXTS)


@given(ENVIRONMENTS, st.booleans(), st.sampled_from([make_nvidia_gpus, make_amd_gpus]))
def test_visible_devices_are_devices_of_the_machine_and_no_gpu_has_the_word_of_another(env, has_uuids, make):
    gpus = make(with_uuids=has_uuids)
    found = find_visible_devices(gpus, env)
    assert set(found.devices) <= set(gpus)
    assert len(set(found.devices)) == len(found.devices)
    assert {word.device for word in found.words} <= {gpu.name for gpu in found.devices}
    for variable in {word.variable for word in found.words}:
        own = [word.word for word in found.words if word.variable == variable]
        assert len(set(own)) == len(own)
        uuids = {gpu.uuid for gpu in gpus}
        if env.get(variable):
            assert set(own) <= {item.strip() for item in env[variable].split(",")} | uuids


@given(TEXTS, st.booleans())
def test_inherited_words_keep_their_order(text, has_uuids):
    gpus = make_nvidia_gpus(with_uuids=has_uuids)
    found = find_visible_devices(gpus, {"CUDA_VISIBLE_DEVICES": text})
    named = [word.word for word in found.words]
    items = [item.strip() for item in text.split(",")]
    if not has_uuids:
        assert named == items[: len(named)]
    assert [word.device for word in found.words] == [gpu.name for gpu in found.devices]
