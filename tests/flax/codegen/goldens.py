"""Ten files as users get them: ``python -m tests.flax.codegen.goldens`` writes them anew."""

import pathlib

import torch
import transformers as hf

import anyjax
from tests.flax.codegen.models import VAE, ResNet, Tagger, UNet, drawn, ids

FOLDER = pathlib.Path(__file__).with_name("golden")
SIZES = dict(num_hidden_layers=3, num_attention_heads=4, hidden_size=48, intermediate_size=80)
GPT2 = dict(n_layer=3, n_head=4, n_embd=48, n_positions=64, vocab_size=96)
T5 = dict(d_model=48, d_kv=12, d_ff=80, num_layers=3, num_heads=4, vocab_size=96)
MIXTRAL = dict(num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2)


def _language(cls, config, **inputs):
    """A language model, tokens and a mask of padding."""
    ones = torch.ones(2, 7, dtype=torch.int64)
    return cls(config), dict(input_ids=ids(2, 7), attention_mask=ones) | inputs


def llama():
    config = hf.LlamaConfig(**SIZES, num_key_value_heads=2, vocab_size=96)
    return _language(hf.LlamaForCausalLM, config)


def gpt2():
    config = hf.GPT2Config(**GPT2, bos_token_id=0, eos_token_id=0)
    return _language(hf.GPT2LMHeadModel, config)


def bert():
    config = hf.BertConfig(**SIZES, vocab_size=96, max_position_embeddings=64)
    return _language(hf.BertForMaskedLM, config)


def t5():
    config = hf.T5Config(**T5, decoder_start_token_id=0)
    return _language(hf.T5ForConditionalGeneration, config, decoder_input_ids=ids(2, 5))


def vit():
    config = hf.ViTConfig(**SIZES, image_size=32, patch_size=8, num_labels=10)
    return hf.ViTForImageClassification(config), dict(pixel_values=drawn(2, 3, 32, 32))


def mixtral():
    config = hf.MixtralConfig(**SIZES, **MIXTRAL, vocab_size=96)
    return _language(hf.MixtralForCausalLM, config)


def resnet():
    return ResNet(), dict(x=drawn(2, 3, 32, 32))


def unet():
    return UNet(), dict(x=drawn(2, 3, 16, 16))


def tagger():
    return Tagger(), dict(tokens=ids(3, 7))


def vae():
    return VAE(), dict(x=drawn(4, 20))


GOLDENS = (llama, gpt2, bert, t5, vit, mixtral, resnet, unet, tagger, vae)


def made(golden):
    """The module, its inputs."""
    torch.manual_seed(0)
    module, inputs = golden()
    return module.eval(), inputs


def file_of(golden) -> pathlib.Path:
    return FOLDER / f"{golden.__name__}.py"


if __name__ == "__main__":
    for golden in GOLDENS:
        module, inputs = made(golden)
        file_of(golden).write_text(anyjax.flax.source(module, **inputs))
        print(file_of(golden))
