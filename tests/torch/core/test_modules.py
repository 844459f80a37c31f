"""The modules of a module, as torch's named_modules has them."""

import torch
import transformers
from torch import nn

from anyjax.torch.core.modules import named_modules


def shared_and_absent():
    """A module that stands twice, one that holds its parent's, and a child that is None."""
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    outer = nn.ModuleDict({"a": inner, "b": nn.ModuleList([inner[0], nn.Tanh()]), "c": inner})
    outer.register_module("nothing", None)
    return outer


def test_order_and_names():
    config = transformers.LlamaConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                                      intermediate_size=8, vocab_size=8)  # fmt: skip
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    for root in (shared_and_absent(), transformers.LlamaForCausalLM(config), scripted, nn.ReLU()):
        got, want = named_modules(root), dict(root.named_modules())
        assert list(got) == list(want)
        assert all(got[path] is want[path] for path in want)
