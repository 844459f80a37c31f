"""Recurrent layers, their cells and wrappers, and attention."""

from __future__ import annotations

import keras
from keras import layers as L

from tests.conformance.keras_cases.arguments import case, floats, mask
from tests.conformance.keras_cases.basic import zeros

X = (2, 5, 4)
MASK = {"mask": mask(2, 5)}


class Leaky(L.Layer):
    """A cell of our own with two states."""

    def __init__(self, units):
        super().__init__()
        self.units, self.state_size = units, [units, units]

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")
        self.built = True

    def call(self, inputs, states):
        fast, slow = states
        fast = keras.ops.tanh(inputs @ self.kernel + 0.5 * fast)
        slow = 0.9 * slow + 0.1 * fast
        return slow, [fast, slow]


RECURRENT = {}
for kind in ("SimpleRNN", "GRU", "LSTM"):
    c = getattr(L, kind)
    RECURRENT |= {
        kind: case(lambda c=c: c(3), X),
        f"{kind}.sequences": case(lambda c=c: c(3, return_sequences=True, return_state=True), X),
        f"{kind}.backwards": case(lambda c=c: c(3, go_backwards=True, return_sequences=True), X),
        f"{kind}.unroll": case(lambda c=c: c(3, unroll=True), X),
        f"{kind}.mask": case(lambda c=c: c(3, return_sequences=True), X, kwargs=MASK),
        f"{kind}.zero_output": case(
            lambda c=c: c(3, return_sequences=True, zero_output_for_mask=True), X, kwargs=MASK
        ),
        f"{kind}.stateful": case(lambda c=c: c(3, stateful=True), X, vmap=False),
        f"{kind}.dropout": case(
            lambda c=c: c(3, dropout=0.3, recurrent_dropout=0.2), X, train="drawn"
        ),
        f"{kind}Cell": case(
            lambda k=kind: L.RNN(getattr(L, f"{k}Cell")(3), return_sequences=True), X
        ),
        f"Bidirectional.{kind}": case(lambda c=c: L.Bidirectional(c(3)), X),
        f"Bidirectional.{kind}.sum": case(
            lambda c=c: L.Bidirectional(c(3, return_sequences=True), merge_mode="sum"), X
        ),
    }
RECURRENT |= {
    "GRU.reset_before": case(lambda: L.GRU(3, reset_after=False), X),
    "LSTM.initial_state": case(
        lambda: L.LSTM(3), X, kwargs={"initial_state": [floats(2, 3), floats(2, 3) * 0.5]}
    ),
    "LSTM.no_bias": case(lambda: L.LSTM(3, use_bias=False, activation="relu"), X),
    "RNN.custom": case(lambda: L.RNN(Leaky(3), return_state=True), X),
    "RNN.custom.mask": case(lambda: L.RNN(Leaky(3)), X, kwargs=MASK),
    "StackedRNNCells": case(
        lambda: L.RNN(L.StackedRNNCells([L.LSTMCell(3), L.GRUCell(2)]), return_sequences=True), X
    ),
    "LSTMCell.alone": case(
        lambda: L.LSTMCell(3), (2, 4), [floats(2, 3), floats(2, 3) * 0.5]
    ),
    "SimpleRNNCell.alone": case(lambda: L.SimpleRNNCell(3), (2, 4), [floats(2, 3)]),
    "GRUCell.alone": case(lambda: L.GRUCell(3), (2, 4), [floats(2, 3)]),
    "Bidirectional.two": case(
        lambda: L.Bidirectional(L.LSTM(3), backward_layer=L.GRU(2, go_backwards=True)), X
    ),
    "TimeDistributed.mask": case(
        lambda: keras.Sequential([L.Masking(), L.TimeDistributed(L.Dense(2)), L.GRU(2)]), X
    ),
    "ConvLSTM1D": case(lambda: L.ConvLSTM1D(2, 3), (2, 3, 6, 2)),
    "ConvLSTM2D": case(
        lambda: L.ConvLSTM2D(2, 2, padding="same", return_sequences=True), (2, 3, 4, 5, 2)
    ),
    "ConvLSTM3D": case(lambda: L.ConvLSTM3D(2, 2), (2, 3, 4, 3, 4, 2)),
    "ConvLSTM2D.dropout": case(lambda: L.ConvLSTM2D(2, 2, dropout=0.3), (2, 3, 4, 5, 2),
                               train="drawn"),
}  # fmt: skip

Q, V = floats(2, 5, 8), floats(2, 6, 8)
MASKS = [mask(2, 5), mask(2, 6)]


def heads(**options):
    return lambda: L.MultiHeadAttention(2, 4, **options)


ATTENTION = {
    "Attention": case(lambda: L.Attention(use_scale=True), [Q, V]),
    "Attention.concat": case(lambda: L.Attention(score_mode="concat"), [Q, V]),
    "Attention.mask": case(lambda: L.Attention(), [Q, V], kwargs={"mask": MASKS}),
    "Attention.causal": case(lambda: L.Attention(), [Q, Q], kwargs={"use_causal_mask": True}),
    "Attention.scores": case(
        lambda: L.Attention(), [Q, V, V * 0.5], kwargs={"return_attention_scores": True}
    ),
    "Attention.dropout": case(lambda: L.Attention(dropout=0.3), [Q, V], train="drawn"),
    "AdditiveAttention": case(lambda: L.AdditiveAttention(), [Q, V]),
    "MultiHeadAttention": case(heads(), Q, V),
    "MultiHeadAttention.scores": case(
        heads(), Q, V, V * 0.5, kwargs={"return_attention_scores": True}
    ),
    "MultiHeadAttention.mask": case(
        heads(), Q, V, kwargs={"query_mask": MASKS[0], "value_mask": MASKS[1]}
    ),
    "MultiHeadAttention.causal": case(heads(), Q, Q, kwargs={"use_causal_mask": True}),
    "MultiHeadAttention.dropout": case(heads(dropout=0.3), Q, V, train="drawn"),
    "MultiHeadAttention.axes": case(
        heads(attention_axes=(1, 2)), floats(2, 3, 2, 4), floats(2, 3, 2, 4) * 0.3
    ),
    "GroupQueryAttention": case(lambda: L.GroupQueryAttention(4, 4, 2), Q, V),
    "GroupQueryAttention.causal": case(
        lambda: L.GroupQueryAttention(4, 4, 2), Q, Q, kwargs={"use_causal_mask": True}
    ),
    "Dropout.in_a_model": case(
        lambda: keras.Sequential([L.Dense(64), L.Dropout(0.5)]), (64, 8),
        train="drawn", check=zeros(0.5),
    ),
}  # fmt: skip

CASES = RECURRENT | ATTENTION
