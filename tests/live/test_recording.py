"""The commands of docs/machines.md that record a machine, run on this machine."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from ompbind.machine.read import read_machine

PAGE = Path(__file__).parent.parent.parent / "docs/machines.md"


def facts(devices):
    """What a recording has of devices: not their files, and therefore not which of them are excluded."""
    return {(d.address, d.partition): (d.kind, d.cpus, d.node, d.names, d.uuid) for d in devices}


@pytest.mark.skipif(
    not os.path.isdir("/sys/devices/system/cpu/cpu0/topology"), reason="sysfs lacks CPUs here"
)
def test_a_recording_of_this_machine_has_its_cpus_and_its_devices(tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    files, devices = (block for block in blocks if "--parents" in block)
    files, pack = files.rstrip().rsplit("\n", 1)
    assert pack == "tar czf machine.tar.gz machine"
    script = f"{files}\n{devices}\n{pack}"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL, check=True)
    directories = [path for path in (tmp_path / "machine").rglob("*") if path.is_dir()]
    assert all(path.stat().st_mode & stat.S_IRWXU == stat.S_IRWXU for path in directories)  # needs no root
    live = read_machine(devices=True)
    for source in ("machine", "machine.tar.gz"):
        recorded = read_machine(str(tmp_path / source), devices=True)
        assert (recorded.domains, recorded.nodes) == (live.domains, live.nodes)
        assert facts(recorded.devices) == facts(live.devices)
