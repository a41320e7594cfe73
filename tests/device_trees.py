"""Trees of machines with PCI devices, for the readers: files and symbolic links by path."""

from pathlib import Path

from ompbind.cpuset import CpuSet
from tests.machines import Shape, kernel_mask, shape_files

BUS = "sys/bus/pci/devices"


class DeviceTree:
    """The files and links of a machine; PCI functions are added one by one."""

    def __init__(self, shape: Shape) -> None:
        self.files = shape_files(shape)
        self.links: dict[str, str] = {}
        self.directories: list[str] = []

    def add(
        self,
        path: str,
        pci_class: str,
        vendor: str = "10de",
        *,
        node: int | None = None,
        local: CpuSet | None = None,
        product: str = "2335",
        names: str = "",
        driver: str = "",
        physical: str = "",
        **more: str,
    ) -> str:
        """Add a PCI function behind bridges, with names like "drm/card0" and texts of other files."""
        top, address = path.split("/")[0], path.split("/")[-1]
        directory = f"sys/devices/pci{top.rpartition(':')[0]}/{path}"
        texts = {"class": f"0x{pci_class}00", "vendor": f"0x{vendor}", "device": f"0x{product}"}
        if node is not None:
            texts["numa_node"] = str(node)
        if local is not None:
            texts |= {"local_cpus": kernel_mask(local), "local_cpulist": str(local)}
        self.files |= {f"{directory}/{name}": f"{text}\n" for name, text in {**texts, **more}.items()}
        self.links[f"{BUS}/{address}"] = f"../../../{directory.removeprefix('sys/')}"
        if driver:
            self.links[f"{directory}/driver"] = f"../../../bus/pci/drivers/{driver}"
        if physical:
            self.links[f"{directory}/physfn"] = f"../{physical}"
        for name in names.split():
            self.directories.append(f"{directory}/{name}")
        return address

    def add_nvidia(self, address: str, uuid: str, minor: int, **more: str) -> None:
        facts = {"Model": "NVIDIA H200", "GPU UUID": uuid, "Device Minor": str(minor), **more}
        text = "".join(f"{key + ':':16} {value}\n" for key, value in facts.items())
        self.files[f"proc/driver/nvidia/gpus/{address}/information"] = text

    def add_kfd(self, node: int, **properties: int) -> None:
        text = "".join(f"{name} {value}\n" for name, value in properties.items())
        self.files[f"sys/devices/virtual/kfd/kfd/topology/nodes/{node}/properties"] = text
        self.links["sys/class/kfd/kfd"] = "../../devices/virtual/kfd/kfd"

    def write(self, root: Path) -> Path:
        for path, text in self.files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        for path in self.directories:
            (root / path).mkdir(parents=True)
        for path, target in self.links.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(target)
        return root
