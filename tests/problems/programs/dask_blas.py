"""Products of matrices in two workers of dask, each with one thread of its own."""

import numpy as np
from distributed import Client, LocalCluster


def multiply(seed):
    square = np.random.default_rng(seed).random((500, 500))
    for _ in range(40):
        square = square @ square
        square /= square.max()
    return float(square[0, 0])


if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        print(sum(client.gather(client.map(multiply, range(24)))))
