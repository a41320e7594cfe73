"""Whether this process can open the device files of a GPU.

In a container, sysfs shows all GPUs of the machine, but only some have device files or are permitted by the
device cgroup. access(2) asks that cgroup, too, without opening the device: opening could wake it.

On a host, NVIDIA's libraries make missing files when the first program uses a GPU (nvidia-modprobe). There,
`/dev` is a devtmpfs. In a container it is not, and a missing file means that there is no access.
"""

import os
from collections.abc import Iterator

from ompbind.machine.devices import AMD, Device
from ompbind.machine.sources.root import Root


def find_denial(device: Device, directory: str, *, is_host: bool = False) -> str:
    """Return why this process cannot use a GPU; "" if it can.

    `directory` is /dev, or one like it. With `is_host`, missing files of NVIDIA are no reason.
    """
    paths = list(_files_of(device))
    if not paths:
        return "no driver that computes uses it"
    for path, mode in paths:
        is_made_later = is_host and path.startswith("nvidia")
        if refusal := _find_refusal(f"{directory}/{path}", mode, is_needed=not is_made_later):
            return refusal
    return ""


def is_on_host(root: Root, directory: str) -> bool:
    """Return whether a directory like /dev is that of a host, by the mounts of this process."""
    lines = (root.read("proc/self/mountinfo") or "").splitlines()
    kinds = [line.partition(" - ")[2].partition(" ")[0] for line in lines if f" {directory} " in line]
    return kinds[-1:] == ["devtmpfs"]


def _files_of(device: Device) -> Iterator[tuple[str, int]]:
    """Yield the device files that programs open to compute on a GPU, below /dev, and how they open them."""
    both = os.R_OK | os.W_OK
    has_own_file = any(_is_numbered(name, "nvidia") for name in device.names)
    for name in device.names:
        if _is_numbered(name, "nvidia"):
            yield from (("nvidiactl", both), (name, both))
        elif _is_numbered(name, "nvidia-cap"):
            yield f"nvidia-caps/{name}", os.R_OK
        elif _is_numbered(name, "renderD") and not has_own_file:
            yield f"dri/{name}", both
    if device.vendor == AMD and device.ordinal is not None:
        yield "kfd", both


def _is_numbered(name: str, stem: str) -> bool:
    return name.startswith(stem) and name[len(stem) :].isdigit()


def _find_refusal(path: str, mode: int, *, is_needed: bool) -> str:
    if os.access(path, mode):
        return ""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return f"{path} does not exist" if is_needed else ""
    except OSError:
        pass
    return f"no access to {path}"
