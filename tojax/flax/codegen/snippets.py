"""Classes that a file gets where Flax has no layer that means the same."""

LSTM = '''class LSTMLayers(nnx.Module):
    """PyTorch's: gates in the order i, f, g, o; layers and directions as there."""

    def __init__(self, features, hidden, num_layers=1, bidirectional=False, use_bias=True, *, rngs):
        self.hidden, self.num_layers, self.use_bias = hidden, num_layers, use_bias
        self.directions = ["", "_reverse"] if bidirectional else [""]
        bound = hidden**-0.5
        for layer in range(num_layers):
            for end in self.directions:
                sizes = {"weight_ih": (4 * hidden, features), "weight_hh": (4 * hidden, hidden)}
                if use_bias:
                    sizes |= {"bias_ih": (4 * hidden,), "bias_hh": (4 * hidden,)}
                for name, size in sizes.items():
                    drawn = rngs.params.uniform(size, minval=-bound, maxval=bound)
                    setattr(self, f"{name}_l{layer}{end}", nnx.Param(drawn))
            features = hidden * len(self.directions)

    def __call__(self, x, state=None):
        """x: (batch, length, features); gives outputs, last h, last c."""
        last = []
        for layer in range(self.num_layers):
            outputs = []
            for end in self.directions:
                ours = lambda name: getattr(self, f"{name}_l{layer}{end}")[...]
                bias = ours("bias_ih") + ours("bias_hh") if self.use_bias else 0

                def step(carry, gates, weight=ours("weight_hh")):
                    h, c = carry
                    i, f, g, o = jnp.split(gates + h @ weight.T, 4, axis=-1)
                    c = nnx.sigmoid(f) * c + nnx.sigmoid(i) * jnp.tanh(g)
                    h = nnx.sigmoid(o) * jnp.tanh(c)
                    return (h, c), h

                zeros = jnp.zeros((x.shape[0], self.hidden), x.dtype)
                start = (zeros, zeros) if state is None else tuple(s[len(last)] for s in state)
                gates = (x @ ours("weight_ih").T + bias).swapaxes(0, 1)
                carry, out = jax.lax.scan(step, start, gates, reverse=bool(end))
                last.append(carry)
                outputs.append(out.swapaxes(0, 1))
            x = jnp.concatenate(outputs, axis=-1)
        return x, *(jnp.stack(part) for part in zip(*last))
'''
GRU = '''class GRULayers(nnx.Module):
    """PyTorch's: gates in the order r, z, n, the reset gate after the product."""

    def __init__(self, features, hidden, num_layers=1, bidirectional=False, use_bias=True, *, rngs):
        self.hidden, self.num_layers, self.use_bias = hidden, num_layers, use_bias
        self.directions = ["", "_reverse"] if bidirectional else [""]
        bound = hidden**-0.5
        for layer in range(num_layers):
            for end in self.directions:
                sizes = {"weight_ih": (3 * hidden, features), "weight_hh": (3 * hidden, hidden)}
                if use_bias:
                    sizes |= {"bias_ih": (3 * hidden,), "bias_hh": (3 * hidden,)}
                for name, size in sizes.items():
                    drawn = rngs.params.uniform(size, minval=-bound, maxval=bound)
                    setattr(self, f"{name}_l{layer}{end}", nnx.Param(drawn))
            features = hidden * len(self.directions)

    def __call__(self, x, state=None):
        """x: (batch, length, features); gives (outputs, last h)."""
        last = []
        for layer in range(self.num_layers):
            outputs = []
            for end in self.directions:
                ours = lambda name: getattr(self, f"{name}_l{layer}{end}")[...]
                bias_ih, bias_hh = (ours("bias_ih"), ours("bias_hh")) if self.use_bias else (0, 0)

                def step(h, gates, weight=ours("weight_hh"), bias=bias_hh):
                    r, z, n = jnp.split(gates, 3, axis=-1)
                    hr, hz, hn = jnp.split(h @ weight.T + bias, 3, axis=-1)
                    r, z = nnx.sigmoid(r + hr), nnx.sigmoid(z + hz)
                    n = jnp.tanh(n + r * hn)
                    h = (1 - z) * n + z * h
                    return h, h

                zeros = jnp.zeros((x.shape[0], self.hidden), x.dtype)
                start = zeros if state is None else state[len(last)]
                gates = (x @ ours("weight_ih").T + bias_ih).swapaxes(0, 1)
                carry, out = jax.lax.scan(step, start, gates, reverse=bool(end))
                last.append(carry)
                outputs.append(out.swapaxes(0, 1))
            x = jnp.concatenate(outputs, axis=-1)
        return x, jnp.stack(last)
'''
SNIPPETS = {"LSTMLayers": LSTM, "GRULayers": GRU}
