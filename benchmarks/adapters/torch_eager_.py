"""PyTorch, as it is."""

import torch

from adapters import RATE


def forward(module, inputs):
    options = {"use_cache": False} if "input_ids" in inputs else {}

    def call():
        with torch.no_grad():
            return module(**inputs, **options).logits.numpy()

    return call


def generate(module, ids, new, **options):
    mask = torch.ones_like(ids)
    return lambda: module.generate(
        ids, attention_mask=mask, max_new_tokens=new, do_sample=False, **options
    ).numpy()


def train(module, optimizer=torch.optim.Adam, rate=RATE):
    optimizer = optimizer(module.parameters(), rate)

    def step(ids):
        optimizer.zero_grad()
        ids = torch.from_numpy(ids).long()
        loss = module(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
