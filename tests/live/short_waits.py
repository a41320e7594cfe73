"""Run ompbind with other waits: python short_waits.py FIRST_S[:HEALTHY_S] ompbind run ARGS..."""

import sys

from ompbind.cli.main import main
from ompbind.execution.restarts import RestartPolicy

first_s, _, healthy_s = sys.argv.pop(1).partition(":")
changed = {"first_wait_s": float(first_s), **({"healthy_s": float(healthy_s)} if healthy_s else {})}
RestartPolicy.defaults = {**RestartPolicy.defaults, **changed}
del sys.argv[0]
main()
