"""The tree of names: nested, invertible, with collections."""

import torch

import anyjax
from anyjax.flax.wrap import names
from tests.flax.wrap.nets import Counting, gpt2, keras_net, net


def collections(model):
    tree = names.tree_of(model)
    leaves = [leaf for node in tree.nodes() for leaf in node.leaves]
    assert sorted(leaf.name for leaf in leaves) == sorted({**model.params, **model.state})
    return {leaf.name: leaf.collection for leaf in leaves}


def test_statistics_of_batches_are_a_collection():
    found = collections(net())
    assert found["features.1.running_var"] == "batch_stats"
    assert {found[name] for name in net().params} == {"params"}
    found = collections(anyjax.from_tensorflow(keras_net()[0]))
    assert found["sequential/batch_normalization/moving_variance"] == "batch_stats"
    assert found["seed_generator/seed_generator_state"] == "buffers"


def test_frozen_parameters_and_counters_are_buffers():
    layer = torch.nn.Linear(2, 2).requires_grad_(False)
    assert set(collections(anyjax.from_torch(layer)).values()) == {"buffers"}
    assert collections(anyjax.from_torch(Counting())) == {"calls": "buffers"}


def test_nodes_know_the_class_of_their_module():
    tree = names.tree_of(gpt2())
    assert tree.kind == "GPT2LMHeadModel"
    kinds = {".".join(node.path): node.kind for node in tree.nodes()}
    assert kinds["transformer.h.1.attn"] == "GPT2Attention"
    assert "lm_head" not in kinds


def test_a_name_that_others_begin_with():
    paths = names.paths_of(["w", "w/x", "w/x/y", "v"], "/")
    assert paths == {
        "w": ("w", "value"),
        "w/x": ("w", "x", "value"),
        "w/x/y": ("w", "x", "y"),
        "v": ("v",),
    }
    assert len(set(paths.values())) == 4
