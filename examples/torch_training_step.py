"""A training step of PyTorch, as it is, jitted: python examples/torch_training_step.py loss.svg"""

import sys

import jax
import torch
from matplotlib import pyplot as plt
from torch import nn

import anyjax

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)


def step(images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    return loss


labels = torch.randint(10, (60, 32))  # of noisy pictures of ten patterns
images = (torch.randn(10, 64)[labels] + torch.randn(60, 32, 64)).numpy()
model = anyjax.from_torch(step)  # weights, moments, learning rate: all of it is model.state
run = jax.jit(lambda *batch, state: model.apply({}, *batch, state=state, mutable=True))
first, state = run(images[0], labels[0].numpy(), state=model.state)  # which makes the moments
turn = lambda state, batch: run(*batch, state=state)[::-1]
state, losses = jax.lax.scan(turn, state, (images[1:], labels[1:].numpy()))
model.with_state(state).to_torch()
right = (net.eval()(torch.from_numpy(images[-1])).argmax(-1) == labels[-1]).float()
print(f"loss {first:.3f} -> {losses[-1]:.3f}, accuracy of the net in torch {right.mean():.0%}")
plt.plot([first, *losses])
plt.savefig(sys.argv[1] if sys.argv[1:] else "torch_training_step.svg")
