"""Planted faults around a model's layers: in its weights' form, its adapters, positions, labels and
caches. Verify names the module that has them, and no other.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import jax
import numpy as np
import peft
import pytest
import torch
import transformers

import anyjax
from anyjax.compare import store
from anyjax.hf.generation.request.private import CACHE
from anyjax.transforms import quantize, roll
from tests.parity.test_faults import IDS, MASK, TEXT, gpt2, llama, randomized
from tests.sampling import further

pytestmark = [
    pytest.mark.sample(every=5),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # of peft
]
PADDED = np.where(np.arange(12) < [[3], [0]], 0, MASK)  # on the left


def built(build, **options):
    torch.manual_seed(0)
    return randomized(build(**options).eval())


def faults(model, reference, *args, **kwargs):
    model = model if isinstance(model, anyjax.Model) else anyjax.from_torch(model)
    return anyjax.verify(model, *args, reference=reference, **kwargs).faults


def paths(*args, **kwargs):
    return [x.path for x in faults(*args, **kwargs)]


@pytest.mark.parametrize("scheme", ["int8", "int4", "nf4"])
@pytest.mark.parametrize("reference", ["model", "module"])
def test_the_scale_of_a_quantized_block(scheme, reference):
    model = anyjax.from_torch(built(llama, layers=2))
    healthy = quantize(model, scheme, targets="layers.1", block=16)
    name = "model.layers.1.mlp.up_proj"
    scale = healthy.state[f"{name}.weight.scale"]
    assert scale.shape == (2, 64)
    wrong = {**healthy.state, f"{name}.weight.scale": scale.at[1, 3].multiply(1.01)}
    expected = healthy if reference == "model" else copy.deepcopy(healthy.to_torch())
    assert paths(replace(healthy, state=wrong), expected, **TEXT) == [name]
    assert not faults(healthy, expected, **TEXT)


def adapted():
    """Returns a module, and one of PEFT around a copy of it."""
    module = built(llama, layers=2)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return module, peft.get_peft_model(copy.deepcopy(module), config).eval()


ADAPTED = {f"model.layers.{i}.self_attn.{x}_proj" for i in (0, 1) for x in "qv"}


@pytest.mark.conformance
def test_an_adapter_that_is_not_merged(tmp_path):
    module, adapter = adapted()
    adapter.save_pretrained(tmp_path)
    base = anyjax.from_torch(module)
    model = anyjax.train.load_adapter(base, tmp_path)
    for expected in (adapter.get_base_model(), model):
        assert {*paths(base, expected, **TEXT)} == ADAPTED
    assert not faults(model, adapter.get_base_model(), **TEXT)
    advice, *_ = anyjax.verify(base, reference=adapter, **TEXT).notes
    assert advice.startswith("the model's modules are in base_model.model of the reference")
    merged, name = anyjax.train.merge(model), "model.layers.1.self_attn.v_proj"
    assert not faults(merged, merged.to_torch(), **TEXT)
    weight = {f"{name}.weight": base.params[f"{name}.weight"]}  # of the only one that is not
    partly = merged.with_params({**merged.params, **weight})
    assert paths(partly, merged, **TEXT) == [name]
    assert paths(partly, adapter.get_base_model(), **TEXT)[0] == name


class Task(torch.nn.Module):
    """A module whose ``reader`` calls a language model."""

    def __init__(self, reader):
        super().__init__()
        self.reader = reader

    def forward(self, *args):
        return self.reader(*args)


class Reader(torch.nn.Module):
    """Gives padded text its positions, for text that is padded on one side."""

    def __init__(self, lm, side):
        super().__init__()
        self.lm, self.side = lm, side

    def forward(self, ids, mask):
        positions = torch.arange(ids.shape[1]).expand_as(ids)
        if self.side == "left":
            positions = (mask.cumsum(1) - 1).clamp(min=0)
        out = self.lm(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False
        )  # fmt: skip
        return out.logits


class Masker(Reader):
    """Makes the mask itself from the lengths of the texts."""

    def forward(self, ids, mask):
        places, padding = torch.arange(ids.shape[1]), (1 - mask).sum(1, keepdim=True)
        mask = places >= padding if self.side == "left" else places < ids.shape[1] - padding
        return self.lm(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits


@pytest.mark.parametrize("reader", [Reader, Masker])
@pytest.mark.parametrize("build", [llama, gpt2])
def test_the_side_of_padding(reader, build):
    lm = built(build)
    right, left = (Task(reader(copy.deepcopy(lm), side)).eval() for side in ("right", "left"))
    (fault,) = faults(right, left, IDS, PADDED)
    assert fault.path == "reader" and fault.fault.startswith("hands reader.lm an input")
    assert not faults(copy.deepcopy(left), left, IDS, PADDED)


@pytest.mark.conformance
def test_modules_that_are_called_with_other_positions_are_not_judged(tmp_path, monkeypatch):
    lm = built(llama, layers=2)
    right, left = (Reader(copy.deepcopy(lm), side).eval() for side in ("right", "left"))
    report = anyjax.verify(anyjax.from_torch(right), IDS, PADDED, reference=left)
    (note,) = report.notes
    start = "not compared, called with other integers, caches or shapes: lm, lm.model, lm.model.rot"
    assert note.startswith(start)
    assert "lm.model.rotary_emb" not in [x.path for x in report.modules]
    healthy = anyjax.verify(anyjax.from_torch(left), IDS, PADDED)
    assert "lm.model.rotary_emb" in [x.path for x in healthy.modules]
    healthy.save_golden(tmp_path / "golden")
    assert paths(right, tmp_path / "golden", IDS, PADDED) == [""]
    monkeypatch.setattr(store, "LIMIT", 1000)  # op by op, values in files
    assert paths(right, left, IDS, PADDED) == [""]
    assert not faults(left, left, IDS, PADDED)


class Loss(torch.nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.shift = shift

    def forward(self, logits, labels):
        logits, labels = logits[:, : -self.shift].flatten(0, 1), labels[:, self.shift :].flatten()
        return torch.nn.functional.cross_entropy(logits, labels)


class InModule(torch.nn.Module):
    """A language model with a loss, whose module shifts the labels."""

    def __init__(self, lm, shift):
        super().__init__()
        self.lm, self.shift, self.loss = lm, shift, self.make_loss(shift)

    def make_loss(self, shift):
        return Loss(shift)

    def forward(self, ids, labels):
        return self.loss(self.lm(input_ids=ids, use_cache=False).logits, labels)


class InFunction(InModule):
    def forward(self, ids, labels):
        logits = self.lm(input_ids=ids, use_cache=False).logits[:, : -self.shift]
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, self.shift :].flatten()
        )


class BesideModule(InModule):
    """Shifts the labels before a loss of torch is called."""

    def make_loss(self, shift):
        return torch.nn.CrossEntropyLoss()

    def forward(self, ids, labels):
        logits = self.lm(input_ids=ids, use_cache=False).logits
        labels = torch.nn.functional.pad(labels[:, self.shift :], (0, self.shift), value=-100)
        return self.loss(logits.flatten(0, 1), labels.flatten())


class ShortBesideModule(BesideModule):
    def forward(self, ids, labels):
        logits = self.lm(input_ids=ids, use_cache=False).logits[:, : -self.shift]
        return self.loss(logits.flatten(0, 1), labels[:, self.shift :].flatten())


@pytest.mark.parametrize(
    "kind, path",
    [(InModule, "task.loss"), (InFunction, "task"), (BesideModule, "task"),
     (ShortBesideModule, "task")],
)  # fmt: skip
def test_labels_that_are_shifted_twice(kind, path):
    lm = built(llama, layers=1)
    twice, once = (Task(kind(copy.deepcopy(lm), shift)).eval() for shift in (2, 1))
    assert paths(twice, once, IDS, IDS) == [path.replace("task", "reader")]
    assert not faults(copy.deepcopy(once), once, IDS, IDS)


def test_shapes_of_what_is_handed_on_are_told():
    lm = built(llama, layers=1)
    twice, once = (ShortBesideModule(copy.deepcopy(lm), shift).eval() for shift in (2, 1))
    report = anyjax.verify(anyjax.from_torch(twice), IDS, IDS, reference=once)
    text = "the model's own code: hands loss an input whose shapes differ: [20, 99] and [22, 99]"
    assert report.verdict.startswith(text)


class Prompted(torch.nn.Module):
    """Goes on after a prompt, of which it holds the keys and values."""

    def __init__(self, lm, prompt):
        super().__init__()
        self.lm = lm
        with torch.no_grad():
            layers = lm(torch.from_numpy(prompt), use_cache=True)[CACHE].layers
        for i, layer in enumerate(layers):
            self.register_buffer(f"keys{i}", layer.keys)
            self.register_buffer(f"values{i}", layer.values)

    def forward(self, ids):
        cache = transformers.DynamicCache()
        for i in range(len(self.lm.model.layers)):
            cache.update(getattr(self, f"keys{i}"), getattr(self, f"values{i}"), i)
        return self.lm(input_ids=ids, **{CACHE: cache}, use_cache=True).logits


@pytest.mark.parametrize("length", [6, 5])
def test_a_cache_of_another_text(length):
    lm = built(llama, layers=2)
    other = Task(Prompted(copy.deepcopy(lm), IDS[:, 12 - length :])).eval()
    right = Task(Prompted(lm, IDS[:, :6])).eval()
    (fault,) = faults(other, right, IDS[:, 6:])
    assert fault.path == "reader" and fault.fault.startswith("hands reader.lm an input")
    assert not faults(copy.deepcopy(right), right, IDS[:, 6:])


@pytest.mark.conformance
def test_a_rotary_embedding_that_holds_the_angles_of_a_longer_text():
    angles = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    lm = built(llama, layers=2, max_position_embeddings=8, rope_parameters=angles)
    stale = copy.deepcopy(lm)
    with torch.no_grad():
        stale(torch.arange(3, 40)[None])
    assert paths(stale, lm, **TEXT) == ["model.rotary_emb"]
    report = anyjax.verify(anyjax.from_torch(copy.deepcopy(lm)), reference=lm, **TEXT)
    (rotary,) = [x for x in report.modules if x.path == "model.rotary_emb"]
    assert report.ok and rotary.rounding < 1e-6  # no pass sees the angles of another
    assert lm.model.rotary_emb.max_seq_len_cached == 8


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_cache_is_an_argument_and_stays_as_it_is(kind):
    lm = built(llama, layers=2)
    cache = transformers.DynamicCache()
    if kind == "static":
        cache = transformers.StaticCache(config=lm.config, max_cache_len=16)
    with torch.no_grad():
        lm(torch.from_numpy(IDS[:, :6]), **{CACHE: cache}, use_cache=True)
    before = copy.deepcopy(cache)
    arguments = {"input_ids": IDS[:, 6:], CACHE: cache, "use_cache": True}
    assert not faults(copy.deepcopy(lm), lm, **arguments)
    assert cache.get_seq_length() == 6
    for layer, expected in zip(cache.layers, before.layers, strict=True):
        assert torch.equal(layer.keys, expected.keys)
    wrong = copy.deepcopy(lm)
    wrong.model.layers[1].self_attn.scaling *= 1.01
    assert paths(wrong, lm, **arguments) == ["model.layers.1.self_attn"]


@pytest.mark.parametrize("change", ["shard", *further("roll", "explicit")])
def test_layers_as_a_loop_and_weights_on_a_mesh(change):
    model = anyjax.from_torch(built(llama))
    if change == "roll":
        changed = roll(model, **TEXT)
    else:
        axes = {"axis_types": (jax.sharding.AxisType.Auto,)} if change == "shard" else {}
        changed = anyjax.parallel.shard(model, jax.make_mesh((2,), ("model",), **axes), plan="tp")
    for reference in (None, model):
        report = anyjax.verify(changed, **TEXT, reference=reference, gradients=True)
        assert report.ok, str(report)
        assert len(report.gradients) == len(model.params) and not report.notes
    name = "model.layers.1.mlp.up_proj"
    module = built(llama)
    module.get_submodule(name).weight.data[0] += 0.1
    assert paths(changed, module, **TEXT) == [name]
