"""Two actors of Ray on one machine, each with one CPU, compute with torch at the same time."""

import ray
import torch


@ray.remote(num_cpus=1)
class Network:
    def run(self):
        square = torch.rand(400, 400)
        for _ in range(300):
            square = torch.nn.functional.normalize(square @ square)
        return float(square[0, 0])


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
actors = [Network.remote() for _ in range(2)]
for _ in range(3):
    print(ray.get([actor.run.remote() for actor in actors]))
