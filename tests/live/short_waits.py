"""Run ompbind with another first wait before restarts: python short_waits.py SECONDS ompbind run ARGS..."""

import sys

from ompbind.cli.main import main
from ompbind.execution.restart_policy import RestartPolicy

RestartPolicy.defaults = {**RestartPolicy.defaults, "first_wait_s": float(sys.argv.pop(1))}
del sys.argv[0]
main()
