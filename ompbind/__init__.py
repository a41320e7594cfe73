"""ompbind starts n copies of a command, each on CPUs of its own, and makes thread pools use them."""

__version__ = "0.1.0"
