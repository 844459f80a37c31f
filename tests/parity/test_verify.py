"""Healthy models are equal, in every dtype and way; another model is told from them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.compare import store
from anyjax.compare.differences import error
from anyjax.errors import BadCheckpoint, MissingRng, Unsupported, WrongArguments

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16),
        torch.nn.GELU(),
        torch.nn.LayerNorm(16),
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16)),
        torch.nn.Linear(16, 3),
    ).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_healthy_model_is_equal_up_to_rounding(dtype):
    model = anyjax.from_torch(network().to(dtype))
    report = anyjax.verify(model, torch.from_numpy(X).to(dtype))
    name = str(dtype).removeprefix("torch.")
    assert report.verdict == f"equal up to {name} rounding; 7 modules"
    assert [x.path for x in report.modules][-1] == ""
    assert max(x.total.relative for x in report.modules) < 0.05


def test_the_module_is_as_it_was_and_torchs_default_dtype_too():
    module = network()
    before = {k: x.clone() for k, x in module.state_dict().items()}
    anyjax.verify(anyjax.from_torch(module), X)
    assert torch.get_default_dtype() is torch.float32
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]) and tensor.dtype is before[name].dtype


def test_a_model_is_compared_with_another_model():
    model = anyjax.from_torch(network())
    scaled = model.with_params({**model.params, "4.weight": model.params["4.weight"] * 1.001})
    report = anyjax.verify(scaled, X, reference=model)
    assert [x.path for x in report.faults] == ["4"]
    assert "4 adds an error of 1e-03" in report.verdict
    assert anyjax.verify(model, X, reference=model).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_equal_up_to_rounding(dtype):
    model = anyjax.from_torch(network().to(dtype))
    report = anyjax.verify(model, torch.from_numpy(X).to(dtype), gradients=True)
    assert report.ok and report.verdict.endswith("7 modules, 11 gradients")
    assert [x.path for x in report.gradients][:2] == ["4.bias", "4.weight"]
    assert report.gradients[-1].path == "input 0"


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2.01


class Doubles(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.function = torch.nn.Linear(6, 6), function

    def forward(self, x):
        return self.function(self.first(x))


def test_a_wrong_gradient_is_a_fault_where_values_agree():
    torch.manual_seed(0)
    healthy, faulty = Doubles(lambda x: x * 2), Doubles(Wrong.apply)
    faulty.load_state_dict(healthy.state_dict())
    model = anyjax.from_torch(faulty)
    assert anyjax.verify(model, X, reference=healthy).ok
    report = anyjax.verify(model, X, reference=healthy, gradients=True)
    assert {x.path for x in report.faults} == {"first.weight", "first.bias", "input 0"}


class Glue(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.factor = factor

    def forward(self, x):
        return self.second(self.first(x) * self.factor)


def test_code_between_modules_answers_for_itself():
    torch.manual_seed(0)
    healthy, faulty = Glue(1.0), Glue(1.001)
    faulty.load_state_dict(healthy.state_dict())
    report = anyjax.verify(anyjax.from_torch(faulty), X, reference=healthy)
    assert [x.path for x in report.faults] == [""]
    assert report.faults[0].fault.startswith("hands second an input that differs by")
    assert "the model's own code adds an error of 1e-03" in report.verdict


class Listed(Glue):
    def __init__(self, factor):
        super().__init__(factor)
        self.layers = torch.nn.ModuleList([self.first, self.second])
        del self.first, self.second

    def forward(self, x):
        return self.layers[1](self.layers[0](x) * self.factor)


def test_a_list_of_modules_has_no_code():
    torch.manual_seed(0)
    healthy, faulty = Listed(1.0), Listed(1.001)
    faulty.load_state_dict(healthy.state_dict())
    report = anyjax.verify(anyjax.from_torch(faulty), X, reference=healthy)
    assert [x.path for x in report.faults] == [""]
    assert report.faults[0].fault.startswith("hands layers.1 an input that differs by")


def test_shapes_that_differ_are_a_fault():
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU())
    wider = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU())
    report = anyjax.verify(anyjax.from_torch(wider), X, reference=reference)
    assert "shapes differ: [4, 5] and [4, 4]" in report.verdict


class Optional(torch.nn.Module):
    def __init__(self, both):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Identity()
        self.both = both

    def forward(self, x):
        return self.second(self.first(x)) if self.both else self.first(x)


def test_a_module_that_one_side_does_not_call_is_noted():
    torch.manual_seed(0)
    reference, model = Optional(True), Optional(False)
    model.load_state_dict(reference.state_dict())
    report = anyjax.verify(anyjax.from_torch(model), X, reference=reference)
    assert report.ok and report.notes == ("not compared, not called on both sides: second",)
    assert str(report).endswith(report.notes[0])


def test_a_module_without_weights():
    assert anyjax.verify(anyjax.from_torch(torch.nn.Sequential(torch.nn.ReLU())), X).ok


def test_the_printed_table_has_the_worst_first_and_json_has_all():
    model = anyjax.from_torch(network())
    scaled = model.with_params({**model.params, "4.weight": model.params["4.weight"] * 1.001})
    report = anyjax.verify(scaled, X, reference=model)
    lines = str(report).splitlines()
    assert lines[2].startswith("4 ") and len(report.as_dict()["modules"]) == len(report.modules)


def test_what_is_no_reference_is_refused():
    with pytest.raises(Unsupported, match="verify with int as the reference"):
        anyjax.verify(anyjax.from_torch(network()), X, reference=3)


def test_figures_of_differences():
    got = error([np.float32([1, np.inf, np.nan, 4])], [np.float32([1, np.inf, np.nan, 4.5])])
    assert (got.absolute, got.ulps) == (0.5, 0.5 / 2**-21)
    assert np.isinf(error([np.float32([np.nan])], [np.float32([1])]).absolute)
    assert error([np.float32([3e38])], [np.float32([3e38])]).rms == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_golden_values_stand_for_the_reference(tmp_path, dtype):
    model, x = anyjax.from_torch(network().to(dtype)), torch.from_numpy(X).to(dtype)
    anyjax.verify(model, x).save_golden(tmp_path / "golden")
    assert anyjax.verify(model, x, reference=tmp_path / "golden").ok
    weight = model.params["4.weight"]
    scaled = model.with_params({**model.params, "4.weight": weight * 1.25})
    report = anyjax.verify(scaled, x, reference=tmp_path / "golden")
    assert [x.path for x in report.faults] == ["4"]


@pytest.mark.parametrize("damage", ["no folder", "other json", "cut"])
def test_golden_values_that_are_damaged_are_refused(tmp_path, damage):
    model, folder = anyjax.from_torch(network()), tmp_path / "golden"
    if damage != "no folder":
        anyjax.verify(model, X).save_golden(folder)
    if damage == "other json":
        (folder / "golden.json").write_text("[]")
    if damage == "cut":
        file = folder / "judge.safetensors"
        file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(BadCheckpoint, match="golden values"):
        anyjax.verify(model, X, reference=folder)


class Dropping(torch.nn.Module):
    """Dropout in modules, in functions and in attention."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.norm = torch.nn.BatchNorm1d(8)
        self.rnn = torch.nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True)
        self.last = torch.nn.Linear(8, 8)

    def forward(self, x):
        x = self.norm(self.drop(self.first(x)))
        x = torch.nn.functional.dropout(x, 0.5, training=self.training)
        x, _ = self.rnn(x[None])
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        return self.drop(self.last(x))


