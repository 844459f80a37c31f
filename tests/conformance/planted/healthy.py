"""Models without faults, as users bring them: what verify says of each is that it is equal."""

from __future__ import annotations

import copy
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import torch
import transformers
from torch import nn
from torch.nn.utils import parametrizations

import anyjax
from tests.conformance.planted import modules
from tests.models.tiny import DECODER, GPT2, SEQ2SEQ, TEXT

IDS, MASK, SMALL, hugging = modules.IDS, modules.MASK, modules.SMALL, modules.hugging
X = np.random.default_rng(0).standard_normal((4, 6, 8)).astype(np.float32)
IMAGES = np.random.default_rng(0).standard_normal((2, 4, 8, 8)).astype(np.float32)
VOLUMES = np.random.default_rng(0).standard_normal((2, 2, 4, 4, 4)).astype(np.float32)
SOUND = np.random.default_rng(0).standard_normal((2, 16, 20)).astype(np.float32)


class Of(nn.Module):
    """Layers, and a function that calls them."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *args):
        return self.function(*self.layers, *args)


def _set_randomly(parameter, x):
    parameter.register_forward_pre_hook(lambda _, args: (args[0] * x,))
    return parameter


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple]] = {
    "attention of torch": (lambda: Of(lambda a, x: a(x, x, x), nn.MultiheadAttention(8, 2)), (X,)),
    "an encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (X,)),
    "a decoder layer": (lambda: nn.TransformerDecoderLayer(8, 2, 16), (X, X)),
    "gru": (lambda: nn.GRU(8, 4, bidirectional=True), (X,)),
    "rnn": (lambda: nn.RNN(8, 4, 2), (X,)),
    "lstm cell": (lambda: nn.LSTMCell(8, 8), (X[0],)),
    "conv1d": (lambda: nn.Conv1d(6, 4, 3, groups=2), (X,)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2), (VOLUMES,)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 2, 3, 2, 1), (IMAGES,)),
    "dilated convolution": (lambda: nn.Conv2d(4, 2, 3, dilation=2), (IMAGES,)),
    "depthwise convolution": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding="same"), (IMAGES,)),
    "norm of instances": (lambda: nn.InstanceNorm2d(4, affine=True), (IMAGES,)),
    "norm of batches": (lambda: nn.BatchNorm2d(4), (IMAGES,)),
    "norm of volumes": (lambda: nn.BatchNorm3d(2), (VOLUMES,)),
    "norm by root mean squares": (lambda: nn.RMSNorm(8), (X,)),
    "norm of neighbours": (lambda: nn.LocalResponseNorm(2), (IMAGES,)),
    "pools": (lambda: nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(3)), (IMAGES,)),
    "resized": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (IMAGES,)),
    "shuffled pixels": (lambda: nn.PixelShuffle(2), (IMAGES,)),
    "bilinear": (lambda: nn.Bilinear(8, 8, 3), (X, X)),
    "prelu": (lambda: nn.PReLU(6), (X,)),
    "softmax": (lambda: nn.Sequential(nn.LogSoftmax(-1), nn.Softmin(-1)), (X,)),
    "activations": (lambda: nn.Sequential(nn.Mish(), nn.Softplus(), nn.Hardswish()), (X,)),
    "activations in place": (lambda: nn.Sequential(nn.ReLU(True), nn.SiLU(True)), (X,)),
    "cosines": (lambda: nn.CosineSimilarity(-1), (X, X[::-1].copy())),
    "bag of embeddings": (lambda: nn.EmbeddingBag(96, 8), (IDS,)),
    "weights of a norm": (lambda: parametrizations.weight_norm(nn.Linear(8, 8)), (X,)),
    "orthogonal weights": (lambda: parametrizations.orthogonal(nn.Linear(8, 8)), (X,)),
    "tied weights": (lambda: Of(lambda a, b, x: b(a(x)), *[nn.Linear(8, 8)] * 2), (X,)),
    "a layer twice": (lambda: Of(lambda a, x: a(a(x)), nn.Linear(8, 8)), (X,)),
    "a hook before": (lambda: nn.Sequential(_set_randomly(nn.Linear(8, 8), 2.0)), (X,)),
    "a part that never runs": (
        lambda: Of(lambda a, b, x: a(x), nn.Linear(8, 8), nn.Linear(8, 8)), (X,)),
    "mapped by torch": (lambda: Of(lambda a, x: torch.func.vmap(a)(x), nn.Linear(8, 8)), (X,)),
    "a gradient inside": (
        lambda: Of(lambda a, x: torch.func.grad(lambda y: a(y).sin().sum())(x), nn.Linear(8, 8)),
        (X,),
    ),
    "forward derivatives inside": (
        lambda: Of(lambda a, x: torch.func.jvp(a, (x,), (x,))[1], nn.Linear(8, 8)), (X,)),
    "a jacobian inside": (
        lambda: Of(lambda a, x: torch.func.jacrev(a)(x[0, 0]), nn.Linear(8, 4)), (X,)),
    "an ensemble": (
        lambda: Of(lambda a, x: torch.func.vmap(lambda w: torch.func.functional_call(a, w, (x,)))(
            {k: torch.stack([v, 2 * v]) for k, v in a.named_parameters()}), nn.Linear(8, 4)), (X,)),
    "spectra": (lambda: Of(lambda a, x: torch.fft.rfft(a(x)), nn.Linear(8, 8)), (X,)),
    "scores and places": (lambda: Of(lambda a, x: a(x).topk(3), nn.Linear(8, 8)), (X,)),
    "rows that are chosen": (
        lambda: Of(lambda a, x: a(x).gather(1, x.argsort(1)), nn.Linear(8, 8)), (X,)),
    "hidden scores": (
        lambda: Of(lambda a, x: a(x).masked_fill(x > 0, torch.finfo(x.dtype).min), nn.Linear(8, 8)),
        (X,),
    ),
    "infinite scores": (
        lambda: Of(lambda a, x: a(x).masked_fill(x > 0, -torch.inf).softmax(-1), nn.Linear(8, 8)),
        (X,),
    ),
    "a gradient in bfloat16": (
        lambda: Of(lambda a, x: torch.func.grad(lambda y: a(y).sin().sum())(x.bfloat16()),
                   nn.Linear(8, 8).bfloat16()), (X,)),
    "two maps": (
        lambda: Of(lambda a, x: torch.func.vmap(torch.func.vmap(a))(x), nn.Linear(8, 8)), (X,)),
    "a map of columns": (
        lambda: Of(lambda a, x: torch.func.vmap(a, 1, 1)(x), nn.Linear(8, 8)), (X,)),
    "large beside small": (
        lambda: Of(lambda a, x: (a(x) * 1e9, a(x) * 1e-9), nn.Linear(8, 8)), (X,)),
    "zeros": (lambda: Of(lambda a, x: a(x * 0) * 0, nn.Linear(8, 8)), (X,)),
    "differences that cancel": (
        lambda: Of(lambda a, x: a(x) - a(x + 1e-6), nn.Linear(8, 8)), (X,)),
}  # fmt: skip

WHISPER = SEQ2SEQ | {"num_mel_bins": 16, "max_source_positions": 10, "max_target_positions": 20}
WHISPER.pop("max_position_embeddings")
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 96}
PAIR = {"input_ids": IDS, "decoder_input_ids": IDS[:, :5]}
# With the caches that they return by themselves.
CACHED: dict[str, tuple[Callable[[], nn.Module], dict]] = {
    "llama": (hugging(transformers.LlamaForCausalLM, transformers.LlamaConfig, **DECODER),
              {"input_ids": IDS, "attention_mask": MASK}),
    "gpt2": (hugging(transformers.GPT2LMHeadModel, transformers.GPT2Config, **GPT2),
             {"input_ids": IDS}),
    "mixtral": (hugging(transformers.MixtralForCausalLM, transformers.MixtralConfig, **DECODER,
                        num_local_experts=4), {"input_ids": IDS}),
    "t5": (hugging(transformers.T5ForConditionalGeneration, transformers.T5Config, **T5), PAIR),
    "bart": (hugging(transformers.BartForConditionalGeneration, transformers.BartConfig, **SEQ2SEQ),
             PAIR),
    "whisper": (hugging(transformers.WhisperForConditionalGeneration, transformers.WhisperConfig,
                        **WHISPER), {"input_features": SOUND, "decoder_input_ids": IDS[:, :5]}),
    "roberta": (hugging(transformers.RobertaModel, transformers.RobertaConfig, **TEXT | SMALL),
                {"input_ids": IDS, "attention_mask": MASK}),
    "mamba": (hugging(transformers.MambaForCausalLM, transformers.MambaConfig, vocab_size=96,
                      hidden_size=16, num_hidden_layers=1, state_size=4), {"input_ids": IDS}),
}  # fmt: skip


def _narrow(x, dtype):
    """Returns floats in a narrower dtype, as JAX's arrays."""
    is_float = isinstance(x, np.ndarray) and x.dtype.kind == "f"
    return jnp.asarray(x, str(dtype).removeprefix("torch.")) if is_float else x


