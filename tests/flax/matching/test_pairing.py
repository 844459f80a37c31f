import numpy as np
import torch
from flax import nnx

from anyjax.flax.matching import flax_layers, torch_layers
from anyjax.flax.matching.pairing import Pairing, families, pair
from anyjax.flax.matching.stored import read_weights


class Two(nnx.Module):
    def __init__(self, **layers):
        for name, layer in layers.items():
            setattr(self, name, layer)


def paired(module, source):
    ours = flax_layers.layers(
        flax_layers.nnx_slots(flax_layers.nnx_variables(module)), flax_layers.nnx_modules(module)
    )
    found = Pairing(ours, torch_layers.layers(read_weights(source), fused=False))
    pair(found)
    return found


def linear(a, b):
    return nnx.Linear(a, b, rngs=nnx.Rngs(0))


def decided(pairing):
    return {f.name: (c.torch.path, how) for f, (c, how) in pairing.decided.items()}


def test_names_before_shapes():
    module = Two(q_proj=linear(4, 4), out_proj=linear(4, 4), other=linear(4, 2))
    sources = {"o_proj": (4, 4), "query": (4, 4), "last": (2, 4)}
    state = {f"{k}.weight": np.ones(s, np.float32) for k, s in sources.items()}
    state |= {f"{k}.bias": np.ones(s[0], np.float32) for k, s in sources.items()}
    assert decided(paired(module, state)) == {
        "q_proj": ("query", "name"),
        "out_proj": ("o_proj", "name"),
        "other": ("last", "shape"),
    }


def test_what_competes_is_one_family_of_repeated_blocks():
    blocks = nnx.List([Two(a=linear(4, 4), b=linear(4, 4)) for _ in range(3)])
    inner = lambda: torch.nn.ModuleDict({"x": torch.nn.Linear(4, 4), "y": torch.nn.Linear(4, 4)})
    found = paired(Two(blocks=blocks), torch.nn.ModuleDict({"layers": torch.nn.ModuleList(
        [inner() for _ in range(3)])}))  # fmt: skip
    assert found.decided == {}
    (family,) = families(found)
    assert [[f.name for f in group] for group in family] == [
        [f"blocks/{i}/a", f"blocks/{i}/b"] for i in range(3)
    ]
    places = [{c.torch.path for c in found.open[group[0]]} for group in family]
    assert places == [{f"layers.{i}.x", f"layers.{i}.y"} for i in range(3)]


def test_maps_beside_matrices():
    conv, fc = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(16, 8)
    pooled = torch.nn.Linear(4, 8)
    found = Pairing(
        [], torch_layers.layers(read_weights(torch.nn.Sequential(conv, fc, pooled)), False)
    )
    assert [found._flattened.get(t) for t in found.torch] == [None, ((4,), ()), None]
    back = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ConvTranspose2d(4, 2, 3))
    found = Pairing([], torch_layers.layers(read_weights(back), False))
    assert found._flattened[found.torch[0]] == ((), (4,))