def test_training_with_torchs_masks():
    module = Dropping()
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    generator, statistics = torch.get_rng_state(), module.norm.running_mean.clone()
    model = anyjax.from_torch(module).train()
    module.eval()
    report = anyjax.verify(model, x, gradients=True)
    assert report.ok, str(report)
    assert "masks on both sides: drop, drop#1" in str(report)
    assert not module.training
    assert torch.equal(module.norm.running_mean, statistics)
    assert module.norm.num_batches_tracked == 0
    assert torch.equal(torch.get_rng_state(), generator)
    dropped = report.passes.actual.values["drop"][0]
    assert "drop" not in [x.path for x in report.modules] and dropped.shape == (6, 8)
    module.first.weight.data[0, 0] += 0.1
    report = anyjax.verify(model, x)  # by the model's own weights, which is told
    assert report.ok and "taken on both sides): first.weight" in str(report)
    report = anyjax.verify(model, x, reference=module.train())
    assert report.faults[0].path == "first" and "has its own): first.weight" in str(report)


def test_a_module_without_submodules_and_other_random_numbers():
    assert anyjax.verify(anyjax.from_torch(torch.nn.Linear(3, 2)), np.ones((1, 3), np.float32)).ok
    noisy = anyjax.from_torch(lambda x: x + torch.rand(3))
    with pytest.raises(MissingRng):
        anyjax.verify(noisy, np.ones(3, np.float32), rng=jax.random.key(0))


