import os

from ompbind import Request, bind_process, make_plan, read_machine

rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
bind_process(make_plan(read_machine(), Request(ranks=size)), rank, variables="openmp")

import torch  # noqa: E402 - after the process is bound

if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    print(f"rank {rank}: CPUs {sorted(os.sched_getaffinity(0))}, threads {torch.get_num_threads()}")
    torch.distributed.destroy_process_group()
