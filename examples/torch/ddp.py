"""PyTorch's DistributedDataParallel on processors: ``yod -sz 4 python ddp.py``, no torchrun.

yod gives every rank RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT: all that ``env://`` looks at.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
truth = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
generator = torch.Generator().manual_seed(rank)  # every rank has data of its own
for _step in range(300):
    batch = torch.randn(64, 4, generator=generator)
    loss = torch.nn.functional.mse_loss(model(batch), batch @ truth.T)
    optimiser.zero_grad()
    loss.backward()  # gradients are averaged over all ranks here
    optimiser.step()

weights = model.module.weight.detach()
everybodys = [torch.empty_like(weights) for _ in range(size)]
dist.all_gather(everybodys, weights)
if rank == 0:
    same = all(torch.equal(weights, other) for other in everybodys)
    error = float((weights - truth).abs().max())
    print(f"{size} ranks, the same weights: {same}, off by {error:.4f}, at {os.environ['MASTER_ADDR']}", flush=True)
dist.destroy_process_group()
