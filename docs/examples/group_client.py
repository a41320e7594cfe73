"""Send requests, and print how long answers take: group_client.py PORT SECONDS CLIENTS"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from http.client import HTTPConnection
from statistics import quantiles


def send_requests(port, seconds):
    """Send requests one by one over a connection that stays open; return the time of each in milliseconds."""
    times, connection, end = [], HTTPConnection("127.0.0.1", port), time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        connection.request("GET", "/")
        connection.getresponse().read()
        times.append((time.perf_counter() - begun) * 1000)
    connection.close()
    return times


if __name__ == "__main__":
    port, seconds, clients = map(int, sys.argv[1:])
    with ProcessPoolExecutor(clients) as pool:
        found = pool.map(send_requests, [port] * clients, [seconds] * clients)
        times = [milliseconds for of_client in found for milliseconds in of_client]
    percentiles = quantiles(times, n=100)
    print(f"p50: {percentiles[49]:.2f} ms")
    print(f"p99: {percentiles[98]:.2f} ms")
    print(f"requests/s: {len(times) / seconds:.0f}")
