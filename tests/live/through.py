"""Start ranks whose output goes through an `OutputMultiplexer`, without the rest of ompbind.

    python tests/live/through.py -n N --output tag [--stats FILE] -- CMD...

Accepts the output options of `ompbind run`. `--chat S` writes a message every S seconds. `--stats` writes the
events and the cost of the multiplexer as JSON.
"""

import argparse
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from ompbind.errors import LaunchError
from ompbind.execution.output.multiplexer import Output, OutputMultiplexer
from ompbind.execution.rlimits import FileLimit


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=1)
    parser.add_argument("--output", default="inherit")
    parser.add_argument("--log-dir")
    for flag in ("--force", "--timestamps", "--pty", "--colours"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--chat", type=float)
    parser.add_argument("--stats")
    parser.add_argument("cmd", nargs="+")
    return parser.parse_args()


def make_output(args):
    kinds = args.output.split(",")
    return Output(
        tag="tag" in kinds,
        timestamps=args.timestamps,
        colours=(args.colours, args.colours),
        directory=(args.log_dir or "logs") if "files" in kinds else None,
        force=args.force,
        pty=args.pty,
    )


def read_peak_mib():
    """Return the peak memory of this process; getrusage would include that of its parent before exec."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def start(multiplexer, rank, cmd):
    out, err = multiplexer.open_streams(rank)
    try:
        return subprocess.Popen(
            cmd,
            env={**os.environ, "RANK": str(rank)},
            stdout=out if out >= 0 else None,
            stderr=err if err >= 0 else None,
        )
    finally:
        multiplexer.close_streams(out, err)


class Watch:
    """A minimal loop of a supervisor, which waits for ranks and the multiplexer."""

    def __init__(self, args, multiplexer):
        self.args, self.multiplexer = args, multiplexer
        self.wakeups = self.messages = 0
        self.killed = []
        self.codes = {}
        self.epoll = select.epoll()
        self.epoll.register(multiplexer, select.EPOLLIN)
        self.live = {}
        self.next_at = time.monotonic() + args.chat if args.chat else None

    def run(self):
        for rank in range(self.args.n):
            process = start(self.multiplexer, rank, self.args.cmd)
            pidfd = os.pidfd_open(process.pid)
            self.live[pidfd] = rank, process
            self.epoll.register(pidfd, select.EPOLLIN)
        signal.signal(signal.SIGWINCH, lambda *_: self.multiplexer.set_size())
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)  # as the supervisor does, so that it does not keep the pipe open
        while self.live or not self.multiplexer.idle:
            self.step()

    def step(self):
        ready = self.epoll.poll(None if self.next_at is None else max(0.0, self.next_at - time.monotonic()))
        self.wakeups += 1
        for number, _ in ready:
            if number == self.multiplexer.fileno():
                self.multiplexer.forward_ready()
            else:
                self.reap(number)
        for rank in self.multiplexer.take_broken_pty_ranks():
            self.killed.append(rank)
            for other, process in self.live.values():
                if other == rank:
                    process.send_signal(signal.SIGPIPE)
        if self.next_at is not None and time.monotonic() >= self.next_at:
            self.multiplexer.write_message(f"ompbind: message {self.messages}\n  with a second line")
            self.messages += 1
            self.next_at += self.args.chat

    def reap(self, number):
        rank, process = self.live.pop(number)
        self.codes[rank] = process.wait()
        self.epoll.unregister(number)
        os.close(number)
        if not self.live:
            self.multiplexer.end_streams()

    def stats(self):
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "rss_mib": read_peak_mib(),
            "cpu_s": used.ru_utime + used.ru_stime,
            "wakeups": self.wakeups,
            "messages": self.messages,
            "broken": self.multiplexer.broken,
            "write_errors": list(self.multiplexer.write_errors),
            "killed": self.killed,
            "codes": [self.codes[rank] for rank in sorted(self.codes)],
            "last_lines": [self.multiplexer.read_last_lines(rank) for rank in range(self.args.n)],
        }


def main():
    args = read_arguments()
    try:
        output = make_output(args)
        FileLimit(args.n * output.files_per_rank)
        multiplexer = OutputMultiplexer(output, range(args.n))
        watch = Watch(args, multiplexer)
        watch.run()
    except LaunchError as error:
        print(f"{error.message}\nhint: {error.hint}", file=sys.stderr)
        return 125
    stats = watch.stats()
    if args.stats:
        Path(args.stats).write_text(json.dumps(stats))
    return 0


if __name__ == "__main__":
    sys.exit(main())
