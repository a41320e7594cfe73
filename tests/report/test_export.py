"""Plans for other launchers: read back, each gives every rank the CPUs and devices that the plan gives it.

The readers are written from the manuals of the tools; tests/live/test_exports.py asks the tools themselves.
"""

import re
import shlex
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.plan import FORMATS
from ompbind.commands.environment import RunSpec, make_identities, make_variables
from ompbind.commands.placeholders import parse_assignment
from ompbind.errors import RequestError
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind
from ompbind.planning.memory import add_policies
from ompbind.planning.plan import MemoryPolicy
from ompbind.planning.planner import make_plan
from ompbind.planning.request import MemoryMode, Request, Sharing
from tests.machines import Shape, make_machine
from tests.planning.devices.gpus import ROCM_UUIDS, UUIDS, make_amd_gpus, make_gpu, make_nic, make_nvidia_gpus
from tests.planning.devices.test_variables import one_each, planned
from tests.report.test_picture import plans

SERVERS = {"vllm": "VLLM_CPU_OMP_THREADS_BIND", "sglang": "SGLANG_CPU_OMP_THREADS_BIND"}
DUAL = Shape(packages=2, cores=4, smt=2)


def variables_of(plan, *added_variables):
    added = tuple(parse_assignment(text) for text in added_variables)
    spec = RunSpec(argv=(), run_id="plan", base={}, added_variables=added)
    return [make_variables(plan, identity, spec) for identity in make_identities(len(plan.placements))]


def render(name, plan, *added_variables):
    row = FORMATS[name]
    if row.takes != "variables":
        return [row.render(plan)]
    variables = variables_of(plan, *added_variables)
    if row.ranks != "one":
        return [row.render(plan, variables)]
    ranks = (plan.replace(placements=(placement,)) for placement in plan.placements)
    return [row.render(rank, [own]) for rank, own in zip(ranks, variables, strict=True)]


def made(shape=DUAL, machine=None, **options):
    mask = options.pop("mask", None)
    request = Request(mask=parse_mask(mask) if mask else None, **options)
    return make_plan(machine or make_machine(shape), request)


def listed(text):
    """The numbers of a list such as 0-3,8: decimal numbers and rising ranges, and nothing else."""
    numbers = []
    for item in text.split(","):
        first, last = re.fullmatch(r"(\d+)(?:-(\d+))?", item).groups()
        assert int(first) < int(last or int(first) + 1), item
        numbers += range(int(first), int(last or first) + 1)
    assert len(set(numbers)) == len(numbers), text
    return set(numbers)


def bits(text):
    assert re.fullmatch(r"0x[0-9a-f]+", text), text
    return {place for place, digit in enumerate(reversed(f"{int(text, 16):b}")) if digit == "1"}


def option(words, name):
    found = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    assert len(found) <= 1
    return found[0] if found else None


def read_lines(texts, command, cpus, nodes):
    """Read a line of shell words for each rank: CPUs and nodes of each."""
    for line in texts[0].splitlines():
        words = shlex.split(line)
        assert words[: len(command)] == command
        memory = option(words, nodes)
        yield listed(option(words, cpus) or words[2]), memory and listed(memory)


def read_server(texts, variable):
    """As vLLM and SGLang read their variables: a list for each rank, of numbers and ranges with commas."""
    command, assignment, *nodes = shlex.split(texts[0])
    assert (command, assignment.partition("=")[0]) == ("export", variable)
    assert not nodes or nodes[1].count(",") == assignment.count("|")
    return [(listed(part), None) for part in assignment.partition("=")[2].split("|")]


def read_slurm(texts):
    words = shlex.split(texts[0])
    masks = {name: option(words, name) for name in ("--cpu-bind", "--mem-bind")}
    assert masks["--cpu-bind"].startswith("mask_cpu:")
    assert (masks["--mem-bind"] or "mask_mem:").startswith("mask_mem:")
    cpus, nodes = (list(map(bits, text[9:].split(","))) if text else None for text in masks.values())
    assert option(words, "--ntasks") == str(len(cpus))
    return zip(cpus, nodes or [None] * len(cpus), strict=True)


def read_compose(texts):
    """Read the services without a parser of YAML, and the comment on what Compose cannot give."""
    for service in texts[0].split("\n  rank-")[1:]:
        nodes = re.search(r"# .* NUMA nodes (\S+) ", service)
        yield listed(re.search(r'^    cpuset: "(.+)"$', service, re.M)[1]), nodes and listed(nodes[1])


