"""A script for handwritten digits, its step as PyTorch has it: python examples/torch_digits.py"""

from functools import partial

import jax
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim

import anyjax

IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES, LABELS = (IMAGES / 16).astype(np.float32).reshape(-1, 1, 8, 8), LABELS.astype(np.int32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3)
        self.norm, self.fc1, self.fc2 = nn.BatchNorm2d(16), nn.Linear(128, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        x = F.relu(self.fc1(torch.flatten(F.relu(self.conv2(x)), 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def make_step():
    torch.manual_seed(0)
    net = Net().train()
    optimizer = optim.Adadelta(net.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.8)

    def train(data, target):
        optimizer.zero_grad()
        loss = F.nll_loss(net(data), target)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return train, net


def batches():
    return anyjax.train.Batches((IMAGES[:1440], LABELS[:1440]), 48, key=0)


if __name__ == "__main__":
    train, net = make_step()
    model = anyjax.from_torch(train)
    run, state = jax.jit(partial(model.apply, model.params, mutable=True)), model.state
    for batch in [*batches()] * 8:
        loss, state = run(*batch, state=state)
    model.with_state(state).to_torch()
    right = net.eval()(torch.from_numpy(IMAGES[1440:])).argmax(1).numpy() == LABELS[1440:]
    print(f"loss {float(loss):.3f}, accuracy {right.mean():.1%} on images it has not seen")
