"""The variables that give ranks their devices: narrowed for each vendor, in the format of each library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.planning.devices.visible import VENDOR_VARIABLES, find_visible_devices
from ompbind.planning.notes import explain
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import (
    RunSpec,
    make_local_identities,
    make_unbound_commands,
    make_variables,
)
from ompbind.planning.rank_variables import NIC_VARIABLES
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
from tests.planning.devices.test_visible import ENVIRONMENTS, MIXED

MACHINE = make_machine(Shape(packages=4, cores=4))
SET = (*VENDOR_VARIABLES, *NIC_VARIABLES, "OMPBIND_RANK_DEVICES", "OMPBIND_NICS")


def planned(devices, given, env, **options):
    """A plan for as many ranks as there are groups of devices in `given`."""
    visible = find_visible_devices(devices, env)
    kinds = tuple(dict.fromkeys(device.kind for group in given for device in group))
    request = Request(ranks=len(given), visible=visible, **options)
    plan = make_plan(MACHINE.replace(devices=tuple(devices)), request)
    pairs = zip(plan.placements, given, strict=True)
    placements = tuple(placement.replace(devices=tuple(group)) for placement, group in pairs)
    return plan.replace(placements=placements, request=request.replace(devices=kinds))


def variables(devices, given, env=(), *, keep_env=False, added=(), **options):
    """The variables for devices of each rank."""
    env = dict(env)
    plan = planned(devices, given, env, **options)
    spec = RunSpec(argv=(), run_id="run", base=env, keep_env=keep_env, added_variables=added)
    made = [make_variables(plan, identity, spec) for identity in make_local_identities(plan)]
    return [{name: own[name] for name in SET if name in own} for own in made]


def one_each(devices):
    return [[device] for device in devices]


def test_each_rank_gets_the_uuid_of_its_nvidia_gpu():
    gpus = make_nvidia_gpus(2)
    expected = [
        {"CUDA_VISIBLE_DEVICES": uuid, "OMPBIND_RANK_DEVICES": name, "OMPBIND_NICS": None}
        for uuid, name in zip(UUIDS, ("gpu:0", "gpu:1"), strict=False)
    ]
    assert variables(gpus, one_each(gpus)) == expected


def test_words_are_in_the_order_of_the_inherited_variable():
    gpus = make_nvidia_gpus(4, with_uuids=False)
    given = [[gpus[0], gpus[2]], [gpus[1], gpus[3]]]
    made = variables(gpus, given, {"CUDA_VISIBLE_DEVICES": "3,2,1,0"})
    assert [own["CUDA_VISIBLE_DEVICES"] for own in made] == ["2,0", "3,1"]


@pytest.mark.parametrize(
    ("env", "name", "expected"),
    [
        ({}, "ROCR_VISIBLE_DEVICES", [ROCM_UUIDS[0], ROCM_UUIDS[1]]),
        ({"ROCR_VISIBLE_DEVICES": "1,0"}, "ROCR_VISIBLE_DEVICES", [ROCM_UUIDS[0], ROCM_UUIDS[1]]),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "0,1"}, "HIP_VISIBLE_DEVICES", ["1", "0"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "CUDA_VISIBLE_DEVICES", ["0", "1"]),
    ],
)
def test_amd_gpus_are_given_by_the_last_variable_that_counts(env, name, expected):
    gpus = make_amd_gpus(2)
    made = variables(gpus, one_each(gpus), env)
    assert [own[name] for own in made] == expected
    assert all(own.keys() == {name, "OMPBIND_RANK_DEVICES", "OMPBIND_NICS"} for own in made)


def test_gpus_of_intel_are_given_by_the_items_of_the_mask():
    gpus = make_intel_gpus(2)
    made = variables(gpus, one_each(gpus), {"ZE_AFFINITY_MASK": "0.0,1.0,1.1"})
    assert [own["ZE_AFFINITY_MASK"] for own in made] == ["0.0", "1.0,1.1"]


def test_a_rank_with_a_gpu_of_one_vendor_sees_none_of_another():
    gpus = (make_gpu(0, uuid=UUIDS[0]), make_amd_gpus(2)[1].replace(address="0000:21:00.0"))
    first, second = variables(gpus, one_each(gpus))
    assert (first["CUDA_VISIBLE_DEVICES"], first["ROCR_VISIBLE_DEVICES"]) == (UUIDS[0], "")
    assert (second["CUDA_VISIBLE_DEVICES"], second["ROCR_VISIBLE_DEVICES"]) == ("", ROCM_UUIDS[1])


def test_hip_finds_the_gpus_of_a_rank_that_has_gpus_of_nvidia_too():
    gpus = (make_gpu(0, uuid=UUIDS[0]), *(gpu.replace(index=gpu.index + 1) for gpu in make_amd_gpus(2)))
    (made,) = variables(gpus, [gpus])
    assert made["CUDA_VISIBLE_DEVICES"] == UUIDS[0], "HIP would read it"
    assert made["ROCR_VISIBLE_DEVICES"] == f"{ROCM_UUIDS[0]},{ROCM_UUIDS[1]}"
    assert made["HIP_VISIBLE_DEVICES"] == "0,1", "positions among the GPUs of ROCR_VISIBLE_DEVICES"


def test_a_gpu_without_words_leaves_the_variables_and_a_warning_says_so():
    assert variables(MIXED, one_each(MIXED))[0].keys() == {"OMPBIND_RANK_DEVICES", "OMPBIND_NICS"}
    notes = [note for note in explain(planned(MIXED, one_each(MIXED), {})) if note.code == "devices-visible"]
    assert [note.warning for note in notes] == [True]
    assert "ranks get no CUDA_VISIBLE_DEVICES" in notes[0].text


def test_devices_that_are_not_visible_are_noted():
    gpus, env = make_nvidia_gpus(2), {"CUDA_VISIBLE_DEVICES": "0,9"}
    (note,) = [note for note in explain(planned(gpus, [[gpus[0]]], env)) if note.code == "devices-visible"]
    assert note.text == "CUDA_VISIBLE_DEVICES=0,9: CUDA ignores '9', because its first item names no GPU"
    assert not note.warning


def test_variables_of_the_user_override_the_plan_and_a_warning_says_so():
    gpus, user = make_nvidia_gpus(2), (("CUDA_VISIBLE_DEVICES", "0"),)
    assert variables(gpus, one_each(gpus), added=user)[1]["CUDA_VISIBLE_DEVICES"] == "0"
    plan = planned(gpus, one_each(gpus), {}, user_variables=user)
    (note,) = [note for note in explain(plan) if note.code == "devices-overridden"]
    assert note.warning
    assert note.text.startswith("CUDA_VISIBLE_DEVICES=0 (from --env or --keep-env)")


def test_keep_env_keeps_inherited_variables_of_vendors_but_not_of_other_ranks():
    gpus = make_nvidia_gpus(2)
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "OMPBIND_RANK_DEVICES": "gpu:7"}
    made = variables(gpus, one_each(gpus), env, keep_env=True)
    assert made[1] == {"OMPBIND_RANK_DEVICES": "gpu:1", "OMPBIND_NICS": None}


def test_ranks_without_devices_lose_only_the_names_of_devices_of_an_outer_rank():
    env = {"OMPBIND_RANK_DEVICES": "gpu:7", "OMPBIND_NICS": "mlx5_0", "CUDA_VISIBLE_DEVICES": "1"}
    made = variables(make_nvidia_gpus(2), [[]], env)
    assert made == [{"OMPBIND_RANK_DEVICES": None, "OMPBIND_NICS": None}]
    assert variables(make_nvidia_gpus(2), [[]]) == [{}]


def test_unbound_ranks_see_what_the_caller_sees():
    env = {"OMPBIND_RANK_DEVICES": "gpu:7", "CUDA_VISIBLE_DEVICES": "1,0"}
    spec = RunSpec(argv=("true",), run_id="run", base=env)
    (command,) = make_unbound_commands(1, spec, MACHINE.allowed)
    assert command.env["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert "OMPBIND_RANK_DEVICES" not in command.env


def test_without_a_visible_set_in_the_request_the_environment_of_the_ranks_is_read():
    gpus = make_nvidia_gpus(2, with_uuids=False)
    plan = planned(gpus, one_each(gpus), {})
    plan = plan.replace(request=plan.request.replace(visible=None))
    spec = RunSpec(argv=(), run_id="run", base={"CUDA_VISIBLE_DEVICES": "1,0"})
    made = [make_variables(plan, identity, spec) for identity in make_local_identities(plan)]
    assert [own["CUDA_VISIBLE_DEVICES"] for own in made] == ["0", "1"]


NICS = (make_nic(0, "mlx5_0", "ib0"), make_nic(1, "mlx5_10"), make_nic(2, network="eth0"))


@pytest.mark.parametrize(
    ("nics", "expected"),
    [
        (NICS[:1], ("mlx5_0", "=mlx5_0", "mlx5_0:1", "mlx5_0")),
        (NICS[:2], ("mlx5_0,mlx5_10", "=mlx5_0,mlx5_10", "mlx5_0:1,mlx5_10:1", "mlx5_0")),
        (NICS[1:], ("mlx5_10,eth0", "=mlx5_10", "mlx5_10:1,eth0", "mlx5_10")),
        (NICS[2:], ("eth0", None, "eth0", "eth0")),
    ],
)
def test_network_interfaces_are_named_in_the_format_of_each_library(nics, expected):
    (made,) = variables(NICS, [nics], nic_variables=NIC_VARIABLES)
    assert tuple(made.get(name) for name in ("OMPBIND_NICS", *NIC_VARIABLES)) == expected


def test_a_variable_that_is_not_set_is_noted():
    made = planned(NICS, [NICS[:1], NICS[2:]], {}, nic_variables=NIC_VARIABLES)
    (note,) = [note for note in explain(made) if note.code == "nic-variables"]
    assert note.text == "NCCL_IB_HCA is not set for rank 1: no network interface for RDMA"


def test_variables_of_libraries_are_set_on_request_only():
    (made,) = variables(NICS, [NICS])
    assert made.keys() == {"OMPBIND_RANK_DEVICES", "OMPBIND_NICS"}
    (made,) = variables((*NICS, *make_nvidia_gpus(1)), [make_nvidia_gpus(1)], nic_variables=NIC_VARIABLES)
    assert made["OMPBIND_NICS"] is None
    assert not made.keys() & set(NIC_VARIABLES)


@given(ENVIRONMENTS, st.booleans(), st.sampled_from([make_nvidia_gpus, make_amd_gpus, make_intel_gpus]))
def test_ranks_get_only_inherited_words_or_uuids_and_no_word_twice(env, has_uuids, make):
    gpus = make() if make is make_intel_gpus else make(with_uuids=has_uuids)
    found = find_visible_devices(gpus, env).devices
    if not found:
        return
    given = one_each(found)
    seen = {}
    for own in variables(gpus, given, env):
        for name in VENDOR_VARIABLES:
            seen.setdefault(name, []).extend(own[name].split(",") if name in own else [])
    for name, words in seen.items():
        assert len(words) == len(set(words)), name
        if env.get(name):
            assert set(words) <= {item.strip() for item in env[name].split(",")} | {gpu.uuid for gpu in gpus}
