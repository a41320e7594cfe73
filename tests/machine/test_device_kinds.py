"""The kinds of PCI functions: those of real machines, and of decoys."""

import pytest

from ompbind.machine.devices import find_kind, find_ordinal

KINDS = (
    ("0302", "10de", (), "gpu"),  # H200 without any name, as a container may show it
    ("0300", "10de", ("card0", "renderD128"), "gpu"),  # a desktop card
    ("0300", "10de", ("nvidia0",), "gpu"),  # the same without nvidia-drm
    ("0300", "1002", ("opencl0d1",), "gpu"),  # Radeon HD 7900
    ("0380", "1002", ("rsmi4",), "gpu"),  # MI250X
    ("0380", "8086", (), "gpu"),  # Data Center GPU Max
    ("1200", "1002", (), "gpu"),  # MI300A
    ("1200", "1da3", (), "accelerator"),  # Gaudi
    ("1200", "8086", ("renderD129",), "accelerator"),  # NPU
    ("0b40", "1bcf", (), "accelerator"),  # vector engine
    ("0b40", "8086", ("mic0",), "accelerator"),  # Xeon Phi
    ("0300", "1a03", ("card0", "controlD64"), "display"),  # ASPEED
    ("0300", "1002", ("card0",), "display"),  # ES1000
    ("0300", "102b", (), "display"),  # Matrox
    ("0380", "1a03", (), "display"),
    ("0207", "15b3", ("mlx5_0",), "nic"),
    ("0280", "15b3", ("ib0", "mlx4_0"), "nic"),
    ("0200", "17db", ("hsi0",), "nic"),
    ("0207", "15b3", (), None),  # no driver
    ("0108", "144d", ("nvme0n1",), None),
    ("0b00", "8086", (), None),
    ("", "", (), None),
)


@pytest.mark.parametrize(("pci_class", "vendor", "names", "kind"), KINDS)
def test_kind(pci_class, vendor, names, kind):
    assert find_kind(pci_class, vendor, names) == kind


def test_function_with_driver_for_computing_is_gpu():
    assert find_kind("0300", "10de", is_driven=True) == "gpu"


@pytest.mark.parametrize(
    ("names", "ordinal"),
    [
        (("card1", "renderD128"), None),
        (("nvml3", "cuda0"), 0),  # CUDA_VISIBLE_DEVICES has the order of CUDA
        (("opencl0d7", "rsmi12"), 12),
        (("cuda", "rsmi"), None),
        ((), None),
    ],
)
def test_ordinal(names, ordinal):
    assert find_ordinal(names) == ordinal