def _in_dtype(dtype):
    def way(module, args, kwargs):
        args = tuple(_narrow(x, dtype) for x in args)
        kwargs = {k: _narrow(x, dtype) for k, x in kwargs.items()}
        return anyjax.from_torch(module.to(dtype)), args, kwargs, None

    return way


def _trained(module, args, kwargs):
    model = anyjax.from_torch(module)
    params = {k: v * 1.01 + 1e-3 for k, v in model.params.items()}
    return model.with_params(params), args, kwargs, None


def _copied(module, args, kwargs):
    return anyjax.from_torch(copy.deepcopy(module)), args, kwargs, module


def _of_a_model(module, args, kwargs):
    return anyjax.from_torch(copy.deepcopy(module)), args, kwargs, anyjax.from_torch(module)


def _training(module, args, kwargs):
    return anyjax.from_torch(module).train(), args, kwargs, None


def _as_it_is(module, args, kwargs):
    return anyjax.from_torch(module), args, kwargs, None


WAYS = {
    "as it is": _as_it_is, "trained": _trained, "a copy": _copied, "a model": _of_a_model,
    "training": _training, "bfloat16": _in_dtype(torch.bfloat16),
    "float16": _in_dtype(torch.float16),
}  # fmt: skip


def _built(build):
    torch.manual_seed(0)
    return build().eval()


# What torch itself does not compute in fewer bits.
WIDE_ALONE = {(way, name) for way in ("bfloat16", "float16") for name in ("attention", "several")}
PAIRS: dict[str, Callable[[], tuple]] = {
    **{f"{way}: {name}": lambda way=way, name=name: WAYS[way](*modules.module(name))
       for way in WAYS for name in modules.MODULES if (way, name) not in WIDE_ALONE},
    **{f"{way}: {name}": lambda way=way, build=build, args=args: WAYS[way](_built(build), args, {})
       for way in ("as it is",) for name, (build, args) in LAYERS.items()},
    **{f"{way}: cached {name}":
       lambda way=way, build=build, kwargs=kwargs: WAYS[way](_built(build), (), kwargs)
       for way in ("as it is", "bfloat16", "trained") for name, (build, kwargs) in CACHED.items()},
}  # fmt: skip
