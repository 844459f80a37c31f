"""Classes that a file gets where Flax has no layer that means the same."""

RECURRENT = '''class Recurrent(nnx.Module):
    """PyTorch's recurrent layers: several, in one direction or both, weights by its names."""

    def __init__(self, features, hidden, num_layers=1, bidirectional=False, use_bias=True, *, rngs):
        self.hidden, self.num_layers, self.use_bias = hidden, num_layers, use_bias
        self.directions = ["", "_reverse"] if bidirectional else [""]
        rows, bound = self.gates * hidden, hidden**-0.5
        for layer in range(num_layers):
            for end in self.directions:
                sizes = {"weight_ih": (rows, features), "weight_hh": (rows, hidden)}
                if use_bias:
                    sizes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                for name, size in sizes.items():
                    drawn = rngs.params.uniform(size, minval=-bound, maxval=bound)
                    setattr(self, f"{name}_l{layer}{end}", nnx.Param(drawn))
            features = hidden * len(self.directions)

    def __call__(self, x):
        """x: (batch, length, features); gives outputs and the last of each state."""
        last = []
        for layer in range(self.num_layers):
            outputs = []
            for end in self.directions:
                ours = lambda name: getattr(self, f"{name}_l{layer}{end}")[...]
                bias_ih, bias_hh = (ours("bias_ih"), ours("bias_hh")) if self.use_bias else (0, 0)
                zeros = (jnp.zeros((x.shape[0], self.hidden), x.dtype),) * self.states
                gates = (x @ ours("weight_ih").T + bias_ih).swapaxes(0, 1)

                def step(state, gates, weight=ours("weight_hh"), bias=bias_hh):
                    state = self.cell(gates, state[0] @ weight.T + bias, *state)
                    return state, state[0]

                carry, out = jax.lax.scan(step, zeros, gates, reverse=bool(end))
                last.append(carry)
                outputs.append(out.swapaxes(0, 1))
            x = jnp.concatenate(outputs, axis=-1)
        return x, *(jnp.stack(part) for part in zip(*last))
'''
LSTM = '''class LSTMLayers(Recurrent):
    """Gates in the order i, f, g, o."""

    gates, states = 4, 2

    def cell(self, from_input, from_hidden, h, c):
        i, f, g, o = jnp.split(from_input + from_hidden, 4, axis=-1)
        c = nnx.sigmoid(f) * c + nnx.sigmoid(i) * jnp.tanh(g)
        return nnx.sigmoid(o) * jnp.tanh(c), c
'''
GRU = '''class GRULayers(Recurrent):
    """Gates in the order r, z, n; the reset gate comes after the product."""

    gates, states = 3, 1

    def cell(self, from_input, from_hidden, h):
        r, z, n = jnp.split(from_input, 3, axis=-1)
        hr, hz, hn = jnp.split(from_hidden, 3, axis=-1)
        r, z = nnx.sigmoid(r + hr), nnx.sigmoid(z + hz)
        return ((1 - z) * jnp.tanh(n + r * hn) + z * h,)
'''
INTERPOLATED = '''def interpolated(x, sizes, steps, cubic=False, corners=False):
    """PyTorch's interpolation of (batch, *places, channels); ``steps`` lie between the samples."""
    for axis, (size, step) in enumerate(zip(sizes, steps), 1):
        at = jnp.arange(size) * step if corners else (jnp.arange(size) + 0.5) * step - 0.5
        at = at if cubic or corners else jnp.maximum(at, 0)
        first = jnp.floor(at)
        t = at - first
        near = lambda t: (1.25 * t - 2.25) * t * t + 1
        far = lambda t: -0.75 * (((t - 5) * t + 8) * t - 4)
        taps = {0: 1 - t, 1: t}
        if cubic:
            taps = {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}
        beside = (1,) * (x.ndim - axis - 1)
        x = sum(
            jnp.take(x, first.astype(int) + i, axis=axis, mode="clip") * part.reshape(-1, *beside)
            for i, part in taps.items()
        )
    return x
'''
SNIPPETS = {"LSTMLayers": LSTM, "GRULayers": GRU}
FUNCTIONS = {"interpolated": INTERPOLATED}


def snippets(names: set[str], classes: list[str], recurrent: str = RECURRENT) -> list[str]:
    """The texts of functions that are called and of these classes, what they are made of first."""
    called = [text for name, text in FUNCTIONS.items() if any(f" {name}(" in x for x in classes)]
    layers = [recurrent, *(SNIPPETS[name] for name in sorted(names))] if names else []
    return called + layers
