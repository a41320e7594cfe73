"""Topology sources other than sysfs: hwloc XML, JSON of lscpu and ompbind, synthetic descriptions."""

import json
import os
import re
import time
from textwrap import indent

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import MachineError
from ompbind.machine.model import Level
from ompbind.machine.read import read_machine
from ompbind.machine.read.hwloc_xml import parse_xml
from ompbind.machine.read.sources import SIZE_LIMIT
from ompbind.machine.read.synthetic import parse_synthetic
from ompbind.report.topology import device_record
from tests.machines import sets
from tests.tables import rows


def nodes_of(machine):
    return [(node.number, str(node.cpus), node.memory_bytes, node.nearest) for node in machine.nodes]


def read(tmp_path, text, *, devices=False):
    path = tmp_path / "machine"
    text = text if isinstance(text, (str, bytes)) else json.dumps(text)
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    return read_machine(str(path), devices=devices)


V1 = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology><object type="Machine" os_index="0" cpuset="0x0000001f" complete_cpuset="0x0000003f"
          online_cpuset="0x0000001f" allowed_cpuset="0x0000000f"><info name="Architecture" value="x86_64"/>
    <distances nbobjs="2" relative_depth="1" latency_base="10.000000">
      <latency value="1.000000"/><latency value="2.100000"/>
      <latency value="2.100000"/><latency value="1.000000"/></distances>
    <object type="NUMANode" os_index="0" cpuset="0x00000003" local_memory="1024">
      <page_type size="4096" count="0"/><object type="Socket" os_index="4" cpuset="0x00000003">
        <object type="Cache" cpuset="0x00000003" depth="3" cache_size="33554432" cache_type="0">
          <object type="Cache" cpuset="0x00000003" depth="2" cache_type="2">
            <object type="Core" os_index="0" cpuset="0x00000003"><object type="PU" cpuset="0x00000001"/>
              <object type="PU" os_index="1" cpuset="0x2"/></object></object></object></object></object>
    <object type="NUMANode" os_index="1" cpuset="0x0000001c" local_memory="2048">
      <object type="Socket" os_index="9" cpuset="0x0000001c">
        <object type="Core" os_index="0" cpuset="0x0000000c"><object type="PU" cpuset="0x00000004"/>
          <object type="PU" os_index="3" cpuset="0x00000008"/></object>
        <object type="Core" os_index="1" cpuset="0x00000010"><object type="PU" os_index="4" cpuset="0x10"/>
        </object></object></object></object></topology>
