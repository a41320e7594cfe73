"""Devices of ranks in tables, JSON and exports."""

import json
import shlex

import pytest

from ompbind.cli.plan import FORMATS
from ompbind.cli.topo import render_json
from ompbind.commands.environment import RunSpec, make_local_identities, make_variables
from ompbind.errors import RequestError
from ompbind.machine.read.topo_json import make_machine_from_json
from ompbind.report.plan_json import plan_record
from ompbind.report.topology import device_record
from tests.planning.devices.gpus import ROCM_UUIDS, UUIDS, make_amd_gpus, make_gpu, make_nic, make_nvidia_gpus
from tests.planning.devices.test_variables import one_each, planned

NVIDIA = make_nvidia_gpus(4)
PAIRS = [NVIDIA[:2], NVIDIA[2:]]


def variables_of(plan, env=()):
    spec = RunSpec(argv=(), run_id="plan", base=dict(env))
    return [make_variables(plan, identity, spec) for identity in make_local_identities(plan)]


def export(name, plan, env=()):
    """The text of a format for the whole plan; for formats of one rank, of rank 0."""
    render, variables = FORMATS[name].render, variables_of(plan, env)
    if FORMATS[name].ranks == "one":
        return render(plan.replace(placements=plan.placements[:1]), variables[:1])
    return render(plan, variables) if FORMATS[name].takes == "variables" else render(plan)


def test_json_has_the_devices_and_the_request():
    plan = planned(NVIDIA, PAIRS, {}, share_devices=True, near=("gpu:0",))
    record = json.loads(json.dumps(plan_record(plan, variables_of(plan))))
    assert [rank["devices"] for rank in record["ranks"]] == [list(map(device_record, pair)) for pair in PAIRS]
    assert record["ranks"][1]["env"]["OMPBIND_RANK_DEVICES"] == "gpu:2,gpu:3"
    request = {
        "devices": ["gpu"], "share_devices": True, "near": ["gpu:0"], "devices_per_rank": None,
    }  # fmt: skip
    assert {name: record["request"][name] for name in request} == request
    machine = make_machine_from_json(json.loads(render_json(plan.machine)), "x", devices=True)
    assert [gpu.uuid for gpu in machine.devices] == list(UUIDS[:4])


def test_slurm_gets_a_mask_of_gpus_by_address_for_each_task():
    assert "--gpus-per-node=4 --gpu-bind=mask_gpu:0x3,0xc" in export("slurm", planned(NVIDIA, PAIRS, {}))
    assert "gpu" not in export("slurm", planned(NVIDIA, [[], []], {}))
    swapped = tuple(gpu.replace(index=3 - gpu.index) for gpu in NVIDIA)
    plan = planned(swapped, [[swapped[0]], [swapped[3]]], {"CUDA_VISIBLE_DEVICES": "0,3"})
    assert "--gpu-bind=mask_gpu:0x1,0x8" in export("slurm", plan)
    gpus = (make_gpu(0, uuid=UUIDS[0]), make_amd_gpus(2)[1].replace(address="0000:21:00.0"))
    with pytest.raises(RequestError, match="several vendors"):
        export("slurm", planned(gpus, one_each(gpus), {}))


def test_docker_gets_nvidia_gpus_by_uuid_as_one_row_of_csv():
    words = shlex.split(export("docker", planned(NVIDIA, PAIRS, {})).splitlines()[1])
    assert words[words.index("--gpus") + 1] == f'"device={UUIDS[2]},{UUIDS[3]}"'
    assert f"CUDA_VISIBLE_DEVICES={UUIDS[2]},{UUIDS[3]}" in words
    gpus = make_nvidia_gpus(4, with_uuids=False)  # numbers, and no indices of the host
    words = shlex.split(export("docker", planned(gpus, [gpus[2:]], {})))
    assert words[words.index("--gpus") + 1] == '"device=2,3"'
    assert not [word for word in words if word.startswith("CUDA_VISIBLE_DEVICES")]
    parts = (make_gpu(0).replace(partition=0),)
    with pytest.raises(RequestError, match="MIG"):
        export("docker", planned(parts, one_each(parts), {}))


def test_docker_gets_device_files_of_amd_gpus():
    gpus = tuple(gpu.replace(names=("card1", f"renderD{128 + gpu.index}")) for gpu in make_amd_gpus(2))
    words = shlex.split(export("docker", planned(gpus, one_each(gpus), {})).splitlines()[1])
    assert [word for word in words if word.startswith("--device")] == [
        "--device=/dev/kfd",
        "--device=/dev/dri/renderD129",
    ]
    assert f"ROCR_VISIBLE_DEVICES={ROCM_UUIDS[1]}" in words
    with pytest.raises(RequestError, match="device file of gpu:0 is not known"):
        export("docker", planned(make_amd_gpus(1), one_each(make_amd_gpus(1)), {}))


def test_formats_for_other_launchers_either_have_the_devices_or_lack_them():
    plan = planned((*NVIDIA, make_nic(0, "mlx5_0")), PAIRS, {})
    for name, row in FORMATS.items():
        if row.takes == "screen":
            continue
        text = export(name, plan)
        has_gpus = UUIDS[0] in text or "mask_gpu" in text or name == "svg"
        assert has_gpus != row.lacks_devices, name