def read_systemd(texts):
    """Read as systemd does: an empty assignment resets the earlier ones."""
    for text in texts:
        head, *lines = text.splitlines()
        assert head == "[Service]"
        settings = {"CPUAffinity": "77", "NUMAMask": "99"}  # settings of the unit itself
        for name, _, value in (line.partition("=") for line in lines):
            if name in settings:
                settings[name] = f"{settings[name]},{value}".strip(",") if value else ""
        memory = settings["NUMAMask"]
        yield listed(settings["CPUAffinity"]), None if memory == "99" else listed(memory)


READ = {
    "taskset": lambda texts: read_lines(texts, ["taskset", "-c"], "none", "none"),
    "numactl": lambda texts: read_lines(texts, ["numactl"], "--physcpubind", "--membind"),
    "docker": lambda texts: read_lines(texts, [], "--cpuset-cpus", "--cpuset-mems"),
    "compose": read_compose,
    "vllm": lambda texts: read_server(texts, SERVERS["vllm"]),
    "sglang": lambda texts: read_server(texts, SERVERS["sglang"]),
    "slurm": read_slurm, "systemd": read_systemd,
}  # fmt: skip


@given(plans())
def test_ranks_have_the_same_cpus_when_read_back(plan):
    bound = add_policies(plan.replace(request=plan.request.replace(memory=MemoryMode.BIND)))
    for name, read in READ.items():
        ranks = list(read(render(name, plan)))
        is_server = name in SERVERS
        given = [rank.cpus[: rank.threads] if is_server else rank.cpuset for rank in plan.placements]
        assert ranks == [(set(cpus), None) for cpus in given]
        if name in ("numactl", "docker", "compose", "systemd", "slurm"):
            nodes = [set(placement.memory_nodes) for placement in plan.placements]
            assert [nodes for _, nodes in read(render(name, bound))] == nodes
        assert not any(cpu in plan.reserved for cpus, _ in ranks for cpu in cpus)


@pytest.mark.parametrize(("name", "options", "text"), [
    ("taskset", {"ranks": 2, "service_cores": 1, "reserve": 1}, "taskset -c 0-2,10\ntaskset -c 4-6,14"),
    ("vllm", {"mask": "none", "ranks": 2}, "export VLLM_CPU_OMP_THREADS_BIND=nobind"),
    ("vllm", {"mask": "9,4-7|0-3", "threads": 2, "ranks": "auto"},
     "export VLLM_CPU_OMP_THREADS_BIND='4,9|0-1'\nexport CPU_VISIBLE_MEMORY_NODES=0,0"),
    ("sglang", {"ranks": 2, "service_cores": 1}, "export SGLANG_CPU_OMP_THREADS_BIND='0-2|4-6'"),
    ("slurm", {"ranks": 17, "mask": "0", "sharing": Sharing.SHARE},
     f"--nodes=1 --ntasks=17 --overcommit --cpu-bind=mask_cpu:{','.join(['0x1'] * 17)}"),
])  # fmt: skip
def test_what_is_printed(name, options, text):
    assert render(name, made(**options)) == [text]


VALUES = ('it\'s "quoted" \\ $HOME ${x} `y` 100% %h é', "", " space ", "a\tb", "#;x", "\\", "'", '"')
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="{"))


@given(TEXT | st.sampled_from(["\t", "a\nb", *VALUES]))
def test_values_of_systemd_are_escaped(value):
    """Read by the rules of systemd.syntax(7): C escapes inside of quotes, and doubled percent characters."""
    text = render("systemd", made(ranks=1), f"X={value}")[0]
    quoted = next(line for line in text.split("\n") if line.startswith('Environment="X='))
    assert quoted.endswith('"')
    inside = quoted.removeprefix('Environment="X=')[:-1]
    plain = re.sub(r"%(.)", r"\1", inside)
    assert inside.count("%") == 2 * value.count("%")
    meaning = {"\\": "\\", '"': '"', "n": "\n", "t": "\t"}
    assert re.sub(r"\\(.)", lambda match: meaning[match[1]], plain) == value
    assert "UnsetEnvironment=KMP_AFFINITY" in text.split("\n")


