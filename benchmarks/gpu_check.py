"""Check devices on a machine with NVIDIA GPUs: the UUIDs that ompbind reads, and the variable that it writes.

    python benchmarks/gpu_check.py

ompbind reads UUIDs without a library of NVIDIA. This compares them with the answers of the driver: of
`nvidia-smi -L`, and of the CUDA library in ranks that `ompbind run --devices gpu` starts, one per GPU. Each
rank must see exactly its GPU. Without a GPU that ranks can get, it prints that and why. The exit code is 1 if
an answer differs, else 0.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.rounds import make_parser
from ompbind.machine.devices import NVIDIA, Device, DeviceKind
from ompbind.machine.read import read_machine

ASK_CUDA = """
import ctypes, json, os, sys
cuda = ctypes.CDLL(sys.argv[1])
count, device, uuids = ctypes.c_int(), ctypes.c_int(), []
error = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
for index in range(count.value):
    uuid = ctypes.create_string_buffer(16)
    error = error or cuda.cuDeviceGet(ctypes.byref(device), index) or cuda.cuDeviceGetUuid(uuid, device)
    uuids.append(uuid.raw.hex())
answer = {"rank": os.environ.get("OMPBIND_RANK"), "variable": os.environ.get("CUDA_VISIBLE_DEVICES")}
os.write(1, (json.dumps({**answer, "error": error, "uuids": uuids}) + "\\n").encode())
"""
"""A program that prints what the CUDA library shows; its argument is the path of the library."""


def read_digits(uuid: str) -> str:
    """Return the 32 hexadecimal digits of a UUID like "GPU-46f77619-…"."""
    return uuid.partition("-")[2].replace("-", "").lower()


def parse_listing(text: str) -> list[str]:
    """Return the UUIDs of the GPUs that `nvidia-smi -L` lists, without its MIG instances."""
    return re.findall(r"^GPU \d+: .*\(UUID: (GPU-[0-9a-f-]+)\)$", text, re.MULTILINE)


def check_listing(gpus: Sequence[Device], listed: Sequence[str]) -> Iterator[str]:
    """Yield how the UUIDs that ompbind reads differ from those of `nvidia-smi`."""
    read = {gpu.uuid for gpu in gpus if gpu.uuid and gpu.partition is None}
    for gpu in gpus:
        if not gpu.uuid:
            yield f"{gpu} at {gpu.address}: ompbind knows no UUID"
    if unknown := read - set(listed):
        yield f"nvidia-smi does not list {', '.join(sorted(unknown))}"


def check_answers(expected: Sequence[str], answers: Sequence[dict[str, object]]) -> Iterator[str]:
    """Yield how the GPUs that ranks see differ from the UUIDs that the plan gives them, by rank."""
    if len(answers) != len(expected):
        yield f"{len(answers)} of {len(expected)} ranks answered"
    for answer in answers:
        uuid = expected[int(str(answer["rank"]))]
        if answer["error"] or answer["uuids"] != [read_digits(uuid)]:
            yield f"rank {answer['rank']} was given {uuid}, but its driver answers {answer}"


def ask_ranks(number: int, library: str) -> list[dict[str, object]]:
    """Start one rank per GPU, and return what CUDA shows in each of them."""
    run = [sys.executable, "-m", "ompbind", "run", "--quiet", "-n", str(number), "--devices", "gpu", "--"]
    done = subprocess.run(
        [*run, sys.executable, "-c", ASK_CUDA, library], stdout=subprocess.PIPE, text=True, check=False
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def plan_uuids(number: int) -> list[str]:
    """Return the UUID of the GPU of each rank, as planned."""
    plan = [sys.executable, "-m", "ompbind", "plan", "-n", str(number), "--devices", "gpu"]
    done = subprocess.run([*plan, "--format", "json"], stdout=subprocess.PIPE, text=True, check=True)
    return [rank["devices"][0]["uuid"] or "" for rank in json.loads(done.stdout)["ranks"]]


def check(gpus: Sequence[Device], library: str) -> Iterator[str]:
    """Yield everything that differs on this machine."""
    if nvidia_smi := shutil.which("nvidia-smi"):
        listed = subprocess.run([nvidia_smi, "-L"], stdout=subprocess.PIPE, text=True, check=True).stdout
        yield from check_listing(gpus, parse_listing(listed))
    else:
        print("nvidia-smi is not installed: only the CUDA library is asked")
    yield from check_answers(plan_uuids(len(gpus)), ask_ranks(len(gpus), library))


def main() -> int:
    """Check all GPUs of this machine."""
    parser = make_parser(__doc__)
    parser.add_argument("--library", default="libcuda.so.1", help="the CUDA library of the driver")
    library = parser.parse_args().library
    devices = [device for device in read_machine(devices=True).devices if device.vendor == NVIDIA]
    found = [device for device in devices if device.kind is DeviceKind.GPU]
    for gpu in found:
        facts = f"{gpu.uuid or 'without UUID'} near CPUs {gpu.cpus} {gpu.excluded}"
        print(f"{gpu} {gpu.address} {facts}".rstrip())
    usable = [gpu for gpu in found if not gpu.excluded]
    gpus = [gpu for gpu in usable if gpu.uuid or gpu.partition is None]
    if len(gpus) < len(usable):
        print("MIG instances without a UUID are not checked: ranks get only those that the user names")
    if not gpus:
        print("no NVIDIA GPU that ranks can get: nothing was checked")
        return 0
    differences = list(check(gpus, library))
    print(*differences or [f"{len(gpus)} GPUs: the driver agrees, and accepts the variable"], sep="\n")
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
