"""Narrow models at lengths and image sizes of real use: what is small in other tests is large here,
and what positions decide must not become a constant of the program.
"""

import jax
import numpy as np
import pytest
import torch
import transformers as tf

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

LENGTH = 1200
WIDE = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
WORDS = WIDE | dict(vocab_size=200)
LONG = WORDS | dict(max_position_embeddings=1300)
T5 = dict(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, vocab_size=200)
LAYERS = dict(encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64)
PAIR = dict(d_model=32, encoder_attention_heads=2, decoder_attention_heads=2, **LAYERS)
NO_CACHE = dict(use_cache=False)
GENERATOR = np.random.default_rng(0)


def ids(length=LENGTH):
    return GENERATOR.integers(5, 190, (1, length))


def image(size):
    return dict(pixel_values=GENERATOR.normal(size=(1, 3, size, size)).astype(np.float32))


def texts(**more):
    return dict(input_ids=ids(), **more)


CASES = {
    "gemma2": ("Gemma2ForCausalLM", dict(WORDS, num_key_value_heads=1, head_dim=16,
               sliding_window=200), texts(**NO_CACHE)),
    "t5": ("T5Model", T5, texts(decoder_input_ids=ids(), **NO_CACHE)),
    "falcon": ("FalconForCausalLM", dict(WORDS, alibi=True), texts(**NO_CACHE)),
    "swinv2": ("Swinv2Model", dict(embed_dim=16, depths=[2, 2], num_heads=[2, 4], image_size=256,
               window_size=8), image(256)),
    "longformer": ("LongformerModel", dict(LONG, attention_window=[64, 64]), texts()),
    "beit": ("BeitModel", dict(WIDE, image_size=384, use_relative_position_bias=True), image(384)),
    "longt5": ("LongT5Model", dict(T5, encoder_attention_type="transient-global"),
               texts(decoder_input_ids=ids(8), **NO_CACHE)),
    "deberta-v2": ("DebertaV2Model", dict(LONG, relative_attention=True, position_buckets=256,
                   pos_att_type=["p2c", "c2p"]), texts()),
    "xlnet": ("XLNetModel", dict(vocab_size=200, d_model=32, n_layer=2, n_head=2, d_inner=64),
              texts()),
    "led": ("LEDModel", dict(PAIR, vocab_size=200, attention_window=64,
            max_encoder_position_embeddings=1400), texts(decoder_input_ids=ids(8), **NO_CACHE)),
    "gpt_neo": ("GPTNeoForCausalLM", dict(hidden_size=32, num_layers=2, num_heads=2, vocab_size=200,
                attention_types=[[["global", "local"], 1]], max_position_embeddings=1300),
                texts(**NO_CACHE)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_constants(name):
    cls, config, inputs = CASES[name]
    torch.manual_seed(0)
    kind = getattr(tf, cls)
    module = kind(kind.config_class(**config)).eval()
    arrays = {k: x for k, x in inputs.items() if isinstance(x, np.ndarray)}
    settings = {k: x for k, x in inputs.items() if k not in arrays}
    with torch.no_grad():
        want = module(**{k: torch.tensor(x) for k, x in arrays.items()}, **settings)[0].numpy()
    model = anyjax.from_torch(module)
    run = lambda params, arrays: model.apply(params, **arrays, **settings)[0]
    program = jax.make_jaxpr(run)(model.params, arrays)
    assert sum(x.nbytes for x in program.consts) < 4e6
    assert_close(jax.jit(run)(model.params, arrays), want, reduction=LENGTH)
