"""A device for programs: the JSON value that machines and plans have in common."""

from ompbind.machine.devices import Device


def device_record(device: Device) -> dict[str, object]:
    """Return the JSON value of a device."""
    return {
        "device": device.name,
        "kind": str(device.kind),
        "address": device.address,
        "partition": device.partition,
        "class": device.pci_class,
        "vendor": device.vendor,
        "product": device.product,
        "cpus": str(device.cpus),
        "node": device.node,
        "names": list(device.names),
        "rdma_names": list(device.rdma_names),
        "uuid": device.uuid or None,
        "ordinal": device.ordinal,
        "physical": device.physical or None,
        "excluded": device.excluded or None,
    }
