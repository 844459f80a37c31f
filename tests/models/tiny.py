"""Shrunk models of every family that the first release promises, with inputs."""

from __future__ import annotations

import torch
import transformers as t

TEXT = dict(
    vocab_size=96,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=64,
)
DECODER = TEXT | dict(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GPT2 = dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64)
VISION = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    image_size=32,
    patch_size=8,
)
SEQ2SEQ = dict(
    vocab_size=96,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=2,
)
STAGES = dict(
    embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, image_size=32, patch_size=4
)


def ids(length=10, batch=2):
    return torch.randint(3, 96, (batch, length), generator=torch.Generator().manual_seed(1))


def llama(**changes):
    """Returns a Llama in eval mode whose config has the changes."""
    torch.manual_seed(0)
    return t.LlamaForCausalLM(t.LlamaConfig(**DECODER | changes)).eval()


def gpt2(**changes):
    """Returns a GPT-2 in eval mode whose config has the changes."""
    torch.manual_seed(0)
    return t.GPT2LMHeadModel(t.GPT2Config(**GPT2 | changes)).eval()


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def text():
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, -3:] = 0
    return {"input_ids": ids(), "attention_mask": mask}


def decoder():
    return text() | {"use_cache": False}


def image(size=32):
    return {"pixel_values": noise(2, 3, size, size)}


def seq2seq():
    return text() | {"decoder_input_ids": ids(6), "use_cache": False}


def clip_parts(text_class, vision_class):
    own = TEXT | dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return dict(
        text_config=text_class(**own).to_dict(), vision_config=vision_class(**VISION).to_dict()
    )


# name -> (class, config, inputs)
FAMILIES = {
    "gpt2": lambda: (
        t.GPT2LMHeadModel,
        t.GPT2Config(**GPT2),
        decoder(),
    ),
    "llama": lambda: (t.LlamaForCausalLM, t.LlamaConfig(**DECODER), decoder()),
    "mistral": lambda: (
        t.MistralForCausalLM,
        t.MistralConfig(**DECODER, sliding_window=4),
        decoder(),
    ),
    "qwen3": lambda: (t.Qwen3ForCausalLM, t.Qwen3Config(**DECODER, head_dim=8), decoder()),
    "gemma": lambda: (t.GemmaForCausalLM, t.GemmaConfig(**DECODER, head_dim=8), decoder()),
    "gemma2": lambda: (
        t.Gemma2ForCausalLM,
        t.Gemma2Config(**DECODER, head_dim=8, sliding_window=4),
        decoder(),
    ),
    "phi": lambda: (t.PhiForCausalLM, t.PhiConfig(**DECODER), decoder()),
    "phi3": lambda: (t.Phi3ForCausalLM, t.Phi3Config(**DECODER), decoder()),
    "opt": lambda: (
        t.OPTForCausalLM,
        t.OPTConfig(
            vocab_size=96,
            hidden_size=32,
            num_hidden_layers=2,
            ffn_dim=48,
            num_attention_heads=4,
            max_position_embeddings=64,
            word_embed_proj_dim=32,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
        decoder(),
    ),
    "bert": lambda: (t.BertForMaskedLM, t.BertConfig(**TEXT), text()),
    "roberta": lambda: (t.RobertaForMaskedLM, t.RobertaConfig(**TEXT), text()),
    "deberta-v2": lambda: (
        t.DebertaV2ForMaskedLM,
        t.DebertaV2Config(**TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"]),
        text(),
    ),
    "distilbert": lambda: (
        t.DistilBertForMaskedLM,
        t.DistilBertConfig(vocab_size=96, dim=32, n_layers=2, n_heads=4, hidden_dim=48),
        text(),
    ),
    "electra": lambda: (
        t.ElectraForPreTraining,
        t.ElectraConfig(**TEXT, embedding_size=16),
        text(),
    ),
    "t5": lambda: (
        t.T5ForConditionalGeneration,
        t.T5Config(
            vocab_size=96,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        ),
        seq2seq(),
    ),
    "bart": lambda: (t.BartForConditionalGeneration, t.BartConfig(**SEQ2SEQ), seq2seq()),
    "whisper": lambda: (
        t.WhisperForConditionalGeneration,
        t.WhisperConfig(
            **SEQ2SEQ | dict(num_mel_bins=16, max_source_positions=20, max_target_positions=32)
        ),
        {"input_features": noise(2, 16, 40), "decoder_input_ids": ids(6), "use_cache": False},
    ),
    "wav2vec2": lambda: (
        t.Wav2Vec2ForCTC,
        t.Wav2Vec2Config(
            vocab_size=20,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            conv_dim=(16, 16),
            conv_stride=(5, 4),
            conv_kernel=(10, 8),
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            num_feat_extract_layers=2,
        ),
        {"input_values": noise(2, 1000)},
    ),
    "vit": lambda: (t.ViTForImageClassification, t.ViTConfig(**VISION), image()),
    "dinov2": lambda: (t.Dinov2Model, t.Dinov2Config(**VISION), image()),
    "swin": lambda: (t.SwinForImageClassification, t.SwinConfig(**STAGES), image()),
    "convnext": lambda: (
        t.ConvNextForImageClassification,
        t.ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
        image(),
    ),
    "resnet": lambda: (
        t.ResNetForImageClassification,
        t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]),
        image(),
    ),
    "segformer": lambda: (
        t.SegformerForSemanticSegmentation,
        t.SegformerConfig(
            hidden_sizes=[16, 32],
            depths=[1, 1],
            num_encoder_blocks=2,
            num_attention_heads=[2, 4],
            sr_ratios=[2, 1],
            patch_sizes=[7, 3],
            strides=[4, 2],
            mlp_ratios=[2, 2],
            decoder_hidden_size=32,
        ),
        image(),
    ),
    "detr": lambda: (
        t.DetrForObjectDetection,
        t.DetrConfig(
            backbone_config=t.ResNetConfig(
                embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"]
            ),
            use_timm_backbone=False,
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            num_queries=6,
        ),
        image(64),
    ),
    "clip": lambda: (
        t.CLIPModel,
        t.CLIPConfig(**clip_parts(t.CLIPTextConfig, t.CLIPVisionConfig), projection_dim=16),
        text() | image(),
    ),
    "chinese_clip": lambda: (
        t.ChineseCLIPModel,
        t.ChineseCLIPConfig(
            **clip_parts(t.ChineseCLIPTextConfig, t.ChineseCLIPVisionConfig), projection_dim=16
        ),
        text() | image(),
    ),
    "siglip": lambda: (
        t.SiglipModel,
        t.SiglipConfig(**clip_parts(t.SiglipTextConfig, t.SiglipVisionConfig)),
        text() | image(),
    ),
    "mixtral": lambda: (
        t.MixtralForCausalLM,
        t.MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2),
        decoder(),
    ),
    "mamba": lambda: (
        t.MambaForCausalLM,
        t.MambaConfig(
            vocab_size=96,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=4,
            intermediate_size=64,
            time_step_rank=4,
        ),
        {"input_ids": ids(), "use_cache": False},
    ),
    "rwkv": lambda: (
        t.RwkvForCausalLM,
        t.RwkvConfig(
            vocab_size=96,
            hidden_size=32,
            num_hidden_layers=2,
            attention_hidden_size=32,
            intermediate_size=48,
            context_length=64,
        ),
        {"input_ids": ids(), "use_cache": False},
    ),
}


def build(name):
    """(module in eval mode, inputs): weights so large that attention is not uniform and biases are
    not zero.
    """
    cls, config, inputs = FAMILIES[name]()
    torch.manual_seed(0)
    module = cls(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return module, inputs
