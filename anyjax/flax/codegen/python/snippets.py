"""Classes and functions that a file gets where Flax and JAX have none that mean the same."""

import re

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
TAPS = '''def taps(at, cubic=False):
    """Neighbours of places between the numbers of an array, each with its weight."""
    t = at - jnp.floor(at)
    near = lambda t: (1.25 * t - 2.25) * t * t + 1
    far = lambda t: -0.75 * (((t - 5) * t + 8) * t - 4)
    weights = {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}
    weights = weights if cubic else {0: 1 - t, 1: t}
    return [(jnp.floor(at).astype(int) + i, weight) for i, weight in weights.items()]
'''
INTERPOLATED = '''def interpolated(x, sizes, steps, cubic=False, corners=False):
    """PyTorch's interpolation of (batch, *places, channels); ``steps`` lie between the samples."""
    for axis, (size, step) in enumerate(zip(sizes, steps), 1):
        at = jnp.arange(size) * step if corners else (jnp.arange(size) + 0.5) * step - 0.5
        at = at if cubic or corners else jnp.maximum(at, 0)
        beside = (1,) * (x.ndim - axis - 1)
        x = sum(
            jnp.take(x, place, axis=axis, mode="clip") * weight.reshape(-1, *beside)
            for place, weight in taps(at, cubic)
        )
    return x
'''
SAMPLED = '''def sampled(x, grid, mode="bilinear", border=False, corners=False):
    """PyTorch's grid_sample: x (batch, channels, height, width) at (batch, rows, columns, 2)."""
    sizes = jnp.array([x.shape[3], x.shape[2]])
    at = (grid + 1) / 2 * (sizes - 1) if corners else ((grid + 1) * sizes - 1) / 2
    at = jnp.clip(at, 0, sizes - 1) if border and mode != "bicubic" else at
    at = jnp.round(at) if mode == "nearest" else at
    batch = jnp.arange(x.shape[0])[:, None, None]
    total = 0
    for column, across in taps(at[..., 0], mode == "bicubic"):
        for row, down in taps(at[..., 1], mode == "bicubic"):
            place = jnp.stack([column, row], axis=-1)
            inside = ((place >= 0) & (place < sizes)).all(-1) | border
            column_, row_ = jnp.moveaxis(jnp.clip(place, 0, sizes - 1), -1, 0)
            total += x[batch, :, row_, column_] * (across * down * inside)[..., None]
    return total.transpose(0, 3, 1, 2)
'''
ATTENTION = '''def attention_with_dropout(
    query, key, value, dropout, mask=None, bias=None, is_causal=False, scale=None, **mode
):
    """JAX's dot_product_attention with dropout of the probabilities."""
    if mode["deterministic"]:
        return jax.nn.dot_product_attention(
            query, key, value, bias, mask, scale=scale, is_causal=is_causal
        )
    groups = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(x, groups, axis=2) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * scale + (0 if bias is None else bias)
    if is_causal:
        mask = jnp.tri(*scores.shape[-2:], dtype=bool)
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("bhqk,bkhd->bqhd", dropout(nnx.softmax(scores), **mode), value)
'''
CROSS_ENTROPY = '''def mean_cross_entropy(logits, labels, ignored=-100, axis=-1):
    """The mean of optax's loss over the labels that are not the ignored one."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels, axis)
    return losses.mean(where=labels != ignored)
'''
PART = '''class TorchPart(nnx.Module):
    """A submodule that stays in PyTorch and is called through anyjax; see ``connect``."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.model = nnx.data(None)

    def __call__(self, *args, **kwargs):
        if self.model is None:
            raise ValueError("connect(model, module) gives the parts that stay in PyTorch theirs")
        return self.model(*args, **kwargs)


def connect(model, module):
    """Gives the parts that stay in PyTorch theirs; ``load_params`` comes before it."""
    graph = list(nnx.iter_graph(model))
    chains = {path for path, part in graph if isinstance(part, nnx.Sequential)}
    for path, part in graph:
        if isinstance(part, TorchPart):
            names = [str(x) for i, x in enumerate(path) if path[:i] not in chains]
            inner = anyjax.from_torch(module.get_submodule(".".join(names)))
            part.model = anyjax.flax.to_nnx(inner, pretrained=True)
    return model
'''
BATCH_NORM = '''class BatchNorm(nnx.BatchNorm):
    """As PyTorch's: of a batch's variance it keeps that of a sample, n / (n - 1) times as much."""

    def __call__(self, x):
        kept, count = self.momentum * self.var[...], x.size // x.shape[-1]
        x = super().__call__(x)
        if not self.use_running_average:
            self.var[...] = kept + (self.var[...] - kept) * (count / (count - 1))
        return x
'''
CUMULATIVE = '''class CumulativeBatchNorm(nnx.BatchNorm):
    """As PyTorch's without a momentum: the statistics are means over all batches so far."""

    def __init__(self, num_features, **how):
        super().__init__(num_features, momentum=0.0, **how)
        self.num_batches_tracked = nnx.BatchStat(jnp.zeros((), int))

    def __call__(self, x):
        mean, var, count = self.mean[...], self.var[...], x.size // x.shape[-1]
        x = super().__call__(x)  # without a momentum it keeps those of this batch
        if not self.use_running_average:
            self.num_batches_tracked[...] += 1
            batches = self.num_batches_tracked[...]
            self.mean[...] = mean + (self.mean[...] - mean) / batches
            self.var[...] = var + (self.var[...] * (count / (count - 1)) - var) / batches
        return x
'''
PADDED_EMBED = '''class PaddedEmbed(nnx.Embed):
    """As PyTorch's: looking the token of padding up gives its row no gradient."""

    def __init__(self, num_embeddings, features, *, padding_idx, rngs):
        super().__init__(num_embeddings, features, rngs=rngs)
        self.padding_idx = padding_idx

    def __call__(self, inputs):
        found = super().__call__(inputs)
        padding = (inputs == self.padding_idx)[..., None]
        return jnp.where(padding, jax.lax.stop_gradient(found), found)
'''
# From projections to scores, in either style.
SCORES = """        heads = [
            (x @ weight.T + bias).reshape(*x.shape[:2], self.num_heads, -1)
            for x, weight, bias in zip(given, weights, biases)
        ]
        query, key, value = heads
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
        added = lambda mask: jnp.where(mask, -jnp.inf, 0) if mask.dtype == bool else mask
        if attn_mask is not None:
            scores += added(attn_mask if attn_mask.ndim == 2 else attn_mask.reshape(scores.shape))
        if key_padding_mask is not None:
            scores += added(key_padding_mask)[:, None, None]
"""
MULTIHEAD = '''class MultiheadAttention(nnx.Module):
    """PyTorch's; masks are what is added to the scores, or True where they do not look."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, use_bias=True, batch_first=True, *, rngs):
        self.num_heads, self.batch_first = num_heads, batch_first
        drawn = nnx.initializers.xavier_uniform()(rngs.params(), (3 * embed_dim, embed_dim))
        self.in_proj_weight = nnx.Param(drawn)
        self.in_proj_bias = nnx.Param(jnp.zeros(3 * embed_dim)) if use_bias else None
        self.out_proj = nnx.Linear(embed_dim, embed_dim, use_bias=use_bias, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(
        self, query, key, value, attn_mask=None, key_padding_mask=None, average_attn_weights=True
    ):
        """(batch, length, embed_dim) each; gives outputs and probabilities."""
        given = [x if self.batch_first else x.swapaxes(0, 1) for x in (query, key, value)]
        weights, biases = jnp.split(self.in_proj_weight[...], 3), (0, 0, 0)
        if self.in_proj_bias is not None:
            biases = jnp.split(self.in_proj_bias[...], 3)
        SCORES
        probabilities = self.dropout(nnx.softmax(scores))
        outputs = jnp.einsum("bhqk,bkhd->bqhd", probabilities, value)
        outputs = self.out_proj(outputs.reshape(*outputs.shape[:2], -1))
        outputs = outputs if self.batch_first else outputs.swapaxes(0, 1)
        return outputs, probabilities.mean(1) if average_attn_weights else probabilities
'''.replace("        SCORES\n", SCORES)
SNIPPETS = {"LSTMLayers": LSTM, "GRULayers": GRU}
FUNCTIONS = {"interpolated": INTERPOLATED, "sampled": SAMPLED}
ALONE = {"attention_with_dropout": ATTENTION, "mean_cross_entropy": CROSS_ENTROPY}
MODULES = {"TorchPart": PART, "MultiheadAttention": MULTIHEAD, "PaddedEmbed": PADDED_EMBED}


def snippets(names: set[str], classes: list[str], recurrent: str = RECURRENT) -> list[str]:
    """Returns the texts of snippets that these names and classes use, dependencies first."""
    calls = [name for name in FUNCTIONS if any(re.search(rf"\b{name}\(", x) for x in classes)]
    functions = [TAPS, *(FUNCTIONS[name] for name in calls)] if calls else []
    functions += [x for name, x in ALONE.items() if any(f"{name}(" in y for y in classes)]
    functions += [x for name, x in MODULES.items() if name in names]
    functions += [BATCH_NORM] * ("BatchNorm" in names)
    functions += [CUMULATIVE] * ("CumulativeBatchNorm" in names)
    layers = sorted(names & set(SNIPPETS))
    return functions + ([recurrent, *(SNIPPETS[name] for name in layers)] if layers else [])
