"""Run ompbind with other waits: python short_waits.py FIRST_S ompbind run ARGS..."""

import sys

from ompbind.cli.main import main
from ompbind.execution.restarts import RestartPolicy

RestartPolicy.defaults = {**RestartPolicy.defaults, "first_wait_s": float(sys.argv.pop(1))}
del sys.argv[0]
main()
