"""NVIDIA GPUs and their MIG instances, from the files of NVIDIA's driver below `proc/driver/nvidia`.

    gpus/ADDRESS/information                     "GPU UUID: GPU-…", "Device Minor: 0", "GPU Excluded: No"
    capabilities/gpuMINOR/mig/giG/ciC/access     one MIG compute instance; "DeviceFileMinor: 3"
    version                                      the version of the driver

The driver needs no library for these. Until a program has used a GPU, its UUID is shown as question marks.
"""

from collections.abc import Iterator

from ompbind.machine.devices import is_address, is_hexadecimal
from ompbind.machine.sources.linux.numa import GPU_DIRECTORY
from ompbind.machine.sources.root import Root, keyed_lines, numbered, whole_number
from ompbind.record import Record

_DRIVER = "proc/driver/nvidia"
_OWN_UUIDS = (470, 42, 1)
"""The first version of the driver whose MIG instances have a UUID of their own, which no file shows."""


class MigInstance(Record):
    """A MIG compute instance; `uuid` is what `CUDA_VISIBLE_DEVICES` accepts, "" if no file shows it.

    `capability` is the number of its file /dev/nvidia-caps/nvidia-capN, None if it is unknown.
    """

    uuid: str = ""
    capability: int | None = None


class NvidiaGpu(Record):
    """A GPU that NVIDIA's driver uses; `minor` is the number of its file /dev/nvidiaN, None if unknown."""

    uuid: str = ""
    minor: int | None = None
    is_excluded: bool = False
    instances: tuple[MigInstance, ...] = ()


def read_nvidia_gpus(root: Root) -> dict[str, NvidiaGpu]:
    """Read the GPUs that NVIDIA's driver uses, by PCI address."""
    gpus: dict[str, NvidiaGpu] = {}
    for name in root.names(GPU_DIRECTORY):
        if not is_address(name.lower()):
            continue
        facts = dict(keyed_lines(root.read(f"{GPU_DIRECTORY}/{name}/information")))
        uuid, minor = facts.get("GPU UUID", ""), whole_number(facts.get("Device Minor"), 1 << 20)
        digits = uuid.removeprefix("GPU-").replace("-", "").lower()
        if not (uuid.startswith("GPU-") and len(digits) == 32 and is_hexadecimal(digits)):
            uuid = ""  # question marks, for example
        gpus[name.lower()] = NvidiaGpu(
            uuid=uuid,
            minor=minor,
            is_excluded=facts.get("GPU Excluded", facts.get("GPU Blacklisted")) == "Yes",
            instances=() if minor is None else tuple(_read_instances(root, minor, uuid)),
        )
    return gpus


def _read_instances(root: Root, minor: int, uuid: str) -> Iterator[MigInstance]:
    """Yield the MIG compute instances of a GPU, in the order of their numbers."""
    directory = f"{_DRIVER}/capabilities/gpu{minor}/mig"
    for outer in numbered(root.names(directory), "gi"):
        for inner in numbered(root.names(f"{directory}/gi{outer}"), "ci"):
            facts = dict(keyed_lines(root.read(f"{directory}/gi{outer}/ci{inner}/access")))
            yield MigInstance(
                uuid=f"MIG-{uuid}/{outer}/{inner}" if uuid and _has_numbered_instances(root) else "",
                capability=whole_number(facts.get("DeviceFileMinor"), 1 << 20),
            )


def _has_numbered_instances(root: Root) -> bool:
    """Return whether the driver is so old that CUDA knows MIG instances by their GPU and by numbers."""
    words = (root.read(f"{_DRIVER}/version") or "").split()
    versions = [word.split(".") for word in words if "." in word and word.replace(".", "").isdigit()]
    numbers = tuple(whole_number(part, 1 << 20) or 0 for part in versions[0]) if versions else _OWN_UUIDS
    return numbers < _OWN_UUIDS


# AMD GPUs and their partitions, from the topology of the kernel's compute driver (KFD).
#
#     sys/class/kfd/kfd/topology/nodes/N/properties
#
# has a line "name value" per property. A node with SIMDs is a GPU, or one partition of a GPU: several nodes
# then have the same PCI function. ROCm numbers the GPUs in the order of these nodes, and skips nodes that
# it may not read, as the device cgroup of a container forbids.


_DIRECTORIES = ("sys/class/kfd/kfd/topology/nodes", "sys/devices/virtual/kfd/kfd/topology/nodes")


class KfdGpu(Record):
    """A GPU, or a partition of one, as the compute driver shows it.

    `slot` is the PCI address without the function, and `function` the function: some kernels write the number
    of the partition there. `uuid` is what `ROCR_VISIBLE_DEVICES` accepts, "" if the GPU has none.
    """

    ordinal: int
    slot: str
    function: int
    uuid: str = ""
    render_name: str = ""


def read_kfd_gpus(root: Root) -> tuple[KfdGpu, ...]:
    """Read the AMD GPUs and partitions, in ROCm's order."""
    directory = next((path for path in _DIRECTORIES if root.names(path)), _DIRECTORIES[0])
    found: list[KfdGpu] = []
    for node in numbered(root.names(directory), ""):
        lines = (root.read(f"{directory}/{node}/properties") or "").splitlines()
        pairs = (line.partition(" ") for line in lines)
        # a unique identifier has up to 64 bits
        numbers = ((name, whole_number(value, 1 << 64)) for name, _, value in pairs)
        properties = {name: number for name, number in numbers if number is not None}
        if properties.get("simd_count"):
            found.append(_make_gpu(len(found), properties))
    return tuple(found)


def _make_gpu(ordinal: int, properties: dict[str, int]) -> KfdGpu:
    location, domain = properties.get("location_id", 0), properties.get("domain", 0)
    minor, unique_id = properties.get("drm_render_minor", 0), properties.get("unique_id", 0)
    return KfdGpu(
        ordinal=ordinal,
        slot=f"{domain & 0xFFFFFFFF:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}",
        function=location & 7,
        uuid=f"GPU-{unique_id:016x}" if unique_id else "",
        render_name=f"renderD{minor}" if minor else "",
    )
