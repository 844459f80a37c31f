"""Speech, text and time: whisper, silero-vad, open_clip, chronos, lightning's modules."""

import torch

from proof.cases import Arguments, Example, cases


@cases("openai-whisper", "encoder", "decoder", "whole", "log_mel_spectrogram")
def whisper(name: str) -> Example:
    import whisper
    from whisper.model import ModelDimensions, Whisper

    if name == "log_mel_spectrogram":
        return Example(whisper.log_mel_spectrogram, lambda others: (torch.randn(4000),))
    module = Whisper(ModelDimensions(80, 24, 16, 2, 2, 50, 12, 16, 2, 2)).eval()
    torch.nn.init.normal_(module.decoder.positional_embedding)  # it is whatever was in memory
    sound, text = torch.randn(2, 80, 48), torch.randint(50, (2, 7))
    if name == "encoder":
        return Example(module.encoder, lambda others: (torch.randn_like(sound),))
    if name == "decoder":
        return Example(
            module.decoder,
            lambda others: (torch.randint(50, (2, 9 if others else 7)), torch.randn(2, 24, 16)),
            {"x": "_, length"},
            constraints=("length <= 12",),
        )
    return Example(module, lambda others: (torch.randn_like(sound), torch.randint_like(text, 50)))


@cases("silero-vad", "model")
def voice(name: str) -> Example:
    import silero_vad

    module = silero_vad.load_silero_vad()

    def probability(x: torch.Tensor) -> torch.Tensor:
        module.reset_states()
        return module(x, 16000)

    return Example(probability, lambda others: (torch.randn(1, 512),))


@cases("open_clip_torch", "ViT", "RN50", "CoCa", "ClipLoss")
def clip(name: str) -> Example:
    import open_clip

    text = {"context_length": 12, "vocab_size": 60, "width": 16, "heads": 2, "layers": 2}
    vision = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
    if name == "ClipLoss":
        from open_clip.loss import ClipLoss

        module = ClipLoss()
        normal = torch.nn.functional.normalize
        return Example(
            lambda x, y, scale: module(x, y, scale),
            lambda others: (
                normal(torch.randn(4, 8)),
                normal(torch.randn(4, 8)),
                torch.tensor(5.0),
            ),
        )
    if name == "RN50":
        vision |= {"layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    if name == "CoCa":
        vision |= {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True}
        text |= {"embed_cls": True, "output_tokens": True}
        from open_clip.coca_model import CoCa, MultimodalCfg

        module = CoCa(
            16, MultimodalCfg(context_length=12, vocab_size=60, width=16, heads=2, layers=2),
            open_clip.model.CLIPTextCfg(**text), open_clip.model.CLIPVisionCfg(**vision),
        )  # fmt: skip
        torch.nn.init.normal_(module.text_decoder.text_projection)  # it is whatever was in memory
    else:
        module = open_clip.model.CLIP(16, vision, text)

    def inputs(others: bool) -> Arguments:
        rows = 3 if others else 2
        return torch.rand(rows, 3, 32, 32), torch.randint(1, 60, (rows, 12))

    return Example(module, inputs, {"image": "batch, _, _, _", "text": "batch, _"})


@cases("chronos-forecasting", "Bolt", "Chronos tokens")
def chronos(name: str) -> Example:
    from transformers import T5Config

    small = {
        "d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "num_layers": 2, "vocab_size": 64,
        "num_decoder_layers": 2, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip
    if name == "Bolt":
        from chronos.chronos_bolt import ChronosBoltModelForForecasting

        config = T5Config(
            **small, feed_forward_proj="relu", reg_token_id=1,
            chronos_config={
                "context_length": 32, "prediction_length": 8, "input_patch_size": 8,
                "input_patch_stride": 8, "quantiles": [0.1, 0.5, 0.9], "use_reg_token": True,
            },
        )  # fmt: skip
        module = ChronosBoltModelForForecasting(config).eval()
        return Example(
            lambda x: module(x).quantile_preds, lambda others: (torch.randn(2, 32).cumsum(1),)
        )
    from chronos.chronos import ChronosConfig

    config = ChronosConfig(
        tokenizer_class="MeanScaleUniformBins",
        tokenizer_kwargs={"low_limit": -15.0, "high_limit": 15.0}, context_length=16,
        prediction_length=4, n_tokens=64, n_special_tokens=2, pad_token_id=0, eos_token_id=1,
        use_eos_token=True, model_type="seq2seq", num_samples=3, temperature=1.0, top_k=10,
        top_p=1.0,
    )  # fmt: skip
    tokenizer = config.create_tokenizer()
    return Example(
        lambda x: tokenizer.context_input_transform(x), lambda others: (torch.randn(2, 12),)
    )


@cases("lightning", "training_step", "shared embedding", "metrics inside")
def lightning(name: str) -> Example:
    import lightning
    from torch.nn import functional

    class Module(lightning.LightningModule):
        """A classifier as lightning's guide writes it."""

        def __init__(self):
            super().__init__()
            self.save_hyperparameters()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(),
                torch.nn.Dropout(0.0), torch.nn.Linear(8, 3),
            )  # fmt: skip
            if name == "metrics inside":
                import torchmetrics

                self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)
            if name == "shared embedding":
                self.table = torch.nn.Embedding(3, 8)
                self.net[-1].weight = self.table.weight

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.training_step((x, y), 0)

        def training_step(self, batch, index):
            x, y = batch
            out = self.net(x)
            loss = functional.cross_entropy(out, y)
            if name == "metrics inside":
                return loss, self.accuracy(out, y)
            return loss

    def inputs(others: bool) -> Arguments:
        rows = 7 if others else 5
        return torch.randn(rows, 6), torch.randint(3, (rows,))

    train, sizes = name != "metrics inside", {"x": "batch, _", "y": "batch"}
    return Example(Module(), inputs, sizes, ("batch >= 2",), train=train)
