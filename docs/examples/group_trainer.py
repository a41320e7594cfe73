"""Train a small network with batches of a loader: group_trainer.py PORT STEPS"""

import io
import sys
from multiprocessing.connection import Client

import torch
from torch import nn

port, steps = map(int, sys.argv[1:])
network = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 2))
optimizer = torch.optim.Adam(network.parameters())
print(f"threads: {torch.get_num_threads()}", flush=True)
with Client(("127.0.0.1", port)) as loader:
    for step in range(1, steps + 1):
        pictures, labels = torch.load(io.BytesIO(loader.recv_bytes()))
        loss = nn.functional.cross_entropy(network(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.2f}", flush=True)
