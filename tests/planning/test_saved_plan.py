"""Plans that were made before: equal on an equal machine, refused on others, and never trusted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind import Request, make_plan, parse_mask, read_machine
from ompbind.cpuset import CpuSet
from ompbind.errors import OmpbindError, OptionError, PlanError
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.fingerprint import make_fingerprint
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.rank_command import RunSpec, make_local_identities, make_variables
from ompbind.planning.request import MemoryMode, VisibleDevices
from ompbind.planning.saved_plan import parse_saved_plan
from ompbind.report.machine_text import device_record
from ompbind.report.plan_json import plan_record
from tests.machines import Shape, make_machine
from tests.recordings import name_of, recorded, sampled

MACHINE = make_machine(Shape(packages=2, cores=4, smt=2))
GPUS = tuple(
    Device(kind=DeviceKind.GPU, index=index, address=f"0000:0{index}:00.0", cpus=node.cpus, node=index)
    for index, node in enumerate(MACHINE.nodes)
)


def save(plan):
    """The JSON value of a plan, as a program reads it; the variables of ranks have no effect."""
    return json.loads(json.dumps(plan_record(plan, [{}] * len(plan.placements))))


def load(plan):
    return parse_saved_plan(save(plan), "plan.json")


REQUESTS = (
    Request(ranks=2),
    Request(ranks=3, bind=Bind.THREAD, proc_bind=ProcBind.SPREAD, smt="all"),
    Request(ranks=2, bind=Bind.EXACT, memory=MemoryMode.BIND),
    Request(ranks=2, bind=Bind.CORE, service_total=2, memory=MemoryMode.INTERLEAVE),
    Request(ranks=1, reserve=1),
    Request(ranks=2, mask=parse_mask("none")),
    Request(ranks=2, strategy="all"),
    Request(ranks=2, processes_per_rank=3),
)


def check_round_trip(machine, request):
    """Placements are equal, also with other options that the plan decides."""
    try:
        plan = make_plan(machine, request)
    except PlanError:  # a machine with too few cores, or without devices
        return False
    again = make_plan(machine, Request(plan=load(plan), visible=request.visible))
    assert again.placements == plan.placements
    assert (again.idle, again.reserved) == (plan.idle, plan.reserved)
    assert (again.request.bind is Bind.NONE) == (plan.request.bind is Bind.NONE or plan.request.is_unbound)
    assert again.request.proc_bind is plan.request.proc_bind
    spec = RunSpec(argv=("app",), run_id="x", base={})
    first, second = ([make_variables(p, i, spec) for i in make_local_identities(p)] for p in (plan, again))
    assert first == second
    return True


@pytest.mark.parametrize("request_", REQUESTS, ids=range(len(REQUESTS)))
def test_a_plan_is_the_same_on_an_equal_machine(request_):
    assert check_round_trip(MACHINE, request_)


UNREADABLE = "hwloc-1alpha"  # without CPUs
DUMPS = [path for path in recorded("dumps/*.tar.gz") if name_of(path) != UNREADABLE]


@pytest.mark.parametrize("path", sampled(DUMPS + recorded("xml/*.xml")))
def test_a_plan_is_the_same_on_each_recorded_machine(path):
    machine = read_machine(str(path), devices=path.suffix == ".xml")
    made = [check_round_trip(machine, request) for request in REQUESTS]
    assert any(made)  # two ranks need two cores
    visible = find_visible_devices(machine.devices, {})
    for devices in ((DeviceKind.GPU,), (DeviceKind.GPU, DeviceKind.NIC)):
        check_round_trip(machine, Request(ranks=2, devices=devices, visible=visible, share_devices=True))


@pytest.mark.parametrize(("changes", "text"), [
    ({"packages": 1, "nodes": 2}, "its machine has 2 packages and dies, this machine 1"),
    ({"cores": 2}, "its machine has 16 CPUs, this machine 8"),
    ({"cores": 8, "smt": 1}, "its machine has 8 cores, this machine 16"),
    ({"numbering": "adjacent"}, "the cores differ"),
    ({"nodes": 2, "cores": 2}, "its machine has 2 NUMA nodes, this machine 4"),
    ({"l3s": 2, "cores": 2}, "its machine has 2 caches, this machine 4"),
])  # fmt: skip
def test_a_plan_for_another_machine_is_refused_and_the_error_says_what_differs(changes, text):
    saved = load(make_plan(MACHINE, Request(ranks=2)))
    shape = {"packages": 2, "nodes": 1, "cores": 4, "smt": 2, **changes}
    with pytest.raises(PlanError, match=f"^plan.json is a plan for another machine: {text}$"):
        make_plan(make_machine(Shape(**shape)), Request(plan=saved))


NODES = MACHINE.nodes


@pytest.mark.parametrize(("changes", "is_equal"), [
    ({"allowed": CpuSet(range(4))}, True), ({"quota": 2.0}, True),
    ({"memory_allowed": CpuSet((0,))}, True),
    ({"remarks": ("something was corrected",), "source": "machine.json"}, True),
    ({"offline": CpuSet((16,))}, True),
    ({"nodes": tuple(node.replace(memory_bytes=node.memory_bytes - 4096) for node in NODES)}, True),
    ({"isolated": CpuSet((3,))}, False), ({"nohz_full": CpuSet((3,))}, False),
    ({"arch": "riscv64"}, False), ({"nodes": tuple(node.replace(memory_bytes=0) for node in NODES)}, False),
    ({"nodes": tuple(node.replace(distances=(10, 20)) for node in NODES)}, False),
])  # fmt: skip
def test_the_fingerprint_has_what_plans_depend_on_and_not_what_varies(changes, is_equal):
    assert (make_fingerprint(MACHINE.replace(**changes)) == make_fingerprint(MACHINE)) == is_equal


@pytest.mark.parametrize(("options", "changes", "text"), [
    ({}, {"allowed": CpuSet(range(6))}, "rank 1: CPUs 6-7 of plan.json are not allowed$"),
    ({"memory": MemoryMode.BIND}, {"memory_allowed": CpuSet((0,))},
     "rank 1: the memory of NUMA node 1 of plan.json is not allowed"),
    ({}, {"arch": "riscv64"}, ".*architecture is test, that of this machine riscv64"),
])  # fmt: skip
def test_what_this_machine_does_not_allow_is_an_error_that_names_the_rank(options, changes, text):
    saved = load(make_plan(MACHINE, Request(ranks=2, **options)))
    with pytest.raises(PlanError, match=f"^{text}"):
        make_plan(MACHINE.replace(**changes), Request(plan=saved))


def with_gpus(*, visible=GPUS):
    machine = MACHINE.replace(devices=GPUS)
    plan = make_plan(machine, Request(ranks=2))
    pairs = zip(plan.placements, GPUS, strict=True)
    placements = [placement.replace(devices=(gpu,)) for placement, gpu in pairs]
    saved = load(plan.replace(placements=tuple(placements)))
    return machine, Request(plan=saved, visible=VisibleDevices(devices=visible))


def test_devices_are_found_by_their_address_and_must_be_visible():
    renamed = tuple(gpu.replace(index=1 - gpu.index, uuid="GPU-1") for gpu in reversed(GPUS))
    machine, request = with_gpus(visible=renamed)
    plan = make_plan(machine.replace(devices=renamed), request)
    assert [placement.devices[0].address for placement in plan.placements] == [gpu.address for gpu in GPUS]
    assert plan.placements[0].devices[0].uuid == "GPU-1"
    machine, request = with_gpus(visible=GPUS[:1])
    with pytest.raises(PlanError, match=r"^rank 1: gpu:1 \(0000:01:00.0\) of plan.json is not visible$"):
        make_plan(machine, request)


def test_gpus_of_a_plan_with_gpus_must_be_the_same():
    machine, request = with_gpus()
    more = (*GPUS, GPUS[0].replace(index=2, address="0000:09:00.0"))
    for devices in ((), more):
        with pytest.raises(PlanError, match=f"its machine has 2 GPUs, this machine {len(devices)}"):
            make_plan(machine.replace(devices=devices), request)
    assert make_plan(machine, Request(plan=load(make_plan(MACHINE, Request(ranks=2))))).placements
    nic = Device(kind=DeviceKind.NIC, index=0, address="0000:0a:00.0")
    assert make_plan(machine.replace(devices=(*GPUS, nic)), request).placements


def change(data, path, value):
    data = inner = json.loads(json.dumps(data))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


GPU = device_record(Device(kind=DeviceKind.GPU, index=0, address="0000:01:00.0"))
SAVED = save(make_plan(MACHINE, Request(ranks=2, service_total=2)))


@pytest.mark.parametrize(("path", "value", "text"), [
    (("schema",), "ompbind-topo/1", "schema is 'ompbind-topo/1', not 'ompbind-plan/2'"),
    (("ranks",), [], "ranks is empty"), (("ranks", 1), 7, "ranks[1] is not an object"),
    (("ranks", 1, "rank"), 0, "ranks[1].rank is 0, not 1"),
    (("ranks", 1, "cpus"), [4, 4], "ranks[1] has a CPU twice"),
    (("ranks", 1, "cpus"), [4, "5"], "ranks[1].cpus has '5', not a number from 0 to"),
    (("ranks", 1, "cpus"), [4, -5], "ranks[1].cpus has -5, not a number from 0 to"),
    (("ranks", 1, "cpus"), [True], "ranks[1].cpus has True, not a number from 0 to"),
    (("ranks", 0, "places"), ["0-99"], "ranks[0].places has CPUs 4-99, which the rank has not"),
    (("ranks", 0, "places"), ["zero"], "ranks[0].places[0]: "),
    (("ranks", 0, "places"), ["0", "1"] * 9999, "ranks[0].places is too long for OMP_PLACES"),
    (("ranks", 0, "threads"), 0, "ranks[0].threads is 0"),
    (("ranks", 0, "threads"), 1 << 16, "ranks[0].threads has 65536, not a number from 0 to 65535"),
    (("ranks", 0, "processes"), 0, "ranks[0].processes is 0"),
    (("ranks", 0, "service_cpus"), "0", "ranks[0] has a CPU twice"),
    (("ranks", 0, "devices"), [GPU, GPU], "ranks[0] has a device twice"),
    (("ranks", 0, "reserved"), "0-1", "CPUs 0-1 are reserved, but ranks have them"),
    (("request", "bind"), "glue", "request.bind is 'glue', not rank, core, thread, exact, none"),
    (("machine", "fingerprint"), {}, "machine.fingerprint.arch is missing"),
])  # fmt: skip
def test_a_wrong_value_is_an_error_that_names_it(path, value, text):
    with pytest.raises(OptionError) as caught:
        parse_saved_plan(change(SAVED, path, value), "plan.json")
    assert caught.value.message.startswith(f"plan.json is not a plan: {text}")


def find_paths(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from find_paths(item, (*path, key))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("0-3"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(path=st.sampled_from([*find_paths(SAVED)][1:]), value=ANYTHING)
def test_a_file_with_any_value_gives_a_plan_or_an_explained_error(path, value):
    with pytest.raises(OptionError):
        parse_saved_plan(value, "plan.json")
    try:
        plan = make_plan(MACHINE, Request(plan=parse_saved_plan(change(SAVED, path, value), "plan.json")))
    except OmpbindError as error:
        assert error.message
        assert error.hint
    else:
        assert all(placement.cpuset <= MACHINE.allowed for placement in plan.placements)
        assert all(place <= p.cpuset for p in plan.placements for place in p.places)
