"""AMD GPUs and their partitions, from the topology of the kernel's compute driver (KFD).

    sys/class/kfd/kfd/topology/nodes/N/properties

has a line "name value" per property. A node with SIMDs is a GPU, or one partition of a GPU: several nodes
then have the same PCI function. ROCm numbers the GPUs in the order of these nodes, and skips nodes that it
may not read, as the device cgroup of a container forbids.
"""

from ompbind.machine.sources.root import Root, numbered, whole_number
from ompbind.record import Record

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
    nodes = numbered(root.names(directory), "")
    texts = (root.read(f"{directory}/{node}/properties") for node in nodes)
    found = [properties for text in texts if text and (properties := _parse(text)).get("simd_count")]
    return tuple(_make_gpu(ordinal, properties) for ordinal, properties in enumerate(found))


def _parse(text: str) -> dict[str, int]:
    """Return the properties of a node; a unique identifier has up to 64 bits."""
    pairs = (line.partition(" ") for line in text.splitlines())
    numbers = ((name, whole_number(value, 1 << 64)) for name, _, value in pairs)
    return {name: number for name, number in numbers if number is not None}


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
