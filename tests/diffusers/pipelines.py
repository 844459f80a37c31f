"""Pipelines of tiny modules, made offline."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
import transformers

from tests.diffusers.components import (
    autoencoder,
    clip_config,
    clip_tokenizer,
    gemma,
    t5,
    unet,
    word_tokenizer,
)


def assembled(kind: Any, **components: Any) -> Any:
    """Makes a pipeline of modules in evaluation mode."""
    scheduler = components["scheduler"]
    if scheduler.config.get("steps_offset") == 0:  # diffusers warns of it
        components["scheduler"] = type(scheduler).from_config(scheduler.config, steps_offset=1)
    for component in components.values():
        if isinstance(component, torch.nn.Module):
            component.eval()
    pipeline = kind(**components)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def ddim() -> diffusers.DDIMScheduler:
    return diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False, steps_offset=1)


def stable_diffusion(scheduler: Any = None, kind: str = "StableDiffusion", **more: Any) -> Any:
    torch.manual_seed(0)
    return assembled(
        getattr(diffusers, f"{kind}Pipeline"),
        unet=more.pop("unet", None) or unet(),
        vae=more.pop("vae", None) or autoencoder(),
        text_encoder=transformers.CLIPTextModel(clip_config()),
        tokenizer=clip_tokenizer(),
        scheduler=scheduler or ddim(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
        **more,
    )


def smallest(scheduler: Any = None) -> Any:
    """Makes a Stable Diffusion of one block, which compiles in a second."""
    torch.manual_seed(0)
    blocks: dict[str, Any] = {"block_out_channels": (16,), "norm_num_groups": 8}
    up, down = ("CrossAttnUpBlock2D",), ("CrossAttnDownBlock2D",)
    denoiser = unet(down_block_types=down, up_block_types=up, mid_block_type=None, **blocks)
    vae = diffusers.AutoencoderKL(latent_channels=4, **blocks)
    return stable_diffusion(scheduler, unet=denoiser, vae=vae)


def controlled() -> Any:
    torch.manual_seed(1)
    control = diffusers.ControlNetModel(
        block_out_channels=(16, 32), layers_per_block=1, in_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=16,
        conditioning_embedding_out_channels=(8, 8), attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip
    for x in (*control.controlnet_down_blocks, control.controlnet_mid_block):
        torch.nn.init.normal_(x.weight)
    return stable_diffusion(kind="StableDiffusionControlNet", controlnet=control)


def consistent() -> Any:
    torch.manual_seed(1)
    scheduler = diffusers.LCMScheduler(clip_sample=False, set_alpha_to_one=False)
    return stable_diffusion(scheduler, "LatentConsistencyModel", unet=unet(time_cond_proj_dim=16))


def xl() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.StableDiffusionXLPipeline,
        unet=unet(
            32, addition_embed_type="text_time", addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=16 + 6 * 8, use_linear_projection=True,
        ),
        vae=autoencoder(),
        text_encoder=transformers.CLIPTextModel(clip_config()),
        text_encoder_2=transformers.CLIPTextModelWithProjection(clip_config()),
        tokenizer=clip_tokenizer(),
        tokenizer_2=clip_tokenizer(),
        scheduler=diffusers.EulerDiscreteScheduler(),
    )  # fmt: skip


def flow() -> diffusers.FlowMatchEulerDiscreteScheduler:
    return diffusers.FlowMatchEulerDiscreteScheduler()


def sd3(scheduler: Any = None) -> Any:
    torch.manual_seed(0)
    clip = lambda: transformers.CLIPTextModelWithProjection(clip_config())
    return assembled(
        diffusers.StableDiffusion3Pipeline,
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=8, patch_size=1, in_channels=4, num_layers=2, attention_head_dim=8,
            num_attention_heads=4, joint_attention_dim=32, caption_projection_dim=32,
            pooled_projection_dim=32, out_channels=4,
        ),
        vae=autoencoder(shift_factor=0.06),
        text_encoder=clip(), text_encoder_2=clip(), text_encoder_3=t5(),
        tokenizer=clip_tokenizer(), tokenizer_2=clip_tokenizer(), tokenizer_3=word_tokenizer(),
        scheduler=scheduler or flow(),
    )  # fmt: skip


def flux() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.FluxPipeline,
        transformer=diffusers.FluxTransformer2DModel(
            patch_size=1, in_channels=16, num_layers=2, num_single_layers=2,
            attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32,
            pooled_projection_dim=16, axes_dims_rope=(4, 4, 8), guidance_embeds=True,
        ),
        vae=autoencoder(shift_factor=0.06, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=transformers.CLIPTextModel(clip_config()), text_encoder_2=t5(),
        tokenizer=clip_tokenizer(), tokenizer_2=word_tokenizer(), scheduler=flow(),
    )  # fmt: skip


def wan() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.WanPipeline,
        transformer=diffusers.WanTransformer3DModel(
            patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=16,
            out_channels=16, text_dim=32, freq_dim=16, ffn_dim=32, num_layers=2,
            rope_max_seq_len=32,
        ),
        vae=diffusers.AutoencoderKLWan(
            base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1,
            temperal_downsample=[False, True, True],
        ),
        text_encoder=t5(kind="UMT5"), tokenizer=word_tokenizer(),
        scheduler=diffusers.UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    )  # fmt: skip


def ltx() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.LTXPipeline,
        transformer=diffusers.LTXVideoTransformer3DModel(
            in_channels=8, out_channels=8, num_attention_heads=4, attention_head_dim=8,
            cross_attention_dim=32, num_layers=1, caption_channels=32,
        ),
        vae=diffusers.AutoencoderKLLTXVideo(
            latent_channels=8, block_out_channels=(8,) * 4, decoder_block_out_channels=(8,) * 4,
            layers_per_block=(1,) * 5, decoder_layers_per_block=(1,) * 5,
            spatio_temporal_scaling=(True, True, False, False),
            decoder_spatio_temporal_scaling=(True, True, False, False),
            decoder_inject_noise=(False,) * 5, patch_size=1, encoder_causal=True,
        ),
        text_encoder=t5(), tokenizer=word_tokenizer(), scheduler=flow(),
    )  # fmt: skip


def pixart(kind: str = "Alpha") -> Any:
    torch.manual_seed(0)
    return assembled(
        getattr(diffusers, f"PixArt{kind}Pipeline"),
        transformer=diffusers.PixArtTransformer2DModel(
            sample_size=8, num_layers=2, patch_size=2, attention_head_dim=8,
            num_attention_heads=3, caption_channels=32, in_channels=4, cross_attention_dim=24,
            out_channels=8, use_additional_conditions=False,
        ),
        vae=autoencoder(), text_encoder=t5(), tokenizer=word_tokenizer(),
        scheduler=diffusers.DPMSolverMultistepScheduler(),
    )  # fmt: skip


def kandinsky() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.KandinskyV22Pipeline,
        unet=diffusers.UNet2DConditionModel(
            in_channels=4, out_channels=8, addition_embed_type="image",
            down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
            up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
            mid_block_type="UNetMidBlock2DSimpleCrossAttn", block_out_channels=(16, 32),
            layers_per_block=1, encoder_hid_dim=16, encoder_hid_dim_type="image_proj",
            cross_attention_dim=16, attention_head_dim=4, norm_num_groups=8,
            resnet_time_scale_shift="scale_shift", class_embed_type=None,
        ),
        movq=diffusers.VQModel(
            block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, in_channels=3, out_channels=3,
            layers_per_block=1, latent_channels=4, norm_num_groups=32, norm_type="spatial",
            num_vq_embeddings=12, vq_embed_dim=4,
        ),
        scheduler=diffusers.DDIMScheduler(
            clip_sample=False, set_alpha_to_one=False, steps_offset=1
        ),
    )  # fmt: skip


def qwen_image() -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2_5_VLConfig(
        text_config=dict(
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            vocab_size=64,
            rope_parameters={"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"},
        ),
        vision_config=dict(
            depth=2, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=16
        ),
        vocab_size=64,
        vision_end_token_id=60,
        vision_start_token_id=61,
        vision_token_id=62,
    )
    return assembled(
        diffusers.QwenImagePipeline,
        transformer=diffusers.QwenImageTransformer2DModel(
            patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16,
            num_attention_heads=3, joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
        ),
        vae=diffusers.AutoencoderKLQwenImage(
            base_dim=24, z_dim=4, dim_mult=[1, 2, 4], num_res_blocks=1,
            temperal_downsample=[False, True], latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
        ),
        text_encoder=transformers.Qwen2_5_VLForConditionalGeneration(config),
        tokenizer=word_tokenizer(512), scheduler=flow(),
    )  # fmt: skip


def sana() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.SanaPipeline,
        transformer=diffusers.SanaTransformer2DModel(
            patch_size=1, in_channels=4, out_channels=4, num_layers=1, num_attention_heads=2,
            attention_head_dim=4, num_cross_attention_heads=2, cross_attention_head_dim=4,
            cross_attention_dim=8, caption_channels=8, sample_size=8,
        ),
        vae=diffusers.AutoencoderDC(
            latent_channels=4, attention_head_dim=2,
            encoder_block_types=("ResBlock", "EfficientViTBlock"),
            decoder_block_types=("ResBlock", "EfficientViTBlock"),
            encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
            encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)),
            encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1),
            downsample_block_type="conv", upsample_block_type="interpolate",
            decoder_norm_types="rms_norm", decoder_act_fns="silu", scaling_factor=0.41407,
        ),
        text_encoder=gemma(), tokenizer=word_tokenizer(), scheduler=flow(),
    )  # fmt: skip


def lumina() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.Lumina2Pipeline,
        transformer=diffusers.Lumina2Transformer2DModel(
            sample_size=4, patch_size=2, in_channels=4, hidden_size=8, num_layers=2,
            num_attention_heads=1, num_kv_heads=1, multiple_of=16, norm_eps=1e-5,
            axes_dim_rope=(4, 2, 2), axes_lens=(128, 128, 128), cap_feat_dim=8,
        ),
        vae=autoencoder(shift_factor=0.06), text_encoder=gemma(), tokenizer=word_tokenizer(),
        scheduler=flow(),
    )  # fmt: skip


def cogvideo() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.CogVideoXPipeline,
        transformer=diffusers.CogVideoXTransformer3DModel(
            num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=4,
            time_embed_dim=2, text_embed_dim=32, num_layers=1, sample_width=2, sample_height=2,
            sample_frames=9, patch_size=2, temporal_compression_ratio=4, max_text_seq_length=16,
        ),
        vae=diffusers.AutoencoderKLCogVideoX(
            down_block_types=("CogVideoXDownBlock3D",) * 4,
            up_block_types=("CogVideoXUpBlock3D",) * 4, block_out_channels=(8,) * 4,
            latent_channels=4, layers_per_block=1, norm_num_groups=2,
        ),
        text_encoder=t5(), tokenizer=word_tokenizer(),
        scheduler=diffusers.CogVideoXDDIMScheduler(),
    )  # fmt: skip


def aura() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.AuraFlowPipeline,
        transformer=diffusers.AuraFlowTransformer2DModel(
            sample_size=32, patch_size=2, in_channels=4, num_mmdit_layers=1,
            num_single_dit_layers=1, attention_head_dim=8, num_attention_heads=4,
            caption_projection_dim=32, joint_attention_dim=32, out_channels=4,
            pos_embed_max_size=256,
        ),
        vae=autoencoder(), text_encoder=t5(kind="UMT5"), tokenizer=word_tokenizer(),
        scheduler=flow(),
    )  # fmt: skip


def latte() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.LattePipeline,
        transformer=diffusers.LatteTransformer3DModel(
            sample_size=8, num_layers=1, patch_size=2, attention_head_dim=8,
            num_attention_heads=3, caption_channels=32, in_channels=4, cross_attention_dim=24,
            out_channels=8, attention_bias=True, activation_fn="gelu-approximate",
            num_embeds_ada_norm=1000, norm_type="ada_norm_single",
            norm_elementwise_affine=False, norm_eps=1e-6,
        ),
        vae=autoencoder(), text_encoder=t5(), tokenizer=word_tokenizer(), scheduler=ddim(),
    )  # fmt: skip


def animated() -> Any:
    torch.manual_seed(0)
    return assembled(
        diffusers.AnimateDiffPipeline,
        unet=unet(),
        motion_adapter=diffusers.MotionAdapter(
            block_out_channels=(16, 32), motion_layers_per_block=1, motion_norm_num_groups=2,
            motion_num_attention_heads=4,
        ),
        vae=autoencoder(), text_encoder=transformers.CLIPTextModel(clip_config()),
        tokenizer=clip_tokenizer(), scheduler=ddim(),
    )  # fmt: skip


def stable_audio() -> Any:
    from diffusers.pipelines.stable_audio import StableAudioProjectionModel

    torch.manual_seed(0)
    return assembled(
        diffusers.StableAudioPipeline,
        transformer=diffusers.StableAudioDiTModel(
            sample_size=4, in_channels=3, num_layers=2, attention_head_dim=4,
            num_key_value_attention_heads=2, out_channels=3, cross_attention_dim=4,
            time_proj_dim=8, global_states_input_dim=8, cross_attention_input_dim=4,
            num_attention_heads=2,
        ),
        vae=diffusers.AutoencoderOobleck(
            encoder_hidden_size=6, downsampling_ratios=[1, 2], decoder_channels=3,
            decoder_input_channels=3, audio_channels=2, channel_multiples=[2, 4],
            sampling_rate=4,
        ),
        text_encoder=t5(), tokenizer=word_tokenizer(),
        projection_model=StableAudioProjectionModel(
            text_encoder_dim=32, conditioning_dim=4, min_value=0, max_value=32
        ),
        scheduler=diffusers.EDMDPMSolverMultistepScheduler(
            solver_order=2, prediction_type="v_prediction", sigma_data=1.0,
            sigma_schedule="exponential",
        ),
    )  # fmt: skip


def unconditional() -> Any:
    torch.manual_seed(0)
    model = diffusers.UNet2DModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    model.conv_out.weight.data *= 0.1  # else steps amplify the last bits of a number
    return assembled(diffusers.DDIMPipeline, unet=model, scheduler=diffusers.DDIMScheduler())
