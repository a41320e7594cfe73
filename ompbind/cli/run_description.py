"""The help of `ompbind run`."""

from __future__ import annotations

from ompbind.cli.description import Description

EXAMPLES = (
    ("Four ranks, equal shares", "ompbind run -n 4 -- python serve.py"),
    ("One rank per NUMA node", "ompbind run -n auto -s nodes -- ./server"),
    ("Options from ompbind.toml", "ompbind run --preset serve -- ./server"),
    ("CPUs of each rank by hand", "ompbind run -n 2 -m '0-7|8-15' -- ./app"),
    ("One rank for each GPU, on CPUs near it", "ompbind run -n auto --devices gpu -- ./server"),
    ("A port for each server, and a core for its threads that do not compute",
     "ompbind run -n 4 --service-cores 1 --env PORT={rank+8000} -- python serve.py"),
    ("The number of the rank before each line", "ompbind run -n 2 --output tag -- python serve.py"),
    ("A batch job: output in files, and a report as JSON",
     "ompbind run -n 4 --log-dir logs --report logs/run.json --timeout 1h -- ./job"),
    ("Wait until no other run uses the CPUs", "ompbind run -n 4 --exclusive --wait=1h -- ./job"),
    ("Start a failed rank again, at most three times", "ompbind run -n 4 --on-failure restart:3 -- ./server"),
    ("Count events of each rank with perf", "ompbind run -n 4 --wrap 'perf stat -o perf.{rank}' -- ./app"),
    ("Stop if a thread is not on the CPUs of its rank",
     "ompbind run -n 2 --verify=strict -- python serve.py"),
    ("Show the plan, start nothing", "ompbind run -n 4 --dry-run -- ./app"),
)  # fmt: skip

DETAILS = """ompbind waits for all ranks; if it is killed, they are killed too. The exit code is that of the
first rank that fails, 124 after a timeout, 125 if ompbind itself fails, 126 if the command cannot be executed
and 127 if it is not found.
"""


HELP = """Start copies (ranks) of a command, each bound to CPUs of its own. OpenMP and other common thread
pools are configured to use only these CPUs.
"""

DESCRIPTION = Description(
    help=HELP, summary="Plan, start and supervise n ranks of a command.", examples=EXAMPLES, details=DETAILS
)