@pytest.mark.parametrize(("name", "value"), [
    ("systemd", "a\rb"), ("systemd", "\x1b[0m"), ("systemd", "\x7f"), ("systemd", "\udce9"),
    ("docker", "a\nb"), ("env", "a\nb"),
])  # fmt: skip
def test_values_that_a_tool_would_not_read_are_refused(name, value):
    with pytest.raises(RequestError, match="the value of X has"):
        render(name, made(ranks=1), f"X={value}")


@pytest.mark.parametrize(("quota", "options", "docker", "kubernetes"), [
    (None, {"ranks": 2}, [None, None], "8 8"), (1.5, {}, ["1.5"], "1"), (0.001, {}, ["0.01"], "1"),
    (2.5, {"ranks": 2}, ["1.25", "1.25"], "1 1"), (3.0, {"mask": "0-3|4-5", "ranks": 2}, ["2", "1"], "2 1"),
    (6.0, {"mask": "0-3|4-5", "ranks": 2}, [None, None], "8 4"),  # the CPUs limit as much
    (None, {"mask": "0|8", "ranks": 2}, [None, None], "1 1"),  # two ranks on one core
])  # fmt: skip
def test_containers_divide_the_quota_and_in_kubernetes_have_whole_cpus(quota, options, docker, kubernetes):
    plan = made(machine=make_machine(DUAL, quota=quota), **options)
    lines = render("docker", plan)[0].splitlines()
    assert [option(shlex.split(line), "--cpus") for line in lines] == docker
    assert re.findall("^    cpus: (.*)$", render("compose", plan)[0], re.M) == [*filter(None, docker)]
    found = re.findall(r'requests: {cpu: "(\d+)"}\n +limits: {cpu: "\1"}', render("kubernetes", plan)[0])
    assert found == kubernetes.split()


SPECIAL = ("a\nb", "\x85\u2028\x7f\x9f\ufeff\U0001f600\udce9", "$(A) $$B", *VALUES[1:])


@given(st.text(st.characters(exclude_characters="{\0")) | st.sampled_from(SPECIAL))
def test_any_value_is_right_in_yaml(yaml, value):
    """Compose and Kubernetes read $$ as $, which keeps both from filling in variables."""
    plan = made(ranks=2, mask="0-3|4-7")
    services = yaml.safe_load(render("compose", plan, f"X={value}")[0])["services"]
    containers = yaml.safe_load(render("kubernetes", plan, f"X={value}")[0])["containers"]
    pods = [{pair["name"]: pair["value"] for pair in container["env"]} for container in containers]
    for number, (service, pod) in enumerate(zip(services.values(), pods, strict=True)):
        for environment in (service["environment"], pod):
            assert (environment["X"], environment["RANK"]) == (value.replace("$", "$$"), str(number))
        assert service["environment"]["OMPBIND_CPUS"] == service["cpuset"] == ("0-3", "4-7")[number]
        assert not pod.keys() & {"OMP_PLACES", "OMP_PROC_BIND", "OMPBIND_CPUS"}, "the kubelet chooses CPUs"


def test_limits_of_slurm():
    """The last number that Slurm reads, and the first that it does not."""
    plan = made(ranks=1, mask="0", machine=make_machine(Shape(cores=1200)))
    (only,) = plan.placements

    def line(*nodes, **changes):
        memory = MemoryPolicy(mode=MemoryMode.BIND, nodes=nodes, main_node=nodes[0]) if nodes else None
        return render("slurm", plan.replace(placements=(only.replace(memory=memory, **changes),)))[0]

    assert line(cpus=(3, 64, 1199)).endswith(f"mask_cpu:{(1 << 1199) + (1 << 64) + 8:#x}")
    assert f"mask_mem:{1 << 127:#x}" in line(127)
    with pytest.raises(RequestError, match="nodes 0 to 127 only, rank 0 has 0,128"):
        line(0, 128)


