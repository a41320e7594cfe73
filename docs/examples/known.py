"""Print a speed that is known: 100, or 20 % more with BLOCK=64, with random noise of 3 %.

The variable SPEED replaces 100.
"""

import os
import random

speed = float(os.environ.get("SPEED", "100"))
if os.environ.get("BLOCK") == "64":
    speed *= 1.2
print(f"speed: {speed * random.gauss(1, 0.03):.3f}")
