"""A Python program that imports and uses libraries with threads of their own, in the order of its arguments.

After each library it writes the affinity masks of new threads and children, at the end of all its threads,
as JSON lines with the keys that regions.c uses.
"""

import json
import os
import subprocess
import sys
import threading


def write(kind, thread, cpus, case):
    keys = ("rank", "case", "kind", "thread", "cpus")
    values = (int(os.environ["OMPBIND_RANK"]), case, kind, thread, cpus)
    os.write(1, f"{json.dumps(dict(zip(keys, values, strict=True)))}\n".encode())


def allowed(task="thread-self"):
    with open(f"/proc/{task}/status", encoding="ascii") as file:
        return next(line.split()[1] for line in file if line.startswith("Cpus_allowed_list"))


def use(name):
    if name == "torch":
        import torch

        a = torch.ones(300, 300)
        run_in_thread(lambda: torch.mm(a, a))
        torch.mm(a, a)
    elif name == "numpy":
        import numpy as np

        a = np.ones((300, 300))
        a @ a
    elif name == "sklearn":
        import numpy as np
        from sklearn.ensemble import HistGradientBoostingClassifier

        HistGradientBoostingClassifier(max_iter=2).fit(np.arange(400.0).reshape(200, 2), np.arange(200) % 2)


def run_in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def write_masks(case):
    write("initial", 0, allowed(), case)
    for number in range(2):
        run_in_thread(lambda number=number: write("plain", number, allowed(), case))
    show = ["grep", "Cpus_allowed_list", "/proc/self/status"]
    done = subprocess.run(show, capture_output=True, text=True, check=True)
    write("spawned", 0, done.stdout.split()[1], case)


write_masks("start")
for last in sys.argv[1:]:
    use(last)
    write_masks(last)
for number, task in enumerate(os.listdir("/proc/self/task")):
    write("task", number, allowed(f"self/task/{task}"), "end")
