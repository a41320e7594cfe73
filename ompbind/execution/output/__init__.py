"""The output of ranks: line prefixes, log files, pseudo-terminals, and writing without blocking.

Imports the base modules, `execution.loop`, `execution.run_options` and `execution.safe_files`.
To add a form of output: add a field to `run_options.Output` and use it in `run_output`.

The way of a line from rank 2 to the terminal, with --output tag:

    rank 2 writes b"ready\\n"
      |    to the write end from `RunOutput.open_streams`              run_output.py
      |    a pipe, or a pseudo-terminal with --pty
      v
    `RankStream`: its read end becomes readable                        forwarder.py
      |    `Forwarder.readers`: epoll of all streams to one writer
      v    it wakes up the loop of the supervisor
    `RunOutput._forward`                                               run_output.py
      |    `Forwarder.forward`: read one block of each ready stream    forwarder.py
      |    the bytes are also written to RANK.out with --log-dir       log_files.py
      v
    `LinePrefixer.add`                                                 line_prefix.py
      |    makes b"[2] ready\\n", and keeps an incomplete last line
      v
    `NonBlockingWriter.put`, then `flush`                              forwarder.py
      |    after 64 KiB, or when no stream is ready
      v
    `os.writev` to the terminal

Backpressure: while the terminal or pipe accepts no more, the forwarder is paused. It reads nothing from its
streams, their pipes fill, and the ranks block as they would without ompbind.
"""
