"""Compute checksums in several threads, and print how fast."""

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

cpus = sorted(os.sched_getaffinity(0))
threads = int(os.environ.get("OMP_NUM_THREADS", len(cpus)))
block = bytes(16_000_000)
begun = time.perf_counter()
with ThreadPoolExecutor(threads) as pool:
    list(pool.map(hashlib.sha256, [block] * 40))
speed = 40 * 16 / (time.perf_counter() - begun)
print(f"CPUs {cpus}, threads: {threads}, {speed:.0f} MB/s")
