"""What the ranks write: line prefixes, log files, pseudo-terminals, and writing without ever waiting.

Imports the base and `execution.rlimits`; `execution.run_output` opens it and is all that the supervisor sees.
To add a form of output: a field of `options.Output`, and the stream in `multiplexer` that does it.

A child's line -> the terminal, with --output tag:

    rank 2 writes b"ready\\n"                to the end that `OutputMultiplexer.open_streams` gave it     multiplexer.py
      | pipe, or pseudo-terminal with --pty                                               ptys.py
    `Stream` of rank 2: its source is readable                                            channel.py
    `Channel.readers`, the epoll of all streams that lead to standard output
    `OutputMultiplexer.fileno()`, the epoll of all channels: the supervisor's loop wakes up          multiplexer.py
      | `OutputMultiplexer.work` -> `Channel.pour` -> `_take_turns` -> `_read`: a block of each      channel.py
      |   `_distribute`: written to RANK.out with --log-dir                             log_files.py
    `Lines.take(block, marks)`: b"[2] ready\\n", and what is no whole line is held         line_prefix.py
    `NonBlockingWriter.put`, and `NonBlockingWriter.flush` once 64 KiB or all streams are gathered                  writer.py
      | it would wait: `OutputMultiplexer._settle` pauses the channel, nothing is read, rank 2 waits multiplexer.py
    os.writev                                                                             the terminal
"""
