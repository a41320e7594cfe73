"""Run a region of libgomp, fork, and run a region in the child: it waits for threads that it lacks."""

import ctypes
import os
import signal
import time

libgomp = ctypes.CDLL("libgomp.so.1")
work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
libgomp.GOMP_parallel(work, None, 0, 0)
child = os.fork()
if child == 0:
    libgomp.GOMP_parallel(work, None, 0, 0)
    os._exit(0)
open("ready", "w").close()
end = time.monotonic() + 4
while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
    time.sleep(0.05)
if found == (0, 0):
    os.kill(child, signal.SIGKILL)
print("the child hangs" if found == (0, 0) else "the child has computed")
