"""Recurrent networks: one ``lax.scan`` per layer and direction."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops.matmul import linear


def lstm_step(given, hidden, state):
    """Gates from the input and from the last output -> the new (output, cell)."""
    i, f, g, o = jnp.split(given + hidden, 4, -1)
    cell = lax.logistic(f) * state[1] + lax.logistic(i) * lax.tanh(g)
    return lax.logistic(o) * lax.tanh(cell), cell


def gru_step(given, hidden, state):
    """The reset gate acts on the hidden gates, bias included."""
    (r, z, n), (hr, hz, hn) = (jnp.split(x, 3, -1) for x in (given, hidden))
    n = lax.tanh(n + lax.logistic(r + hr) * hn)
    return (n + lax.logistic(z + hz) * (state[0] - n),)


def tanh_step(given, hidden, state):
    return (lax.tanh(given + hidden),)


def relu_step(given, hidden, state):
    return (jax.nn.relu(given + hidden),)


def unpacked(params, has_biases, projected):
    """(w_ih, w_hh, b_ih, b_hh, w_hr) of each layer and direction from torch's flat list."""
    size = 2 + 2 * has_biases + projected
    for i in range(0, len(params), size):
        w_ih, w_hh, *rest = params[i : i + size]
        biases = rest[:2] if has_biases else (None, None)
        yield w_ih, w_hh, *biases, rest[-1] if projected else None


def one_way(step, x, state, weights, reverse, active):
    """One layer one way over [time, batch, width]; rows that are not active keep their state."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights

    def body(state, inputs):
        given, on = inputs
        new = step(given, linear(state[0], w_hh, b_hh), state)
        new = new if w_hr is None else (linear(new[0], w_hr, None), *new[1:])
        if on is not None:
            new = tuple(jnp.where(on[:, None], n, s) for n, s in zip(new, state, strict=True))
        return new, new[0]

    return lax.scan(body, state, (linear(x, w_ih, b_ih), active), reverse=reverse)


def network(
    rng, step, x, state, params, has_biases, num_layers, dropout, train, bidirectional, active=None
):
    """All layers over [time, batch, width] -> (outputs, *last states)."""
    ways, last = 1 + bidirectional, []
    layers = list(unpacked(params, has_biases, projected=len({s.shape[-1] for s in state}) > 1))
    for layer in range(num_layers):
        outs = []
        for k in range(layer * ways, layer * ways + ways):
            start = tuple(s[k] for s in state)
            end, out = one_way(step, x, start, layers[k], k % ways == 1, active)
            last.append(end)
            outs.append(out)
        x = jnp.concatenate(outs, -1) if bidirectional else outs[0]
        if train and dropout and layer < num_layers - 1:
            keep = jax.random.bernoulli(jax.random.fold_in(rng, layer), 1 - dropout, x.shape)
            x = jnp.where(keep, x / (1 - dropout), 0)
    return x, *(jnp.stack(s) for s in zip(*last, strict=True))


def states(hx):
    """LSTMs have two states, in a list."""
    return tuple(hx) if isinstance(hx, list) else (hx,)


def on_batch(step):
    """The lowering for a batch of sequences of one length."""

    def recurrent(
        rng, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    ):
        x = input.swapaxes(0, 1) if batch_first else input
        options = params, has_biases, num_layers, dropout, train, bidirectional
        out, *last = network(rng, step, x, states(hx), *options)
        return out.swapaxes(0, 1) if batch_first else out, *last

    return recurrent


def on_packed(step):
    """The lowering for packed sequences of known sizes: padded, masked, packed again."""

    def recurrent(
        rng, data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional
    ):
        steps, rows, active, places = packing(batch_sizes.tolist())
        options = params, has_biases, num_layers, dropout, train, bidirectional
        out, *last = network(rng, step, data[places], states(hx), *options, active)
        return out[steps, rows], *last

    return recurrent


def packing(sizes):
    """(time, row) of each packed element; which of [time, batch] are active, and where."""
    active = np.arange(max(sizes, default=0)) < np.array(sizes)[:, None]
    steps, rows = active.nonzero()
    places = np.zeros(active.shape, np.int32)
    places[steps, rows] = np.arange(len(steps))
    return steps, rows, active, places


for _name, _step in {
    "lstm": lstm_step,
    "gru": gru_step,
    "rnn_tanh": tanh_step,
    "rnn_relu": relu_step,
}.items():
    _op = getattr(aten, _name)
    table.update({_op.input: on_batch(_step), _op.data: on_packed(_step)})


@lowers(aten.lstm_cell)
def lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh):
    return lstm_step(linear(input, w_ih, b_ih), linear(hx[0], w_hh, b_hh), hx)


def one_step(step):
    """The cells with one state."""

    def recurrent(input, hx, w_ih, w_hh, b_ih, b_hh):
        return step(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), (hx,))[0]

    return recurrent


table.update(
    {
        aten.gru_cell: one_step(gru_step),
        aten.rnn_tanh_cell: one_step(tanh_step),
        aten.rnn_relu_cell: one_step(relu_step),
    }
)


@lowers(aten._pack_padded_sequence)
def pack_padded_sequence(input, lengths, batch_first):
    """(packed data, batch sizes). The data's shape depends on the lengths, so all are known: the
    sizes stay a tensor of torch's, whose values its code may ask for.
    """
    lengths = lengths.tolist()
    sizes = [sum(n > t for n in lengths) for t in range(max(lengths))]
    steps, rows, _, _ = packing(sizes)
    return input[(rows, steps) if batch_first else (steps, rows)], torch.tensor(sizes)


@lowers(aten._pad_packed_sequence)
def pad_packed_sequence(data, batch_sizes, batch_first, padding_value, total_length):
    """(padded data, lengths)."""
    sizes = batch_sizes.tolist()
    _, _, active, places = packing(sizes)
    missing = max(total_length, len(sizes)) - len(sizes)
    active, places = (np.pad(x, [(0, missing), (0, 0)]) for x in (active, places))
    mask = active.reshape(*active.shape, *[1] * (data.ndim - 1))
    out = jnp.where(mask, data[places], jnp.asarray(padding_value, data.dtype))
    return out.swapaxes(0, 1) if batch_first else out, torch.from_numpy(active.sum(0))
