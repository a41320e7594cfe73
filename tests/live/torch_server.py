"""A server that multiplies with torch for one window of time when it gets SIGUSR1.

Twenty plain threads wait; some have multiplied before, as request threads do. It writes the lines
"ready PID", and "done PID COUNT" with the number of products that the initial thread made in a window.
"""

import os
import signal
import threading
import time

PLAIN, MULTIPLYING, WINDOW_S, SIZE, PATIENCE_S = 20, 3, 0.25, 256, 120
REQUESTS = {signal.SIGUSR1, signal.SIGTERM}


def main():
    signal.alarm(PATIENCE_S)
    # before any library starts a thread, which inherits this mask
    signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    import torch

    matrix, over, begun = torch.rand(SIZE, SIZE), threading.Event(), threading.Semaphore(0)

    def multiply():
        torch.mm(matrix, matrix)

    def serve(number):
        if number < MULTIPLYING:
            multiply()
        begun.release()
        over.wait()

    count_calls(multiply)
    for number in range(PLAIN):
        threading.Thread(target=serve, args=(number,)).start()
        begun.acquire()
    os.write(1, f"ready {os.getpid()}\n".encode())
    while signal.sigwait(REQUESTS) == signal.SIGUSR1:
        os.write(1, f"done {os.getpid()} {count_calls(multiply)}\n".encode())
    over.set()


def count_calls(function):
    count, end = 0, time.monotonic() + WINDOW_S
    while time.monotonic() < end:
        function()
        count += 1
    return count


main()