def test_large_models_keep_the_values_of_one_module(monkeypatch):
    model, reference = anyjax.from_torch(network()), network()
    reference[3][0].bias.data += 0.1
    for module in (None, reference):
        small = anyjax.verify(model, X, reference=module)
        with monkeypatch.context() as patch:
            patch.setattr(store, "LIMIT", 500)
            large = anyjax.verify(model, X, reference=module)
        assert isinstance(large.passes.wide.values["4"][0], np.memmap)
        assert [x.path for x in large.modules] == [x.path for x in small.modules]
        assert [x.path for x in large.faults] == [x.path for x in small.faults]
        assert large.faults == [] if module is None else large.faults[0].path == "3.0"


class Packed(torch.nn.Module):
    """A recurrent layer that drops, on sequences of several lengths."""

    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.GRU(8, 8, 2, dropout=0.5, batch_first=True)

    def forward(self, x):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [4, 2], batch_first=True)
        out, _ = self.rnn(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0]


def test_dropout_of_packed_sequences_is_left_out():
    x = np.random.default_rng(0).standard_normal((2, 4, 8)).astype(np.float32)
    report = anyjax.verify(anyjax.from_torch(Packed()).train(), x)
    assert report.ok, str(report)


class Marked(torch.nn.Module):
    """A linear layer, and what a test makes of its output."""

    def __init__(self, function, *inner):
        super().__init__()
        self.layer, self.function, self.inner = torch.nn.Linear(4, 4), function, nn_list(inner)

    def forward(self, x):
        return self.function(self.layer(x), *self.inner)


def nn_list(modules):
    return torch.nn.ModuleList(modules)


MASK = torch.tensor([False, False, True, False])
hidden = lambda y, scale: (y * scale).masked_fill(MASK, torch.finfo(y.dtype).min)


def in_place(inplace):
    def function(y, activation):
        return activation(y) + 3 * y

    return Marked(function, torch.nn.ReLU(inplace=inplace))


# Two models each with the same weights, whose outputs differ.
PLANTED = {
    "rows flipped": (Marked(lambda y: y), Marked(lambda y: y.flip(0))),
    "rows rolled": (Marked(lambda y: y), Marked(lambda y: y.roll(1, 0))),
    "rows swapped": (Marked(lambda y: y), Marked(lambda y: y[[1, 0, 2, 3, 4]])),
    "integers": (Marked(lambda y: y.argmax(-1)), Marked(lambda y: y.argmin(-1))),
    "bools": (Marked(lambda y: y > 0), Marked(lambda y: y > 0.5)),
    "integers beside": (
        Marked(lambda y: (y, y.argmax(-1))),
        Marked(lambda y: (y, y.argmax(-1) + 1)),
    ),
    "complex numbers": (
        Marked(lambda y: torch.complex(y, y)),
        Marked(lambda y: torch.complex(y, -y)),
    ),
    "hidden scores": (Marked(lambda y: hidden(y, 1.0)), Marked(lambda y: hidden(y, 1.001))),
    "a small output": (
        Marked(lambda y: (y * 1e9, y * 1e-3)),
        Marked(lambda y: (y * 1e9, y * 1.001e-3)),
    ),
    "in place": (in_place(False), in_place(True)),
}


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("planted", [True, False])
def test_outputs_that_differ_are_never_ok(name, planted):
    good, bad = PLANTED[name]
    bad.load_state_dict(good.state_dict())
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    report = anyjax.verify(anyjax.from_torch(bad if planted else good), x, reference=good)
    assert report.ok is not planted, str(report)


def test_healthy_models_are_not_blamed():
    hooked = torch.nn.Sequential(torch.nn.Linear(4, 4))
    hooked[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    assert anyjax.verify(anyjax.from_torch(hooked), x).ok
    half = torch.nn.Linear(4, 2).bfloat16()
    assert anyjax.verify(anyjax.from_torch(half), jnp.asarray(x, "bfloat16")).ok
    model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    trained = model.with_params({k: v + 1 for k, v in model.params.items()})
    assert anyjax.verify(trained, x).ok


@pytest.mark.parametrize("other", [{"p": 0.1}, {"momentum": 0.3}, {"training": True}])
def test_other_modes_and_rates_are_refused(other):
    build = lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3)).eval()
    good, bad = build(), build()
    for module in bad:
        vars(module).update({k: v for k, v in other.items() if hasattr(module, k)})
    with pytest.raises(WrongArguments, match=f"has {next(iter(other))}="):
        anyjax.verify(anyjax.from_torch(bad), np.ones((2, 4), np.float32), reference=good)
