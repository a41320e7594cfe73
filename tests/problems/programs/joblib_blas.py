"""Products of matrices in workers of joblib, one worker per CPU."""

import numpy as np
from joblib import Parallel, delayed


def multiply(seed):
    square = np.random.default_rng(seed).random((500, 500))
    for _ in range(40):
        square = square @ square
        square /= square.max()
    return float(square[0, 0])


print(sum(Parallel(n_jobs=-1)(delayed(multiply)(seed) for seed in range(16))))
