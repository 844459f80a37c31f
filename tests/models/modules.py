"""Modules of torch that several test files convert."""

import torch


class Tied(torch.nn.Module):
    """A head whose weight is that of the embedding."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids).cumsum(1))
