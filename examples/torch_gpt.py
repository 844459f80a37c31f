"""A GPT in PyTorch and its step: bfloat16, accumulated gradients, clipping, groups, a schedule."""

import inspect
from functools import partial

import jax
import numpy as np
import torch
from torch import nn

import anyjax


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        mlp = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(*mlp)

    def forward(self, x):
        qkv = (y.unflatten(2, (4, -1)).transpose(1, 2) for y in self.attn(self.ln_1(x)).chunk(3, 2))
        y = nn.functional.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab: int = 128, width: int = 64, context: int = 64):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(Block(width), Block(width), nn.LayerNorm(width))
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)

    def forward(self, ids):
        return self.blocks(self.wte(ids) + self.wpe.weight) @ self.wte.weight.T


def make_step(parts: int = 2):
    torch.manual_seed(0)
    gpt = GPT()
    wide, rest = ([p for p in gpt.parameters() if (p.dim() > 1) is one] for one in (True, False))
    groups = [{"params": wide, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200, eta_min=5e-4)

    def step(ids):
        for part in ids.chunk(parts):
            with torch.autocast("cpu", torch.bfloat16):
                logits = gpt(part[:, :-1]).float()
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
            (loss / parts).backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        return loss

    return step, gpt


def batches(count: int = 200):
    text = np.frombuffer(inspect.getsource(inspect).encode("ascii", "replace"), np.uint8)
    for starts in np.random.default_rng(0).integers(0, len(text) - 65, (count, 8, 1)):
        yield (text[starts + np.arange(65)].astype(np.int32),)


if __name__ == "__main__":
    model, losses = anyjax.from_torch(make_step()[0]), []
    run, state = jax.jit(partial(model.apply, model.params, mutable=True)), model.state
    for batch in batches():
        loss, state = run(*batch, state=state)
        losses.append(float(loss))
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f} nats per character")
