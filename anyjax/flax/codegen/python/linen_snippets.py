"""Parts of a file in Linen that are the same for every module."""

from anyjax.flax.codegen.python.snippets import SCORES

# What Linen puts between: it says layers_0 for layers.0, and for the first of a Sequential.
LEVELS = r"(layers_+)+(?=\d)"
LOADER = '''

def load_params(weights, model=None, *inputs):
    """The model's variables from a state dict of PyTorch, or from a folder of safetensors files.

    Without a model and an example of its inputs: for ``Whole()`` and ``EXAMPLE``.
    """
    if not isinstance(weights, dict):
        weights = read_safetensors(weights)
    # Linen says layers_0 for layers.0, and for the first module of a Sequential.
    plain = lambda name: re.sub(r"(layers_+)+(?=\\d)", "", name.replace(".", "_"))
    arrays = {plain(name): x for name, x in weights.items()}
    names = dict.fromkeys(("kernel", "scale", "embedding"), "weight")
    names |= {"mean": "running_mean", "var": "running_var"}
    wrong, read = [], set()

    def loaded(path, expected):
        *home, name = (x.key for x in path[1:])
        keys = [plain("_".join([*home, x])) for x in (name, names.get(name, name))]
        value = next((jnp.asarray(arrays[x]) for x in keys if x in arrays), None)
        read.update(keys)
        if value is None:
            wrong.append(f"{'/'.join([*home, name])} is missing")
            return None
        if name == "kernel" and keys[0] not in arrays and value.ndim > 1:
            value = value.transpose(*range(2, value.ndim), 1, 0)
        if value.shape != expected.shape:
            shapes = f"{value.shape}, not {expected.shape}"
            wrong.append(f"{'/'.join([*home, name])} has the shape {shapes}")
        return value

    init = (Whole() if model is None else model).init
    variables = jax.eval_shape(init, jax.random.key(0), *(inputs or EXAMPLE))
    variables = jax.tree.map_with_path(loaded, variables)
    wrong += [f"{name} has no place" for name in weights if plain(name) not in read]
    if wrong:
        raise ValueError("\\n".join(["the weights do not fit:", *wrong]))
    return variables
'''
RECURRENT = '''class Recurrent(nn.Module):
    """PyTorch's recurrent layers: several, in one direction or both, weights by its names."""

    hidden: int
    num_layers: int = 1
    bidirectional: bool = False
    use_bias: bool = True

    @nn.compact
    def __call__(self, x):
        """x: (batch, length, features); gives outputs and the last of each state."""
        rows, bound, last = self.gates * self.hidden, self.hidden**-0.5, []
        draw = lambda key, *size: jax.random.uniform(key, size, minval=-bound, maxval=bound)
        for layer in range(self.num_layers):
            outputs = []
            for end in ["", "_reverse"] if self.bidirectional else [""]:
                ours = lambda name, *size: self.param(f"{name}_l{layer}{end}", draw, *size)
                weight_ih = ours("weight_ih", rows, x.shape[-1])
                weight_hh = ours("weight_hh", rows, self.hidden)
                bias_ih = ours("bias_ih", rows) if self.use_bias else 0
                bias_hh = ours("bias_hh", rows) if self.use_bias else 0
                zeros = (jnp.zeros((x.shape[0], self.hidden), x.dtype),) * self.states
                gates = (x @ weight_ih.T + bias_ih).swapaxes(0, 1)

                def step(state, gates, weight=weight_hh, bias=bias_hh):
                    state = self.cell(gates, state[0] @ weight.T + bias, *state)
                    return state, state[0]

                carry, out = jax.lax.scan(step, zeros, gates, reverse=bool(end))
                last.append(carry)
                outputs.append(out.swapaxes(0, 1))
            x = jnp.concatenate(outputs, axis=-1)
        return x, *(jnp.stack(part) for part in zip(*last))
'''
SEQUENTIAL = '''class SequentialLayers(nn.Module):
    """Layers one after the other; those that training changes are told whether this is it."""

    layers: list

    def __call__(self, x, deterministic=True):
        for layer in self.layers:
            takes = inspect.signature(layer).parameters if isinstance(layer, nn.Module) else ()
            flags = {"deterministic", "use_running_average"}.intersection(takes)
            x = layer(x, **dict.fromkeys(flags, deterministic))
        return x
'''
PADDED_EMBED = '''class PaddedEmbed(nn.Embed):
    """As PyTorch's: looking the token of padding up gives its row no gradient."""

    padding_idx: int = 0

    def __call__(self, inputs):
        found = super().__call__(inputs)
        padding = (inputs == self.padding_idx)[..., None]
        return jnp.where(padding, jax.lax.stop_gradient(found), found)
'''
BATCH_NORM = '''class BatchNorm(nn.BatchNorm):
    """As PyTorch's: of a batch's variance it keeps that of a sample, n / (n - 1) times as much."""

    def __call__(self, x, use_running_average=True):
        before, count = self.get_variable("batch_stats", "var"), x.size // x.shape[-1]
        x = super().__call__(x, use_running_average=use_running_average)
        if not use_running_average and not self.is_initializing():
            kept = self.momentum * before
            new = self.get_variable("batch_stats", "var") - kept
            self.put_variable("batch_stats", "var", kept + new * (count / (count - 1)))
        return x
'''
CUMULATIVE = '''class CumulativeBatchNorm(nn.BatchNorm):
    """As PyTorch's without a momentum: the statistics are means over all batches so far."""

    momentum: float = 0.0  # without one it keeps those of this batch

    def setup(self):
        self.batches = self.variable("batch_stats", "num_batches_tracked", jnp.zeros, (), int)

    def __call__(self, x, use_running_average=True):
        before = {name: self.get_variable("batch_stats", name) for name in ("mean", "var")}
        count = x.size // x.shape[-1]
        x = super().__call__(x, use_running_average=use_running_average)
        if not use_running_average and not self.is_initializing():
            self.batches.value += 1
            for name, scale in (("mean", 1), ("var", count / (count - 1))):
                new = self.get_variable("batch_stats", name) * scale - before[name]
                self.put_variable("batch_stats", name, before[name] + new / self.batches.value)
        return x
'''
MULTIHEAD = '''class MultiheadAttention(nn.Module):
    """PyTorch's; masks are what is added to the scores, or True where they do not look."""

    embed_dim: int
    num_heads: int
    dropout: float = 0.0
    use_bias: bool = True
    batch_first: bool = True

    def setup(self):
        rows, drawn = 3 * self.embed_dim, nn.initializers.xavier_uniform()
        self.in_proj_weight = self.param("in_proj_weight", drawn, (rows, self.embed_dim))
        if self.use_bias:
            self.in_proj_bias = self.param("in_proj_bias", nn.initializers.zeros, (rows,))
        self.out_proj = nn.Dense(self.embed_dim, use_bias=self.use_bias)
        self.drop = nn.Dropout(self.dropout)

    def __call__(
        self,
        query,
        key,
        value,
        attn_mask=None,
        key_padding_mask=None,
        average_attn_weights=True,
        deterministic=True,
    ):
        """(batch, length, embed_dim) each; gives outputs and probabilities."""
        given = [x if self.batch_first else x.swapaxes(0, 1) for x in (query, key, value)]
        weights, biases = jnp.split(self.in_proj_weight, 3), (0, 0, 0)
        if self.use_bias:
            biases = jnp.split(self.in_proj_bias, 3)
        SCORES
        probabilities = self.drop(nn.softmax(scores), deterministic=deterministic)
        outputs = jnp.einsum("bhqk,bkhd->bqhd", probabilities, value)
        outputs = self.out_proj(outputs.reshape(*outputs.shape[:2], -1))
        outputs = outputs if self.batch_first else outputs.swapaxes(0, 1)
        return outputs, probabilities.mean(1) if average_attn_weights else probabilities
'''.replace("        SCORES\n", SCORES)
OWN = {
    "PaddedEmbed": PADDED_EMBED,
    "BatchNorm": BATCH_NORM,
    "CumulativeBatchNorm": CUMULATIVE,
    "MultiheadAttention": MULTIHEAD,
}
