"""Ask the kernel for CPUs in a rank, in all forms; print each result and the affinity mask afterwards.

`python ask_for_cpus.py OWN_SIZE OWN OTHER OUTSIDER DUMPABLE "THREAD CPUS FORM"…`: OWN and OTHER are the CPUs
of ranks 0 and 1, or of rank 0 and of no rank. A call that gives OWN_SIZE passes the filter of --hold: with it
each thread gets both CPUs before, to see what the call does.
"""

import ctypes
import errno
import mmap
import os
import signal
import subprocess
import sys
import threading
import time

OWN_SIZE, own, other, outsider, is_dumpable = map(int, sys.argv[1:6])
libc, pages = ctypes.CDLL(None, use_errno=True), mmap.mmap(-1, 2 * mmap.PAGESIZE)
page = ctypes.addressof(ctypes.c_char.from_buffer(pages))
assert not libc.mprotect(ctypes.c_void_p(page + mmap.PAGESIZE), mmap.PAGESIZE, 0)
SET, GET = (203, 204) if os.uname().machine == "x86_64" else (122, 123)


def call(*words):
    result = libc.syscall(*map(ctypes.c_long, words))
    return result if result >= 0 else -ctypes.get_errno()


KERNEL_SIZE = call(GET, 0, 1024, page)  # bytes of a mask


def ask(tid, cpus, form):
    mask = sum(1 << cpu for cpu in cpus).to_bytes(1024, "little")
    mask = mask[:KERNEL_SIZE] if form == "page" else mask
    at = mmap.PAGESIZE - len(mask)  # the next page cannot be read
    pages[at : mmap.PAGESIZE] = mask
    sizes = {"own": OWN_SIZE, "empty": 0, "long": 1 << 32, "short": other // 8 + 1, "page": 0xFFFFFFFF}
    address = {"bad": 1, "far": -1}.get(form, page + at)
    return -call(SET, tid, sizes.get(form, 1024), address)


def start(**options):
    return subprocess.Popen(["sleep", "60"], start_new_session=True, **options).pid


def start_orphan(**options):
    return int(subprocess.check_output(["sh", "-c", "setsid sleep 60 >&- & echo $!"], **options))


def find_other_rank(supervisor, orphans):
    """Wait for the other rank and its second thread; return both threads."""
    while True:
        with open(f"/proc/{supervisor}/task/{supervisor}/children") as file:
            others = set(map(int, file.read().split())) - {os.getpid(), *orphans}
        if others and len(threads := os.listdir(f"/proc/{min(others)}/task")) == 2:
            return sorted(map(int, threads))
        time.sleep(0.01)


thread = threading.Thread(target=signal.sigwait, args=[{signal.SIGUSR1}], daemon=True)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
libc.prctl(4, is_dumpable)
thread.start()
if os.environ["RANK"] == "1":
    thread.join()
    sys.exit()
daemon, orphan = start_orphan(), start_orphan(env={})
targets = {
    "self": 0, "pid": os.getpid(), "thread": thread.native_id, "session": start(), "bare": start(env={}),
    "daemon": daemon, "orphan": orphan, "outsider": outsider, "supervisor": os.getppid(), "long": 1 << 32,
    "absent": 1 << 22 | 1, "negative": -1,
}  # fmt: skip
if os.environ["WORLD_SIZE"] == "2":
    targets["other"], targets["other's"] = find_other_rank(os.getppid(), (daemon, orphan))
masks = {"own": {own}, "both": {own, other}, "other": {other}, "absent": {8191}, "none": {}}
masks["all"] = {*range(8192)}
for target, cpus, form in map(str.split, sys.argv[6:]):
    tid = targets[target]
    seen = tid if 0 <= tid < 1 << 32 else 0
    ask(seen, masks["both"], "own")
    error = ask(tid, masks[cpus], form)
    found = os.sched_getaffinity(seen) if target != "absent" else None
    after = [name for name in masks if masks[name] == found]
    print(target, cpus, form, errno.errorcode.get(error, "ok"), *after, flush=True)
if "other" in targets:
    os.kill(targets["other"], signal.SIGUSR1)
