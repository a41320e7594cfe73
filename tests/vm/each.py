"""What runs inside a virtual machine: commands, one after the other; prints how each ended as JSON.

The one argument is a list of commands, as JSON. Only the standard library is used, and nothing is judged.
"""

import json
import subprocess
import sys

PATIENCE_S = 60


def finish(command):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
    )
    return {"code": done.returncode, "out": done.stdout, "said": done.stderr}


print(json.dumps([finish(command) for command in json.loads(sys.argv[1])]))
