"""Make batches of pictures, and send them to a trainer that connects: group_loader.py PORT"""

import io
import sys
from contextlib import suppress
from multiprocessing.connection import Listener

import torch


def make_batch():
    """Return random pictures as bytes, and whether each is brighter on its left side."""
    pictures = torch.rand(64, 1, 32, 32)
    labels = (pictures[..., :16].mean((1, 2, 3)) > pictures[..., 16:].mean((1, 2, 3))).long()
    packed = io.BytesIO()
    torch.save((pictures, labels), packed)
    return packed.getvalue()


with Listener(("127.0.0.1", int(sys.argv[1]))) as listener:
    print(f"threads: {torch.get_num_threads()}", flush=True)
    while True:
        with listener.accept() as connection, suppress(ConnectionError):  # the other side has closed it
            while True:
                connection.send_bytes(make_batch())
