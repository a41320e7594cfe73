"""Which ranks get which devices and CPUs, on machines with devices by hand."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import OmpbindError, PlanError
from ompbind.machine.devices import Device, DeviceKind, number_devices
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.metrics import measure_plan
from tests.machines import Shape, make_machine, with_distances
from tests.planning.test_planner import plan_on as plan
from tests.planning.test_planner import texts_of

GPU, NIC = (DeviceKind.GPU,), (DeviceKind.NIC,)
BOTH = (*GPU, *NIC)

SNC = Shape(packages=2, nodes=2, cores=4, smt=2)
"""CPUs 0-3, 4-7, 8-11, 12-15 are the first siblings of four NUMA nodes in two packages."""


def device(address, cpus, kind=DeviceKind.GPU, **changes):
    """A device near the first siblings of SNC in a list, and near the second ones."""
    near = CpuSet.from_list(cpus)
    both = CpuSet([*near, *(cpu + 16 for cpu in near)])
    return Device(kind=kind, index=0, address=f"0000:{address}", cpus=both, **changes)


def machine_with(*devices, **changes):
    return make_machine(SNC, **changes).replace(devices=number_devices(devices))


def make_gpus(*near):
    return tuple(device(f"0{number}:00.0", cpus) for number, cpus in enumerate(near, 1))


DISTANCES = ((10, 12, 32, 32), (12, 10, 32, 32), (32, 32, 10, 12), (32, 32, 12, 10))
"""Nodes are nearer within a package."""

FOUR = make_gpus("12-15", "8-11", "0-3", "4-7")


def rows(made):
    """The devices and the CPUs of each rank, as "gpu:0 0-3; gpu:1,gpu:2 4-7"."""
    return "; ".join(f"{','.join(map(str, p.devices))} {p.cpuset}" for p in made.placements)


EACH = "gpu:0 12-15; gpu:1 8-11; gpu:2 0-3; gpu:3 4-7"
NICS = (
    device("11:00.0", "0-3", DeviceKind.NIC, rdma_names=("mlx5_0",)),
    device("12:00.0", "8-11", DeviceKind.NIC, rdma_names=("mlx5_1",)),
    device("13:00.0", "0-3", DeviceKind.NIC, names=("eth0",)),
)


@pytest.mark.parametrize(("devices", "options", "expected"), [
    (FOUR, {"ranks": "auto"}, EACH), (FOUR, {"ranks": 2}, "gpu:0,gpu:1 8-15; gpu:2,gpu:3 0-7"),
    (FOUR, {"ranks": 3}, "gpu:0,gpu:1 8-15; gpu:2 0-3; gpu:3 4-7"),
    (FOUR, {"ranks": 4, "reserve": 1}, "gpu:0 12-14; gpu:1 8-10; gpu:2 0-2; gpu:3 4-6"),
    (FOUR, {"ranks": 2, "mask": "0-3|8-11"}, "gpu:0,gpu:1 0-3; gpu:2,gpu:3 8-11"),
    (FOUR, {"ranks": 2, "mask": "none", "service_total": 1}, "gpu:0,gpu:1 0-31; gpu:2,gpu:3 0-31"),
    (FOUR, {"ranks": 6, "share_devices": True},
     "gpu:0 12-13; gpu:0 14-15; gpu:1 8-11; gpu:2 0-1; gpu:2 2-3; gpu:3 4-7"),
    (FOUR, {"ranks": 4, "share_devices": True, "devices_per_rank": 2},
     "gpu:0,gpu:1 8-11; gpu:0,gpu:1 12-15; gpu:2,gpu:3 0-3; gpu:2,gpu:3 4-7"),
    (FOUR, {"ranks": 4, "near": ("gpu:2", "gpu:3")}, "gpu:0 2-3; gpu:1 6-7; gpu:2 0-1; gpu:3 4-5"),
    (FOUR, {"ranks": 1, "outside_ranks": 3, "local_ranks": (2,)}, "gpu:2 0-15"),
    (FOUR, {"ranks": 4, "devices": "auto"}, EACH),
    (FOUR, {"ranks": 5, "devices": "auto", "cores": 1}, " 0;  4;  6;  8;  12"),
    (FOUR, {"ranks": "auto", "devices": "auto", "devices_per_rank": 5}, " 0-3;  4-7;  8-11;  12-15"),
    # larger groups of devices are where their domains are small
    (make_gpus(*["0-3"] * 2, *["4-7"] * 3), {"ranks": 2}, "gpu:0,gpu:1 0-3; gpu:2,gpu:3,gpu:4 4-7"),
    # ranks near a node leave other cores of the package to a rank near the package
    (make_gpus(*["4-7"] * 3, "0-7"), {"ranks": 4}, "gpu:0 4-5; gpu:1 6; gpu:2 7; gpu:3 0-3"),
    # of six ranks, two share the GPU near node 0, where most cores are left for each
    (make_gpus("0-3", *["4-7"] * 3), {"ranks": 6, "share_devices": True},
     "gpu:0 0-1; gpu:0 2-3; gpu:1 4; gpu:2 5; gpu:2 6; gpu:3 7"),
    # a rank with too few near cores gets all near cores and few others
    (make_gpus("4-7"), {"ranks": 1, "cores": 5}, "gpu:0 0,4-7"),
    # no CPU near is known
    (make_gpus("", "", "", ""), {"ranks": 4}, "gpu:0 0-3; gpu:1 4-7; gpu:2 8-11; gpu:3 12-15"),
    # ranks with distant devices prefer cores near their own
    (make_gpus("12-15", "0-3", "8-11", "4-7"), {"ranks": 2}, "gpu:0,gpu:1 0-3,12-15; gpu:2,gpu:3 4-11"),
    # interfaces with RDMA, and others if there are none
    (FOUR + NICS, {"ranks": 2, "devices": BOTH}, "gpu:0,gpu:1,nic:1 8-15; gpu:2,gpu:3,nic:0 0-7"),
    (FOUR + NICS, {"ranks": 2, "devices": NIC}, "nic:0 0-3; nic:1 8-11"),
    (FOUR + NICS, {"ranks": 4, "devices": BOTH, "share_devices": True},
     "gpu:0,nic:1 12-15; gpu:1,nic:1 8-11; gpu:2,nic:0 0-3; gpu:3,nic:0 4-7"),
    (NICS[2:], {"ranks": 1, "devices": NIC}, "nic:0 0-3"),
])  # fmt: skip
def test_ranks_get(devices, options, expected):
    machine = machine_with(*devices)
    if NICS[2] in devices:
        machine = with_distances(machine, DISTANCES)
    assert rows(plan(machine, **{"devices": GPU, **options})) == expected


def test_too_few_cores_near_a_device_widen_to_the_package_and_a_note_names_the_ranks():
    made = plan(machine_with(device("01:00.0", "4-7")), ranks=5, devices=GPU, share_devices=True)
    assert rows(made) == "gpu:0 0-1; gpu:0 2-3; gpu:0 4-5; gpu:0 6; gpu:0 7"
    text = "ranks 0-1 have CPUs 0-3, not near gpu:0 (CPUs 4-7,20-23): too few usable cores are near"
    assert texts_of(made, "device-distance") == [text]


RING = ((10, 32, 20, 12), (32, 10, 12, 20), (20, 12, 10, 32), (12, 20, 32, 10))


@pytest.mark.parametrize(("distances", "allowed", "options", "expected", "last"), [
    (DISTANCES, "0-3,8-15", {"ranks": 4, "devices": GPU},
     "gpu:0 12-15; gpu:1 8-11; gpu:2 0-1; gpu:3 2-3", "gpu:3 (CPUs 4-7,20-23): rank 3 has CPUs 2-3"),
    (DISTANCES, "8-15,24-31", {"ranks": 4, "devices": GPU},  # gpu:2 is not near either
     "gpu:0 12-13; gpu:1 8-9; gpu:2 10-11; gpu:3 14-15", "gpu:3 (CPUs 4-7,20-23): rank 3 has CPUs 14-15"),
    (RING, "4-15", {"near": ("gpu:2",)}, " 12-15", "gpu:2 (CPUs 0-3,16-19): CPUs 12-15 are the nearest"),
])  # fmt: skip
def test_nearest_node_if_no_near_cpu_is_allowed(distances, allowed, options, expected, last):
    machine = with_distances(machine_with(*FOUR, allowed=CpuSet.from_list(allowed)), distances)
    made = plan(machine, **options)
    texts = texts_of(made, "device-far")
    assert rows(made) == expected
    assert texts[-1] == f"no allowed CPU is near {last}"
    assert [note.text for note in made.notes if note.warning] == texts
    with pytest.raises(PlanError) as caught:
        plan(machine, **options, strict=True)
    assert caught.value.message == "; ".join(texts)


def test_idle_cores_and_devices_are_named_once():
    options = {"ranks": 2, "devices": GPU, "devices_per_rank": 1}
    made = plan(machine_with(*FOUR), **options)
    (text,) = texts_of(made, "devices-idle")
    assert text.startswith("8 cores idle (CPUs 0-7,16-23): near no device of a rank; --devices none")
    assert not texts_of(made, "idle")
    made = plan(machine_with(*FOUR), cores=1, **options)
    (far,), (near,) = texts_of(made, "devices-idle"), texts_of(made, "idle")
    assert far == "8 cores idle (CPUs 0-7,16-23): near no device of a rank", "-c 1 decides the cores"
    assert near.startswith("6 cores idle (CPUs 9-11,13-15,")
    isolated = machine_with(*FOUR).replace(isolated=CpuSet.from_list("0-3,16-19"))
    assert texts_of(plan(isolated, **options), "devices-idle")[0].startswith("4 cores idle (CPUs 4-7,20-23)")
    # devices have not decided the CPUs
    outside = {"ranks": 1, "outside_ranks": 3, "local_ranks": (0,), "strategy": "compact", "threads": 1}
    for others in ({"mask": "0-1|8-11"}, outside):
        made = plan(machine_with(*FOUR), **{**options, **others})
        assert texts_of(made, "idle")
        assert not texts_of(made, "devices-idle")


@pytest.mark.parametrize(("options", "rank", "far"), [
    ({"ranks": 2, "mask": "0-3|4-7"}, 0, "gpu:0 and gpu:1 (CPUs 8-15,24-31)"),
    ({"ranks": 1, "outside_ranks": 3, "local_ranks": (1,), "mask": "0-3"}, 1, "gpu:1 (CPUs 8-11,24-27)"),
])  # fmt: skip
def test_ranks_with_cpus_of_their_own_are_warned(options, rank, far):
    made = plan(machine_with(*FOUR), devices=GPU, **options)
    texts = [note.text for note in made.notes if note.warning]
    assert texts == [f"rank {rank} has CPUs 0-3, not near {far}"]


def test_a_rank_gets_no_interface_farther_than_its_nearest():
    """Two ranks and four interfaces: three are near node 0, where the second rank has no GPU."""
    near = ("0-3", "0-3", "0-3", "8-11")
    nics = [device(f"1{i}:00.0", cpus, DeviceKind.NIC) for i, cpus in enumerate(near)]
    machine = with_distances(machine_with(*make_gpus("0-3", "8-11"), *nics), DISTANCES)
    assert rows(plan(machine, ranks=2, devices=BOTH)) == "gpu:0,nic:0,nic:1 0-3; gpu:1,nic:3 8-11"
    one_each = plan(machine, ranks=2, devices=BOTH, devices_per_rank=1)
    assert [len(placement.devices) for placement in one_each.placements] == [2, 2]


def test_virtual_functions_count_if_their_physical_function_is_not_usable():
    physical = device("11:00.0", "0-3", DeviceKind.NIC)
    virtual = [device(f"11:00.{i}", "0-3", DeviceKind.NIC, physical="0000:11:00.0") for i in (1, 2)]
    assert rows(plan(machine_with(physical, *virtual), devices=NIC)) == "nic:0 0-3"
    unusable = physical.replace(excluded="no driver")
    assert rows(plan(machine_with(unusable, *virtual), devices=NIC)) == "nic:1,nic:2 0-3"
    # a device without a list of CPUs is near those of its node
    of_node = unusable.replace(cpus=CpuSet(), node=2, excluded="")
    assert rows(plan(machine_with(of_node), devices=NIC)) == "nic:0 8-11"


@pytest.mark.parametrize(("options", "message", "hint"), [
    ({"ranks": 5}, "5 ranks need 5 GPUs, but 4 are visible", "at most 4 ranks, or"),
    ({"ranks": 3, "devices_per_rank": 2}, "3 ranks with 2 GPUs each need 6 GPUs", "at most 2 ranks"),
    ({"ranks": "auto", "devices_per_rank": 5}, "1 rank with 5 GPUs each needs 5 GPUs", "4 devices per rank"),
    ({"ranks": 1, "devices": NIC}, "no NIC is visible", "'ompbind topo' lists"),
    ({"ranks": 4, "strategy": "nodes"}, "--strategy nodes and --devices", "balanced, compact, spread"),
    ({"ranks": 4, "cores": 5}, "need 20 cores, but 16 are usable", "at most 3 ranks"),
    ({"ranks": 1, "near": ("gpu:4",)}, "--near gpu:4: this machine has no", "gpu:0 (0000:01:00.0)"),
    ({"ranks": 1, "near": ("gpu:0",), "mask": "0-3"}, "names no CPU near gpu:0", "12-15,28-31"),
    ({"ranks": "auto", "outside_ranks": 3}, "does not have 4 numbers below 7", "its own local rank"),
    ({"ranks": 2, "outside_ranks": 1, "local_ranks": (1, 3)}, "have 2 numbers below 3", "its own local rank"),
])  # fmt: skip
def test_refused(options, message, hint):
    with pytest.raises(OmpbindError) as caught:
        plan(machine_with(*FOUR), **{"devices": GPU, **options})
    assert message in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize("word", ["gpu:2", "card2", "0000:03:00.0", "03:00.0", "GPU-22", "gpu-2222"])
def test_near_names_a_device_and_keeps_devices_of_ranks(word):
    named = device("03:00.0", "0-3", names=("card2", "renderD130"), uuid="GPU-2222-3333")
    machine = machine_with(FOUR[0], FOUR[1], named, FOUR[3].replace(uuid="GPU-2111"))
    assert rows(plan(machine, ranks=2, near=(word,))) == " 0-1;  2-3"


def test_near_names_one_device_with_known_cpus_of_any_kind():
    display = device("01:00.0", "4-7", DeviceKind.DISPLAY, names=("card0",))
    assert rows(plan(machine_with(display), near=("card0",))) == " 4-7"
    several = machine_with(*(gpu.replace(uuid=f"GPU-1{number}") for number, gpu in enumerate(FOUR)))
    for machine, word, message in (
        (machine_with(device("01:00.0", "")), "gpu:0", "the CPUs near gpu:0 are not known"),
        (several, "GPU-1", "several devices have this name \\(gpu:0, gpu:1, gpu:2, gpu:3\\)"),
    ):
        with pytest.raises(PlanError, match=message):
            plan(machine, near=(word,))


def test_auto_without_devices_says_why():
    made = plan(machine_with(*NICS), ranks=2, devices="auto")
    assert "no GPU is visible" in texts_of(made, "devices-none")[0]
    assert not any(note.warning for note in made.notes)
    made = plan(machine_with(*FOUR), ranks=5, devices="auto")
    assert "4 GPUs are visible, but 5 ranks would need 5 GPUs" in texts_of(made, "devices-none")[0]
    assert [note.code for note in made.notes if note.warning] == ["devices-none"]


def test_too_few_devices_say_which_are_not_visible_and_why():
    gpus = [gpu.replace(vendor="10de", product="2335", ordinal=i) for i, gpu in enumerate(FOUR)]
    gpus[1] = gpus[1].replace(excluded="cannot open /dev/nvidia1")
    machine = machine_with(*gpus)
    visible = find_visible_devices(machine.devices, {"CUDA_VISIBLE_DEVICES": "2,7,0"})
    with pytest.raises(PlanError) as caught:
        plan(machine, ranks=2, devices=GPU, visible=visible)
    (noted,) = texts_of(plan(machine, ranks=2, devices="auto", visible=visible), "devices-none")
    why = " (CUDA_VISIBLE_DEVICES=2,7,0: CUDA ignores '7,0'"
    for text, start in ((str(caught.value), "but 1 is visible"), (noted, "1 GPU is visible")):
        assert start + why in text
        assert "gpu:1: cannot open /dev/nvidia1)" in text


def test_distances_from_devices_are_measured_and_kinds_that_ranks_cannot_get_are_refused():
    made = plan(with_distances(machine_with(*FOUR), DISTANCES), ranks=3, devices=GPU)
    assert measure_plan(made).device_distances == (12, 10, 10)
    with pytest.raises(TypeError, match=r"devices=.* is not of type .*DeviceKind.GPU, DeviceKind.NIC"):
        plan(machine_with(*FOUR), ranks=2, devices=(DeviceKind.DISPLAY,))