"""


def test_xml_of_version_1(tmp_path):
    machine = read(tmp_path, V1)
    assert machine.arch == "x86_64"
    assert [str(cpus) for cpus in (machine.online, machine.allowed, machine.offline)] == ["0-4", "0-3", "5"]
    assert sets(machine, Level.CORE) == ["0-1", "2-3", "4"]
    assert (sets(machine, Level.L3), sets(machine, Level.L2)) == (["0-1"], [])
    assert machine.at(Level.L3)[0].size_bytes == 32 << 20
    assert [package.os_id for package in machine.at(Level.PACKAGE)] == [4, 9]
    found = [(node.memory_bytes, node.distances) for node in machine.nodes]
    assert found == [(1024, (10, 21)), (2048, (21, 10))]


FLAT = """<topology><object type="Machine" cpuset="0xf"><object type="Package" cpuset="0xf">
    <object type="Group" cpuset="0x3" nodeset="0x9">
      <object type="NUMANode" os_index="3" cpuset="0x0" complete_cpuset="0x0" local_memory="16"/>
      <object type="NUMANode" os_index="4" cpuset="0x3" complete_cpuset="0x3" local_memory="96">
        <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>
      </object></object>
    <object type="NUMANode" os_index="1" cpuset="0xc" complete_cpuset="0xc" local_memory="96">
      <object type="PU" os_index="2" cpuset="0x4"/><object type="PU" os_index="3" cpuset="0x8"/></object>
    <object type="NUMANode" os_index="6" cpuset="0x0" complete_cpuset="0x0" local_memory="16"/>
  </object></object></topology>"""


def test_nodes_without_cpus_in_xml_of_version_1_are_near_the_node_of_their_group(tmp_path):
    """As Knights Landing in SNC-4 flat mode; without a group, the nearest node is unknown."""
    with_cpus, without = [(1, "2-3", 96, ()), (4, "0-1", 96, ())], [(3, "", 16, (4,)), (6, "", 16, ())]
    assert nodes_of(read(tmp_path, FLAT)) == sorted(with_cpus + without)


V2 = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000300,,0x0000000f" allowed_cpuset="0xf...f">
    <object type="Package" os_index="0" cpuset="0x0000000f">
      <object type="NUMANode" os_index="0" cpuset="0x0000000f" local_memory="4096"/>
      <object type="NUMANode" os_index="2" cpuset="0x0000000f" local_memory="1024" subtype="HBM"/>
      <object type="NUMANode" os_index="5" cpuset="0x0000000f" local_memory="1024" subtype="GPUMemory"/>
      <object type="L3Cache" cpuset="0x0000000f" subtype="MemorySideCache"/>
      <object type="Group" cpuset="0x00000007" subtype="Cluster"/><object type="Group" cpuset="0x0000000c"/>
      <object type="L2Cache" cpuset="0x00000003" cache_size="2097152">
        <object type="Core" cpuset="0x00000003"><object type="PU" os_index="0" cpuset="0x1"/>
          <object type="PU" os_index="1" cpuset="0x2"/></object></object>
      <object type="Core" cpuset="0x00000004"><object type="PU" os_index="2" cpuset="0x4"/></object>
      <object type="Core" cpuset="0x00000008"><object type="PU" os_index="3" cpuset="0x8"/></object>
    </object>
    <object type="Package" os_index="1" cpuset="0x00000300,,0x0">
      <object type="NUMANode" os_index="1" cpuset="0x00000300,,0x0"/>
      <object type="PU" os_index="72" cpuset="0x00000100,,0x0"/><object type="PU" cpuset="0x00000200,,0x0"/>
    </object></object>
  <distances2 type="NUMANode" nbobjs="4" kind="9" name="Bandwidth" indexing="os">
    <indexes length="8">0 1 2 5</indexes>
    <u64values length="20">9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9</u64values></distances2>
  <distances2 type="NUMANode" nbobjs="3" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 1 </indexes><indexes length="2">2</indexes>
    <u64values length="9">10 20 17 </u64values>
    <u64values length="18">20 10 28 17 28 10</u64values></distances2>
  <cpukind cpuset="0x0000000c" forced_efficiency="0"><info name="CoreType" value="IntelAtom"/></cpukind>
  <cpukind cpuset="0x00000300,,0x3" forced_efficiency="1"><info name="CoreType" value="IntelCore"/></cpukind>
</topology>
"""


def test_xml_of_version_2(tmp_path):
    machine = read(tmp_path, V2)
    assert str(machine.allowed) == "0-3,72-73"
    assert sets(machine, Level.CORE) == ["0-1", "2", "3", "72", "73"]
    assert (sets(machine, Level.CLUSTER), sets(machine, Level.L2)) == (["0-2"], ["0-1"])
    assert (sets(machine, Level.L3), machine.at(Level.L2)[0].size_bytes) == ([], 2 << 20)
    assert nodes_of(machine) == [(0, "0-3", 4096, ()), (1, "72-73", 0, (0,)), (2, "", 1024, (0,))]
    assert machine.nodes[0].distances == (10, 20, 17)
    kinds = [(kind.name, str(kind.cpus)) for kind in machine.kinds]
    assert kinds == [("performance", "0-1,72-73"), ("efficiency", "2-3")]
    assert machine.remarks == ("NUMA node 5 excluded: GPU memory",)


BOMB = """<?xml version="1.0"?><!DOCTYPE t [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<topology><object type="Machine" cpuset="&b;"/></topology>"""
OUTSIDE = """<?xml version="1.0"?><!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<topology><object type="Machine" cpuset="0x1">&x;</object></topology>"""
BOMB_16 = BOMB.replace('"1.0"', '"1.0" encoding="UTF-16LE"').encode("UTF-16LE")
NO_CPUS = "names no online CPU|without CPUs"