@pytest.mark.parametrize("name", READ)
def test_ranks_that_are_not_bound(name):
    """By --bind none ranks are confined all the same, but servers get no CPUs."""
    plan = made(machine=make_machine(DUAL, bindable=False), ranks=1)
    if name == "vllm":
        assert render(name, plan) == ["export VLLM_CPU_OMP_THREADS_BIND=nobind"]
    else:
        with pytest.raises(RequestError, match="cannot confine"):
            render(name, plan)
    if name in SERVERS or name == "taskset":
        with pytest.raises(RequestError, match="no option for --memory interleave") as caught:
            render(name, made(ranks=2, memory=MemoryMode.INTERLEAVE))
        assert ("ompbind exec" in caught.value.hint) == (name not in SERVERS), "servers start their workers"
    unbound = made(ranks=2, bind=Bind.NONE)
    if name not in SERVERS:
        assert list(READ[name](render(name, unbound))) == list(READ[name](render(name, made(ranks=2))))
        return
    with pytest.raises(RequestError, match="--bind none excludes that"):
        render(name, unbound)
    limited = made(machine=make_machine(DUAL).replace(quota=5), ranks=2)  # a server starts a thread per CPU
    assert render(name, limited)[0].splitlines()[0] == f"export {SERVERS[name]}='0-1|4-5'"


def test_words_of_docker_survive_a_shell():
    for value in VALUES:
        words = shlex.split(render("docker", made(ranks=1), f"X={value}")[0])
        values = [after for before, after in pairwise(words) if before == "--env"]
        assert f"X={value}" in values
        assert "OMP_PLACES={0,1,2,3,4,5,6,7}" in values
        assert not [value for value in values if value.startswith("KMP_AFFINITY")]


NVIDIA = make_nvidia_gpus(4)
PAIRS = [NVIDIA[:2], NVIDIA[2:]]


def test_slurm_gets_a_mask_of_gpus_by_address_for_each_task():
    assert "--gpus-per-node=4 --gpu-bind=mask_gpu:0x3,0xc" in render("slurm", planned(NVIDIA, PAIRS, {}))[0]
    assert "gpu" not in render("slurm", planned(NVIDIA, [[], []], {}))[0]
    swapped = tuple(gpu.replace(index=3 - gpu.index) for gpu in NVIDIA)
    plan = planned(swapped, [[swapped[0]], [swapped[3]]], {"CUDA_VISIBLE_DEVICES": "0,3"})
    assert "--gpu-bind=mask_gpu:0x1,0x8" in render("slurm", plan)[0]
    gpus = (make_gpu(0, uuid=UUIDS[0]), make_amd_gpus(2)[1].replace(address="0000:21:00.0"))
    with pytest.raises(RequestError, match="several vendors"):
        render("slurm", planned(gpus, one_each(gpus), {}))


def render_docker(gpus, ranks):
    return shlex.split(render("docker", planned(gpus, ranks, {}))[0].splitlines()[-1])


def test_docker_gets_nvidia_gpus_by_uuid_as_one_row_of_csv_and_device_files_of_amd_gpus():
    words = render_docker(NVIDIA, PAIRS)
    assert words[words.index("--gpus") + 1] == f'"device={UUIDS[2]},{UUIDS[3]}"'
    assert f"CUDA_VISIBLE_DEVICES={UUIDS[2]},{UUIDS[3]}" in words
    gpus = make_nvidia_gpus(4, with_uuids=False)  # numbers, and no indices of the host
    words = render_docker(gpus, [gpus[2:]])
    assert words[words.index("--gpus") + 1] == '"device=2,3"'
    assert not [word for word in words if word.startswith("CUDA_VISIBLE_DEVICES")]
    gpus = tuple(gpu.replace(names=("card1", f"renderD{128 + gpu.index}")) for gpu in make_amd_gpus(2))
    words = render_docker(gpus, one_each(gpus))
    devices = [word for word in words if word.startswith("--device")]
    assert devices == ["--device=/dev/kfd", "--device=/dev/dri/renderD129"]
    assert f"ROCR_VISIBLE_DEVICES={ROCM_UUIDS[1]}" in words
    partition = (make_gpu(0).replace(partition=0),)
    for gpus, why in ((partition, "MIG"), (make_amd_gpus(1), "device file of gpu:0 is not known")):
        with pytest.raises(RequestError, match=why):
            render_docker(gpus, one_each(gpus))


def test_formats_for_other_launchers_either_have_the_devices_or_lack_them():
    plan = planned((*NVIDIA, make_nic(0, "mlx5_0")), PAIRS, {})
    for name, row in FORMATS.items():
        if row.takes != "screen":
            text = render(name, plan)[0]
            has_gpus = UUIDS[0] in text or "mask_gpu" in text or name == "svg"
            assert has_gpus != row.lacks_devices, name
