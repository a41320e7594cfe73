"""The check of GPUs: its comparisons, and its program in a rank with a CUDA library made for the test."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_check import ASK_CUDA, check_answers, check_listing, parse_listing, read_digits
from ompbind.machine.devices import Device, DeviceKind

ROOT = Path(__file__).parent.parent.parent
UUIDS = ["GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca692", "GPU-32559d2f-bd80-6360-09ab-97af8614d541"]
GPUS = [
    Device(kind=DeviceKind.GPU, index=index, address=f"0000:0{index}:00.0", uuid=uuid)
    for index, uuid in enumerate(UUIDS)
]
LISTING = f"""\
GPU 0: NVIDIA H200 (UUID: {UUIDS[0]})
  MIG 1g.18gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
GPU 1: NVIDIA H200 (UUID: {UUIDS[1]})
"""

LIBRARY = """
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
int cuInit(unsigned flags) { return flags != 0; }
int cuDeviceGetCount(int *count) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    *count = text != NULL && *text != 0;
    return 0;
}
int cuDeviceGet(int *device, int index) { *device = index; return index != 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    const char *text = strchr(getenv("CUDA_VISIBLE_DEVICES"), '-') + 1;
    for (int byte = 0; byte < 16; byte++, text += 2) {
        unsigned value;
        text += *text == '-';
        sscanf(text, "%2x", &value);
        uuid[byte] = value;
    }
    return device;
}
"""
"""A CUDA library with one device, whose UUID is in CUDA_VISIBLE_DEVICES."""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed")
    directory = tmp_path_factory.mktemp("cuda")
    (directory / "cuda.c").write_text(LIBRARY)
    path = directory / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, directory / "cuda.c"], check=True)
    return path


def ask(library, rank, visible):
    env = {**os.environ, "OMPBIND_RANK": str(rank), "CUDA_VISIBLE_DEVICES": visible}
    command = [sys.executable, "-c", ASK_CUDA, str(library)]
    return json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout)


def test_ranks_answer_with_the_uuids_that_cuda_shows(library):
    answers = [ask(library, rank, uuid) for rank, uuid in enumerate(UUIDS)]
    assert [answer["uuids"] for answer in answers] == [[read_digits(uuid)] for uuid in UUIDS]
    assert not list(check_answers(UUIDS, answers))
    assert len(list(check_answers(UUIDS[::-1], answers))) == 2
    assert len(list(check_answers(UUIDS, answers[:1]))) == 1
    assert len(list(check_answers(UUIDS, [answers[0], ask(library, 1, "")]))) == 1


def test_uuids_are_compared_with_the_list_of_the_driver():
    assert parse_listing(LISTING) == UUIDS
    assert not list(check_listing(GPUS, UUIDS))
    assert len(list(check_listing(GPUS, UUIDS[:1]))) == 1
    assert len(list(check_listing([GPUS[0], GPUS[1].replace(uuid="")], UUIDS))) == 1


def test_the_check_passes_on_this_machine():
    """Without a GPU it says so; with GPUs, the driver agrees with ompbind."""
    command = [sys.executable, "benchmarks/gpu_check.py"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(("nothing was checked\n", "accepts the variable\n"))
