"""Products of matrices in workers: one of joblib per CPU, or two of dask, each with one thread of its own."""

import sys

import numpy as np


def multiply(seed):
    square = np.random.default_rng(seed).random((500, 500))
    for _ in range(40):
        square = square @ square
        square /= square.max()
    return float(square[0, 0])


if __name__ == "__main__" and sys.argv[1] == "joblib":
    from joblib import Parallel, delayed

    print(sum(Parallel(n_jobs=-1)(delayed(multiply)(seed) for seed in range(16))))
elif __name__ == "__main__":
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        print(sum(client.gather(client.map(multiply, range(24)))))
