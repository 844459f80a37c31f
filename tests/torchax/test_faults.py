"""The faults of torchax that its users patch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from anyjax import torchax
from anyjax.torchax import interop
from anyjax.torchax.tensor import View

ENV = torchax.default_env()


def on_jax(*values: float) -> torch.Tensor:
    return interop.torch_view(jnp.array(values))


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.offset = torch.zeros(2)  # neither parameter nor buffer

    def forward(self, x):
        return x * self.weight + self.offset


class compilations:
    """Counts what XLA compiles inside of it."""

    def __enter__(self):
        self.count, self.inside = 0, True
        jax.monitoring.register_event_duration_secs_listener(self.note)
        return self

    def note(self, event: str, *args: object, **kwargs: object) -> None:
        self.count += self.inside and "backend_compile" in event

    def __exit__(self, *exception):
        self.inside = False


def test_boolean_mask_writes_compile_once_for_any_count():
    with ENV:
        x, row = torch.zeros(8, 2, device="jax"), torch.ones(2, device="jax")

        def write(mask: torch.Tensor) -> None:
            x[mask] = 5.0
            x[mask] = row
            x[mask, 0] = 2.0
            x.masked_fill_(~mask[:, None], 7.0)

        masks = [interop.torch_view(jnp.arange(8) < count) for count in (1, 2, 5, 8, 0, 3)]
        write(masks[0])
        with compilations() as programs:
            for mask in masks[1:]:
                write(mask)
    assert programs.count == 0
    assert x.tolist() == [[2, 1]] * 3 + [[7, 7]] * 5


def test_boolean_mask_writes_inside_of_a_program():
    def merge(x, mask, rows):
        with ENV:
            x, mask, rows = interop.torch_view((x, mask, rows))
            x[mask] = rows
            return interop.jax_view(x)

    mask = jnp.array([False, True, False, True])
    out = jax.jit(merge)(jnp.zeros((4, 2)), mask, jnp.arange(4.0).reshape(2, 2))
    assert out.tolist() == [[0, 0], [0, 1], [0, 0], [2, 3]]


def test_slices_that_are_kept_share_the_memory_of_their_base():
    class Cache(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = torch.zeros(4, 2)
            self.row = self.cache[1]
            self.last = None

        def forward(self, x):
            self.cache[1] += x
            self.last = self.cache[1:3]
            return self.row * 1

    model = interop.JittableModule(Cache())
    assert model(on_jax(1.0, 1)).tolist() == [1, 1]
    assert model(on_jax(1.0, 1)).tolist() == [2, 2]
    assert model.row.tolist() == [2, 2]
    assert model.last.tolist() == [[2, 2], [0, 0]]
    model.cache.zero_()
    assert model.row.tolist() == [0, 0]


def test_slices_outlive_their_base_and_its_program():
    @jax.jit
    def program(array):
        with ENV:
            x = interop.torch_view(array)
            piece = x[1:3]
            x.add_(1)
            del x
            return interop.jax_view(piece)

    assert program(jnp.zeros(4)).tolist() == [1, 1]
    piece = on_jax(1.0, 2, 3)[1:]
    assert isinstance(piece, View) and piece.tolist() == [2, 3]


def test_a_jittable_module_takes_the_weights_of_an_outer_functional_call():
    model = torch.nn.Sequential(interop.JittableModule(Scaled()))
    assert [*model.state_dict()] == [*dict(model.named_parameters())] == ["0._model.weight"]
    x = on_jax(1.0, 2)

    @jax.jit
    def call(weight):
        weights = {"0._model.weight": interop.torch_view(weight)}
        return interop.jax_view(torch.func.functional_call(model, weights, (x,)))

    assert call(jnp.full(2, 3.0)).tolist() == [3, 6]
    assert call(jnp.full(2, 5.0)).tolist() == [5, 10]  # none is a constant of the program
    assert jax.grad(lambda w: call(w).sum())(jnp.ones(2)).tolist() == [1, 2]
    assert model(x).tolist() == [1, 2]  # no tracer stays behind


def test_later_writes_to_attributes_and_weights_are_seen():
    module = Scaled()
    model = interop.JittableModule(module)
    assert isinstance(model, Scaled) and module.offset.device.type == "jax"
    x = on_jax(1.0, 1)
    assert model(x).tolist() == [1, 1]
    module.offset.copy_(torch.tensor([1.0, 2]))
    assert model(x).tolist() == [2, 3]
    module.offset = on_jax(5.0, 5)
    assert model(x).tolist() == [6, 6]
    model.params["weight"] = on_jax(2.0, 3)
    assert model(x).tolist() == [7, 8]
    assert module.weight.tolist() == [2, 3]


def test_attributes_are_states_of_pure_functions():
    module = Scaled()
    module.weight.requires_grad_(False)
    states, function = torchax.extract_jax(module)
    assert set(states) == {"weight", "offset"}
    program = jax.jit(function)
    x = jnp.ones(2)
    assert program(states, (x,)).tolist() == [1, 1]
    assert program(states | {"offset": jnp.full(2, 5.0)}, (x,)).tolist() == [6, 6]
    model = interop.JittableModule(module)
    assert set(model.params) == set() and set(model.buffers) == {"weight", "offset"}
    model.buffers["offset"] = on_jax(3.0, 4)
    assert model(on_jax(1.0, 1)).tolist() == [4, 5]
    call = interop.jax_jit(lambda *args: model.functional_call("forward", *args))
    assert call({}, model.buffers | {"offset": on_jax(0.0, 1)}, on_jax(1.0, 1)).tolist() == [1, 2]


def test_per_layer_embeddings():
    class Embeds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(4, 2)
            self.per_layer = torch.zeros(8, 2)

        def embed(self, ids):
            hidden = self.embedding(ids)
            self.per_layer[: len(ids)].copy_(2 * hidden)
            return hidden

        def forward(self, hidden):
            return hidden + self.per_layer[: len(hidden)]

    model = interop.JittableModule(Embeds())
    model.make_jitted("embed")
    for ids in ([1, 2, 3], [3, 0]):
        hidden = model.embed(interop.torch_view(jnp.array(ids)))
        np.testing.assert_allclose(model(hidden).jax(), 3 * hidden.jax(), rtol=1e-6)


def test_the_accelerator_answers():
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.current_accelerator().type == "jax"
    assert accelerator.device_count() == torch.jax.device_count() == 1
    assert accelerator.current_device_index() == torch.jax.current_device() == 0
    free, size = accelerator.get_memory_info()
    assert 0 <= free <= size
    assert 0 <= accelerator.memory_allocated() <= accelerator.max_memory_allocated()
    assert 0 <= accelerator.memory_reserved() <= accelerator.max_memory_reserved()
    assert torch.jax.mem_get_info() == (free, size)
    accelerator.set_device_index(0)
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    accelerator.synchronize()
    state = torch.jax.get_rng_state()
    torch.jax.set_rng_state(state)


def test_flatten_of_empty_tensors_and_pad_sequence():
    with ENV:
        for shape in ((0, 3, 4), (2, 0, 4), (2, 3, 0), (2, 3, 4)):
            expected = torch.zeros(shape).flatten(end_dim=-2).shape
            assert torch.zeros(shape, device="jax").flatten(end_dim=-2).shape == expected
        rows = [torch.ones(2, device="jax"), torch.ones(3, device="jax")]
        assert pad_sequence(rows).tolist() == [[1, 1], [1, 1], [0, 1]]
        padded = pad_sequence(rows, batch_first=True, padding_value=-1.0, padding_side="left")
        assert padded.tolist() == [[-1, 1, 1], [1, 1, 1]]


def test_composites_outside_of_the_context():
    x = interop.torch_view(jnp.arange(6.0).reshape(2, 3))
    usual = torch.arange(6.0).reshape(2, 3)
    index = interop.torch_view(jnp.array([0, 2, 1]))
    assert F.one_hot(index).tolist() == F.one_hot(torch.tensor([0, 2, 1])).tolist()
    assert torch.quantile(x, 0.25).item() == torch.quantile(usual, 0.25).item()
    pieces = torch.tensor_split(x, interop.torch_view(jnp.array([1, 2])), 1)
    assert [p.tolist() for p in pieces] == [[[0], [3]], [[1], [4]], [[2], [5]]]
    scores = torch.zeros(5, 2, 4).log_softmax(-1)
    labels = torch.ones(2, 2, dtype=torch.long)
    expected = F.ctc_loss(scores, labels, (5, 5), (2, 2))
    moved = ENV.to_xla((scores, labels))
    np.testing.assert_allclose(F.ctc_loss(*moved, (5, 5), (2, 2)).item(), expected, rtol=1e-5)
    assert F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5).shape == (
        1,
        2,
        3,
    )
    assert torch.linalg.matrix_rank(x).item() == 2
    out = interop.torch_view(jnp.zeros((4, 9)))
    torch.kron(x, x, out=out)
    assert out.tolist() == torch.kron(usual, usual).tolist()