@pytest.mark.parametrize(("text", "match"), [
    (BOMB, "declares entities"), (OUTSIDE, "declares entities"), ("<topology>", "is not valid XML"),
    ("<topology/>", "names no CPU"), ("<html><body/></html>", "its root element is <html>"),
    (f"<topology>{'<object>' * 300}{'</object>' * 300}</topology>", "nested more than 256 levels deep"),
    ('<topology><object type="PU" cpuset="zz"/></topology>', "is not hwloc XML"),
    ('<topology><object type="PU" cpuset="0x1" allowed_cpuset="0x0"/></topology>', "none of its online CPUs"),
    ('<topology><object type="PU" cpuset="0x1" complete_cpuset="zz"/></topology>', "is not hwloc XML"),
    (b'<?xml version="1.0" encoding="klingon"?><topology/>', "is not valid XML"),
    (BOMB_16, "it is not in UTF-8"),
    ("<topology/>".encode("UTF-16"), "convert UTF-16 with: iconv"),
    (b"\xfe\xff" + "<topology/>".encode("UTF-16BE"), "convert UTF-16 with: iconv"),
    ('<topology><object type="PU" cpuset="0xz"/></topology>', "'0000000z' is not a mask"),
    ("<topology>" + "<a/>" * 600_000, "more than 524288 elements"),
    (b"", "it is empty"), (b"  \n", "it is empty"), (b"hello", "its format is not known"),
    (b"{", "is not valid JSON"), (b'{"a": 1}', "JSON, but not from lscpu or ompbind"),
    (b"[1]", "JSON, but not from lscpu or ompbind"), (b'{"schema": "ompbind-plan/1"}', "schema 'omp"),
    (b"PK\3\4", "a zip or zstd archive"), (b"PU L#0\n  PU L#1", "OS numbers"),
    (b"PU P#999999", "highest possible CPU is"), (b"available: 2 nodes\nnode 0 cpus: 0", "is incomplete"),
    (b"x" + b"\n" * 300_000, "not known"), (b"x\n" + b" " * 300_000, "not known"),
    (b'{"cpus": ' + b"[" * 100_000, "is not valid JSON"), (b'{"\xff": 1}', "is not valid JSON"),
    (b"{" + b" " * SIZE_LIMIT, "is larger than 64 MiB"),
    ('{"cpus":[{"cpu":0},{"cpu":65536}]}', "names CPU 65536"),
    ('{"lscpu": []}', NO_CPUS), ('{"cpus": [1, {"cpu": "x"}]}', NO_CPUS), ('{"cpus": []}', NO_CPUS),
    ('{"lscpu": 3}', NO_CPUS),
], ids=range(36))  # fmt: skip
def test_files_that_are_not_a_machine_are_errors(tmp_path, text, match):
    with pytest.raises(MachineError, match=match):
        read(tmp_path, text)


