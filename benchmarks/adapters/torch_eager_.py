"""PyTorch, as it is."""

import torch


def forward(module, ids):
    def call():
        with torch.no_grad():
            return module(ids, use_cache=False).logits.numpy()

    return call


def generate(module, ids, new):
    mask = torch.ones_like(ids)
    return lambda: module.generate(
        ids, attention_mask=mask, max_new_tokens=new, do_sample=False
    ).numpy()
