"""What the ranks write: line prefixes, log files, pseudo-terminals, and writing without ever waiting.

Imports the base and its own modules; the supervisor sees only the multiplexer.
To add a form of output: a field of `options.Output`, and the stream in `multiplexer` that does it.
"""