@pytest.mark.parametrize(("begin", "piece", "end"), [
    ('<topology a="', "x", '"/>'), ("<topology ", "a{}='' ", "/>"), ("<topology>", "<a>", ""),
    ("<topology><!--", "<a>", "--></topology>"), ("<topology><?x ", "<a>", "?></topology>"),
    ("<topology>", "</a>", ""),
])  # fmt: skip
def test_xml_with_a_long_part_is_read_in_linear_time(tmp_path, begin, piece, end):
    """A parser that gets pieces of a file reads a long tag or comment again for each piece."""

    def measure_s(size):
        text, took_s = "".join(map(piece.format, range(size // len(piece)))), []
        for _ in range(3):
            begun = time.process_time()
            with pytest.raises(MachineError):
                read(tmp_path, f"{begin}{text}{end}")
            took_s.append(time.process_time() - begun)
        return min(took_s)

    assert measure_s(1 << 22) < 3 * 8 * max(measure_s(1 << 19), 0.005), (
        "more than three times the linear time"
    )


def test_sources_that_cannot_be_opened_are_errors(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk").write_bytes(b"\x1f\x8bjunk")
    paths = (str(tmp_path / name) for name in ("x/y", "empty", "junk", "pipe"))
    for source in ("nowhere.xml", "a\0b", "", *paths):
        with pytest.raises(MachineError, match="is a named pipe" if "pipe" in source else None) as caught:
            read_machine(source)
        assert caught.value.exit_code == 2


def test_cpus_that_xml_leaves_out_are_reported(tmp_path):
    """hwloc leaves out CPUs that its process may not use, also from the sets of nodes."""
    node = '<object type="NUMANode" os_index="{}" cpuset="{}" complete_cpuset="{}"/>'
    inside = node.format(0, "0x1", "0x3") + node.format(1, "0x0", "0xc")
    inside += '<object type="Core" cpuset="0x1"><object type="PU" cpuset="0x1"/></object>'
    top = '<object type="Machine" cpuset="0x1" complete_cpuset="0xf">'
    machine = read(tmp_path, f"<topology>{top}{inside}</object></topology>")
    assert [node.number for node in machine.nodes] == [0]
    assert machine.remarks[0] == "CPUs 1-3: offline or not allowed when the XML was written"
    assert machine.remarks[1] == "NUMA node 1 excluded: no CPUs in the XML"
    flood = b'<topology><object type="PU" cpuset="0x1">' + b'<object type="Misc" name="x"/>' * 100_000
    assert str(parse_xml(flood + b"</object></topology>", "flood").online) == "0"


GPU = (
    '<object type="PCIDev" pci_busid="0000:06:00.0" pci_type="0302 [10de:2335] [10de:18be] a1">'
    '<object type="OSDev" name="cuda0"/><object type="OSDev" name="nvml0">'
    '<info name="NVIDIAUUID" value="GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca692"/></object></object>'
)


def node(number, inside=""):
    cpus = f"0x{3 << 2 * number:x}"
    pairs = (2 * number, 2 * number + 1)
    cores = "".join(f'<object type="PU" os_index="{cpu}" cpuset="0x{1 << cpu:x}"/>' for cpu in pairs)
    return (
        f'<object type="Package" os_index="{number}" cpuset="{cpus}">'
        f'<object type="NUMANode" os_index="{number}" cpuset="{cpus}" local_memory="1024"/>'
        f"{cores}{inside}</object>"
    )


def read_devices(inside, beside="", online="0xf"):
    top = f'<object type="Machine" cpuset="{online}">'
    body = f"{top}{node(0)}{node(1, inside)}{beside}</object>"
    return parse_xml(f'<topology version="2.0">{body}</topology>'.encode(), "test", devices=True).devices


def test_a_gpu_in_xml_is_near_the_package_around_it():
    (gpu,) = read_devices(f'<object type="Bridge">{GPU}</object>')
    assert (gpu.name, gpu.address, gpu.vendor, gpu.product) == ("gpu:0", "0000:06:00.0", "10de", "2335")
    assert (gpu.cpus, gpu.node, gpu.partition) == (CpuSet((2, 3)), 1, None)
    assert (gpu.names, gpu.ordinal) == (("cuda0", "nvml0"), 0)
    assert gpu.uuid == "GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca692"
    (gpu,) = read_devices("", f'<object type="Bridge">{GPU}</object>')
    assert (gpu.cpus, gpu.node) == (CpuSet(), None), "its place beside all nodes is not known"
    (gpu,) = read_devices(GPU.replace("0000:", "10000000:"), online="0x7")
    assert (gpu.address, gpu.cpus) == ("10000000:06:00.0", CpuSet([2])), "only online CPUs are near"
    bridge = '<object type="PCIDev" pci_busid="0000:05:00.0" pci_type="0200 [15b3:a2d6]">'
    name = '<object type="OSDev" name="eth0" osdev_type="2"/>'
    gpu, nic = read_devices(f"{bridge}{GPU}{name}</object>")
    assert (gpu.names, nic.names) == (("cuda0", "nvml0"), ("eth0",))


@pytest.mark.parametrize(("uuids", "expected"), [
    (["a3"], ["GPU-00000000000000a3"]),  # hwloc leaves out leading zeros
    (["0"], [""]),  # made anonymous
    (["a3", "a4"], ["GPU-00000000000000a3", "GPU-00000000000000a4"]),
    (["a3", "a3"], ["", ""]),  # partitions that cannot be distinguished
])  # fmt: skip
def test_uuids_of_amd(uuids, expected):
    names = (f'<object type="OSDev" name="rsmi{i}"><info name="AMDUUID" value="{uuid}"/></object>'
             for i, uuid in enumerate(uuids))  # fmt: skip
    start = '<object type="PCIDev" pci_busid="0000:02:00.0" pci_type="1200 [1002:74a0]">'
    devices = read_devices(f"{start}{''.join(names)}</object>")
    assert [device.uuid for device in devices] == expected
    assert [device.partition for device in devices] == ([None] if len(uuids) == 1 else [0, 1])


def test_an_invalid_address_is_an_error_and_an_incomplete_type_is_none():
    for address in ("", "06:00.0", "0000:06:00", "0000:0g:00.0", "0000.06.00.0", "²000:06:00.0"):
        with pytest.raises(MachineError, match="PCI address"):
            read_devices(GPU.replace("0000:06:00.0", address))
    types = {"0302": [""], "0302 [": [""], "0302 [10de": ["10de"], "0302 [:]": [""]}
    for type_ in (*types, "", "xyz [10de:2335]", "03²2 [10de:0]"):
        devices = read_devices(GPU.replace("0302 [10de:2335] [10de:18be] a1", type_))
        assert [device.vendor for device in devices] == types.get(type_, []), type_


def row(cpu, **more):
    return {"cpu": cpu, "node": cpu // 4, "socket": cpu // 4, "core": cpu // 2, "online": True, **more}


CACHES = [f"{cpu // 2}:{cpu // 2}:{cpu // 2}:{cpu // 4}" for cpu in range(8)]
NEW = {"cpus": [row(cpu, **{"l1d:l1i:l2:l3": text}) for cpu, text in enumerate(CACHES)]}
OLD = {"cpus": [{key.replace("cpu", "CPU"): str(value).replace("True", "yes")
                 for key, value in columns.items()} for columns in NEW["cpus"]]}  # fmt: skip


@pytest.mark.parametrize("table", [NEW, OLD], ids=["new", "old"])
def test_lscpu_tables(tmp_path, table):
    machine = read(tmp_path, table)
    assert sets(machine, Level.CORE) == ["0-1", "2-3", "4-5", "6-7"]
    for level in (Level.PACKAGE, Level.L3, Level.NODE):
        assert sets(machine, level) == ["0-3", "4-7"]
    assert [node.number for node in machine.nodes] == [0, 1]
    assert machine.remarks == ()


def test_lscpu_with_bare_dashes_offline_cpus_and_missing_columns(tmp_path):
    """A version of lscpu writes "-" without quotes, which is not JSON."""
    table = ('{"cpu":0,"node":-,"core":0,"maxmhz":-}', '{"cpu":1,"core":0,"mhz": - }', '{"cpu":2,"core":-}')
    machine = read(tmp_path, f'{{"cpus":[{",".join(table)}]}}')
    assert (str(machine.online), str(machine.offline)) == ("0-1", "2")
    assert sets(machine, Level.CORE) == ["0-1"]
    assert machine.remarks == ("not shown by this source: NUMA nodes (all CPUs count as one), caches",)
    machine = read(tmp_path, '{"cpus":[{"cpu":"0","node":"1"},{"cpu":"3","node":"1"}]}')
    assert sets(machine, Level.CORE) == ["0", "3"]
    assert "which CPUs share a core (each counts as a core; lscpu -e shows it)" in machine.remarks[0]


def test_repeated_core_numbers_of_lscpu_are_distinguished_by_caches(tmp_path):
    """On Arm lscpu restarts the core numbers in each cluster; different frequencies show that."""
    table = [row(cpu, core=cpu % 4, socket=0, maxmhz="2000.0" if cpu < 4 else 3000) for cpu in range(8)]
    cached = [{**columns, "l1d:l1i": "{cpu}:{cpu}".format(**columns)} for columns in table]
    machine = read(tmp_path, {"cpus": cached})
    assert len(machine.at(Level.CORE)) == 8
    assert [kind.name for kind in machine.kinds] == ["performance", "efficiency"]
    with pytest.raises(MachineError, match="the core numbers in .* repeat"):
        read(tmp_path, {"cpus": table})


def summary(threads, **more):
    fields = {"Architecture": "x86_64", "On-line CPU(s) list": "0-3", "Off-line CPU(s) list": "4",
              "Thread(s) per core": threads, "Socket(s)": 1, **more}  # fmt: skip
    return [{"field": f"{name}:", "data": str(value)} for name, value in fields.items()]


def test_lscpu_summaries(tmp_path):
    rows_ = [{"field": f"NUMA node{node} CPU(s):", "data": cpus} for node, cpus in ((0, "0-1"), (8, "2-3"))]
    nodes = {"field": "NUMA:", "data": None, "children": rows_}
    machine = read(tmp_path, {"lscpu": [*summary(1), nodes]})
    assert [(node.number, str(node.cpus)) for node in machine.nodes] == [(0, "0-1"), (8, "2-3")]
    assert (sets(machine, Level.PACKAGE), str(machine.offline)) == (["0-3"], "4")
    assert sets(read(tmp_path, {"lscpu": summary(1, **{"Socket(s)": 2})}), Level.PACKAGE) == []
    assert "which CPUs share a core" not in machine.remarks[0]
    machine = read(tmp_path, {"lscpu": summary(2)})
    assert (len(machine.table.cores), "which CPUs share a core" in machine.remarks[0]) == (4, True)


NUMACTL = """$ numactl -H
available: 3 nodes (0-2)
node 0 cpus: 0 1
node 0 size: 715 MB
node 1 cpus: 12 13
node 1 size: 7 GB
node 2 cpus:
node 2 size: 64 MB
node distances:
node   0   1   2
  0:  10  20  30
  1:  20  10  15
  2:  30  15  10
"""
HWLOC_1 = """Machine (16GB)
  NUMANode L#0 (P#0 8GB) + Socket L#0 + L3 L#0 (8MB)
    L2 L#0 (256KB) + L1 L#0 (32KB) + Core L#0
      PU L#0 (P#0)
      PU L#1 (P#2)
  NUMANode L#1 (P#1 8GB) + Socket L#1 + L3 L#1 (8MB) + L2 L#1 (256KB) + Core L#1 + PU L#2 (P#1)
  HostBridge L#0
    PCI 8086:1521
"""
X86 = "".join(
    f"processor\t: {cpu}\nphysical id\t: {cpu // 2}\ncore id\t\t: 0\nflags\t\t: cpu\n\n" for cpu in range(4)
)
ARM = "".join(f"processor\t: {cpu}\nCPU part\t: 0xd05\n\n" for cpu in range(4))
UNKNOWN = "which CPUs share a core (each counts as a core; lscpu -e shows it)"


@pytest.mark.parametrize(("text", "cores", "packages", "nodes", "unknown"), [
    (NUMACTL, "0 1 12 13", "", "0:0-1:715M 1:12-13:7168M 2::64M", (UNKNOWN, "caches")),
    (HWLOC_1, "0,2 1", "0,2 1", "0:0,2:8192M 1:1:8192M", ()),
    (X86, "0-1 2-3", "0-1 2-3", "0:0-3:", ("NUMA nodes (all CPUs count as one)", "caches")),
    (ARM, "0 1 2 3", "", "0:0-3:", (UNKNOWN, "NUMA nodes (all CPUs count as one)", "caches")),
    ("NUMA node0 CPU(s):   0-1\n  NUMA node8 CPU(s):   4,6\n",
     "0 1 4 6", "", "0:0-1: 8:4,6:", (UNKNOWN, "caches")),
    ("CPU SOCKET CORE L1d:L1i:L2:L3 ONLINE\n  0 0 0 0:0:0:0 yes\n  1 0 0 0:0:0:0 yes\n  2 - - :::     no\n",
     "0-1", "0-1", "0:0-1:", ("NUMA nodes (all CPUs count as one)",)),
])  # fmt: skip
def test_texts_as_people_post_them(tmp_path, text, cores, packages, nodes, unknown):
    machine = read(tmp_path, text)
    assert (sets(machine, Level.CORE), sets(machine, Level.PACKAGE)) == (cores.split(), packages.split())
    sizes = [f"{node.memory_bytes >> 20}M" if node.memory_bytes else "" for node in machine.nodes]
    found = [f"{node.number}:{node.cpus}:{size}" for node, size in zip(machine.nodes, sizes, strict=True)]
    assert found == nodes.split()
    assert machine.remarks == ((f"not shown by this source: {', '.join(unknown)}",) if unknown else ())
    for prefix in ("> ", "    "):
        assert read(tmp_path, indent(text, prefix)) == machine
    if text == NUMACTL:
        assert (machine.nodes[0].distances, machine.nodes[2].nearest) == ((10, 20, 30), (1,))


MINIMAL = {"schema": "ompbind-topo/2", "arch": "x", "online": "0", "allowed": "0", "cpus": [{"cpu": 0}],
           "nodes": [{"node": 0, "cpus": "0"}]}  # fmt: skip
DEVICE = {"device": "gpu:1", "kind": "gpu", "address": "0000:06:00.0", "partition": 0, "class": "0302",
          "vendor": "10de", "product": "2335", "cpus": "0", "node": 0, "names": ["card1"],
          "rdma_names": [], "uuid": "GPU-1", "ordinal": 3, "physical": None,
          "excluded": "used by another program"}  # fmt: skip


DAMAGED = [
    {"online": ""}, {"online": "0-"}, {"online": 3}, {"allowed": "7"}, {"cpus": []}, {"cpus": None},
    {"cpus": [{"cpu": 0, "core": "x"}]}, {"cpus": [{"cpu": -1}]}, {"cpus": [{"cpu": True}]},
    {"nodes": 1}, {"quota_cpus": []}, {"quota_cpus": -1}, {"quota_cpus": float("nan")},
    {"nodes": [{"node": 0, "cpus": "0", "memory_bytes": -1}]}, {"kinds": [{"kind": "odd", "cpus": "0"}]},
    {"os_ids": [{"level": "package", "index": 0, "os_id": None}]}, {"caches": [{"level": "l3"}]},
    {"caches": [{"level": "l9", "size_bytes": 1, "indexes": "0"}]},
    {"caches": [{"level": "l3", "size_bytes": "1", "indexes": "0"}]},
]  # fmt: skip
DAMAGED_DEVICES = [
    {"device": "gpu"}, {"device": "gpu:x"}, {"device": "nic:1"}, {"kind": "cpu", "device": "cpu:0"},
    {"device": 3}, {"address": "06:00.0"}, {"address": None}, {"partition": -1}, {"class": 302},
    {"cpus": "x"}, {"cpus": "0-1"}, {"node": "0"}, {"names": 3}, {"names": [3]}, {"rdma_names": None},
    {"uuid": 3}, {"ordinal": True},
]  # fmt: skip


@pytest.mark.parametrize(
    "change", [*DAMAGED, *({"devices": [{**DEVICE, **change}]} for change in DAMAGED_DEVICES)]
)
def test_damaged_json_of_ompbind_is_an_error(tmp_path, change):
    text = {**MINIMAL, **change}
    with pytest.raises(MachineError, match="is not valid ompbind-topo/2") as caught:
        read(tmp_path, text, devices=True)
    assert not re.search("object|indices|argument|float", caught.value.message)
    if "devices" in change:
        assert read(tmp_path, text).devices == ()  # a run without devices does not read them


def test_devices_in_json_of_ompbind(tmp_path):
    machine = read(tmp_path, {**MINIMAL, "devices": [DEVICE]}, devices=True)
    assert [device_record(device) for device in machine.devices] == [DEVICE]
    assert read(tmp_path, MINIMAL, devices=True).devices == ()  # of earlier versions
    odd = {**DEVICE, "names": ["eth\x1b[2J"], "excluded": "a\nb"}
    machine = read(tmp_path, {**MINIMAL, "devices": [odd]}, devices=True)
    assert (machine.devices[0].names, machine.devices[0].excluded) == (("eth?[2J",), "a?b")
    for change in ({"device": "gpu:7"}, {"address": "0000:77:00.0"}, {}):
        with pytest.raises(MachineError, match="'devices' has a device twice"):
            read(tmp_path, {**MINIMAL, "devices": [DEVICE, {**DEVICE, **change}]}, devices=True)


@pytest.mark.parametrize(("text", "packages", "nodes", "cores"), rows("""
    pu:3                                                |                 | 0-2     | 0 1 2
    pack:2 core:2 pu:2                                  | 0-3 4-7         | 0-7     | 0-1 2-3 4-5 6-7
    Package:2 Core:2 PU:2(indexes=4*2:2*2:1*2)          | 0,2,4,6 1,3,5,7 | 0-7     | 0,4 2,6 1,5 3,7
    pack:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)         | 0,2,4,6 1,3,5,7 | 0-7     | 0,4 2,6 1,5 3,7
    socket:1 node:2(memory=2GB indexes=1,0) l3:1(size=16MB) l2:2 l1d:1 core:1 pu:1 | 0-3 | 0-1 2-3 | 0 1 2 3
    (memory=1GB) [numa] group:2 pack:1 [NUMANode(memory=1GiB)] pu:2 | 0-1 2-3 | 0-1 2-3 | 0 1 2 3
"""))  # fmt: skip
def test_descriptions(text, packages, nodes, cores):
    machine = read_machine(f"synthetic:{text}")
    for level, expected in ((Level.PACKAGE, packages), (Level.NODE, nodes), (Level.CORE, cores)):
        assert sets(machine, level) == expected.split()
    assert {cache.size_bytes for cache in machine.at(Level.L3)} <= {16_000_000}


def test_memory_of_descriptions():
    machine = parse_synthetic("[numa(memory=8TiB)] pack:2 [numa(memory=3kB indexes=5,0)] [numa] pu:1", "s")
    with_cpus = [(0, "1", 3000, ()), (1, "0", 0, ())]
    assert nodes_of(machine) == [*with_cpus, (2, "", 0, (0,)), (3, "", 8 << 40, ()), (5, "", 3000, (1,))]


@pytest.mark.parametrize(("text", "match"), [
    ("", "the last step is not pu"), ("pack:2 core:4", "the last step"), ("pu:2 core:2", "after pu"),
    ("pack:0 pu:1", "count in pack:0 is not positive"), ("pu:2 pu:2", "after pu"),
    ("pack:2 odd", "'odd' is not TYPE"), ("foo:2 pu:1", "unknown type 'foo'"), ("2 3", "'2' is not TYPE"),
    ("core:2 core:1 pu:1", "appears twice"), ("core:2 pack:2 pu:1", "pack is inside core"),
    ("pack:4097 pu:2", "8194 CPUs are more"), ("pack:9999999 core:9999999 pu:9", "CPUs are more"),
    ("pack:1025 numa:1 pu:1", "1025 NUMA nodes"), ("numa:512 [numa] [numa] pu:1", "1536 NUMA nodes"),
    ("core:2 pu:2(indexes=0,1,2)", "different numbers to 4 objects"),
    ("pu:2(indexes=0,0)", "different numbers to 2 objects"),
    ("pu:2(indexes=2*2:1*1)", "does not give different numbers"),
    ("pu:2(indexes=70000,1)", "does not give different numbers"),
    ("core:2 pu:2(indexes=core)", "neither a list of numbers nor loops"), ("[core] pu:2", "is not a memory"),
    ("numa:2(memory=lots) pu:1", "memory=lots is not a size"),
    ("l3:2(size=big) pu:1", "size=big is not a size"),
    ("l3:2(32MiB) pu:1", r"'32mib' in \(32mib\) is not an attribute: write \(size=32mib\)"),
    ("l3:2(sise=32MB) pu:1", r"'sise=32mb' in .* write \(size=32mb\)"),
    ("[numa(size=1GB)] pu:1", r"write \(memory=1gb\)"),
])  # fmt: skip
def test_invalid_descriptions_are_errors(text, match):
    with pytest.raises(MachineError, match=match) as caught:
        read_machine(f"synthetic:{text}")
    assert "synthetic:pack:2" in caught.value.hint or "at most" in caught.value.hint
