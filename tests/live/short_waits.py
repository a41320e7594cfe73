"""Run ompbind with another wait before restarts: python short_waits.py FIRST_S ompbind run ARGS..."""

import sys

from ompbind.cli import run
from ompbind.cli.main import main
from ompbind.execution.restart_policy import RestartPolicy

RestartPolicy.defaults = {**RestartPolicy.defaults, "first_wait_s": float(sys.argv[1])}
at = sys.argv.index("--on-failure")
limit = sys.argv[at + 1].partition(":")[2]
before = run.make_run_options
policy = RestartPolicy(limit=int(limit) if limit else None)
run.make_run_options = lambda *a: before(*a).replace(restart=policy)
sys.argv[:] = [*sys.argv[2:at], *sys.argv[at + 2 :]]
main()
