"""Fork processes that compute with several threads each: fork_workers.py WORKERS THREADS SECONDS

THREADS 0 is the number in OMP_NUM_THREADS, as BLAS libraries read it, or all CPUs. With the variable GOMP,
this process loads libgomp first, as `import torch` does. It writes a file `ready` when all workers run.
"""

import ctypes
import hashlib
import os
import sys
import threading
import time

workers, threads, seconds = map(int, sys.argv[1:])
threads = threads or int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count())
if os.environ.get("GOMP"):
    ctypes.CDLL("libgomp.so.1")
end, parent = time.monotonic() + seconds, os.getpid()


def compute():
    while time.monotonic() < end and os.getppid() == parent:
        hashlib.sha256(bytes(1 << 20))  # without the lock of the interpreter


for _ in range(workers):
    if os.fork() == 0:
        others = [threading.Thread(target=compute) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        compute()
        os._exit(0)
open("ready", "w").close()
for _ in range(workers):
    os.wait()
