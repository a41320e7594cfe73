"""Compare the time of a command with ompbind and without: ratio.py ROUNDS LIMIT OMPBIND-WORDS… -- COMMAND…

The rounds are interleaved. The last line says whether the median ratio is within the limit.
"""

import statistics
import subprocess
import sys
import time


def run(command):
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


rounds, limit = int(sys.argv[1]), float(sys.argv[2])
end = sys.argv.index("--")
command, prefix = sys.argv[end + 1 :], sys.argv[3:end]
ratios = []
for _ in range(rounds):
    plain = run(command)
    ratios.append(run([*prefix, "--", *command]) / plain)
ratio = statistics.median(ratios)
print(f"ratio {ratio:.2f}: {'not slower' if ratio <= limit else 'slower'} than without ompbind")
