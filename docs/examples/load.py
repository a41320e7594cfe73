"""Send requests to servers on this machine, and count the answers: load.py SECONDS FIRST_PORT SERVERS"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

seconds, first, servers = map(int, sys.argv[1:])
end = time.monotonic() + seconds


def send_requests(port):
    """Send a request after each answer, until the time is over; return all answers."""
    answers = []
    while time.monotonic() < end:
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/")
        answers.append(connection.getresponse().read().decode())
        connection.close()
    return answers


ports = [*range(first, first + servers)] * 4  # four clients for each server
with ThreadPoolExecutor(len(ports)) as pool:
    answers = [answer for found in pool.map(send_requests, ports) for answer in found]
sys.stdout.writelines(sorted(set(answers)))
print(f"requests/s: {len(answers) / seconds:.1f}")
