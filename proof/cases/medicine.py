"""Medical images: monai's networks, losses, metrics and inferers."""

import torch

from proof.cases import Arguments, Example, cases

FLAT = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
NETWORKS = {
    "UNet": FLAT | {"channels": (4, 8, 16), "strides": (2, 2), "num_res_units": 1},
    "BasicUNet": FLAT | {"features": (4, 4, 8, 8, 8, 4)},
    "AttentionUnet": FLAT | {"channels": (4, 8, 16), "strides": (2, 2)},
    "DynUNet": FLAT | {"kernel_size": [3, 3, 3], "strides": [1, 2, 2],
                       "upsample_kernel_size": [2, 2], "filters": [4, 8, 8]},
    "SegResNet": FLAT | {"init_filters": 8},
    "SwinUNETR": FLAT | {"feature_size": 12, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 2)},
    "UNETR": FLAT | {"img_size": 32, "feature_size": 4, "hidden_size": 24, "mlp_dim": 32,
                     "num_heads": 2},
    "VNet": {"spatial_dims": 3},
    "DenseNet121": {"spatial_dims": 2, "in_channels": 1, "out_channels": 2},
    "SEResNet50": {"spatial_dims": 2, "in_channels": 1, "num_classes": 2},
    "EfficientNetBN": {"model_name": "efficientnet-b0", "spatial_dims": 2, "in_channels": 1,
                       "pretrained": False, "num_classes": 2},
    "ViT": {"spatial_dims": 2, "in_channels": 1, "img_size": 32, "patch_size": 8,
            "hidden_size": 24, "mlp_dim": 32, "num_heads": 2, "num_layers": 2,
            "classification": True},
    "AutoEncoder": FLAT | {"channels": (4, 8), "strides": (2, 2)},
    "VarAutoEncoder": {"spatial_dims": 2, "in_shape": (1, 32, 32), "out_channels": 1,
                       "latent_size": 4, "channels": (4, 8), "strides": (2, 2)},
    "DiffusionModelUNet": FLAT | {"channels": (8, 8), "attention_levels": (False, True),
                                  "num_res_blocks": 1, "norm_num_groups": 4,
                                  "num_head_channels": 4},
    "HighResNet": FLAT,
}  # fmt: skip


@cases("monai", *NETWORKS)
def network(name: str) -> Example:
    from monai.networks import nets

    options = NETWORKS[name]
    module = getattr(nets, name)(**options)
    deep = options["spatial_dims"] == 3
    shape = (1, 16, 16, 16) if deep else (1, 64, 64) if name == "SwinUNETR" else (1, 32, 32)
    draw = lambda others: (torch.rand(2 + others, *shape),)
    if name == "DiffusionModelUNet":
        inputs = lambda others: (*draw(others), torch.randint(100, (2 + others,)))
        return Example(module, inputs, {"x": "batch, _, _, _", "timesteps": "batch"})
    sizes = {"x": "batch, _, _, _, _" if deep else "batch, _, _, _"}
    if name in ("UNETR", "SwinUNETR"):
        sizes = {"x_in": "batch, _, _, _"}
    if name == "DenseNet121" or name == "SEResNet50" or name == "EfficientNetBN":
        sizes = {{"EfficientNetBN": "inputs"}.get(name, "x"): "batch, _, _, _"}
    return Example(module, draw, sizes, random=name == "VarAutoEncoder")


def masks(others: bool) -> Arguments:
    rows = 3 if others else 2
    return torch.randn(rows, 2, 12, 12), torch.randint(2, (rows, 2, 12, 12)).float()


LOSSES = {
    "DiceLoss": {"sigmoid": True},
    "DiceCELoss": {"sigmoid": True},
    "GeneralizedDiceLoss": {"sigmoid": True},
    "FocalLoss": {},
    "TverskyLoss": {"sigmoid": True},
    "LocalNormalizedCrossCorrelationLoss": {"spatial_dims": 2},
    "SSIMLoss": {"spatial_dims": 2, "win_size": 5},
    "HausdorffDTLoss": {"sigmoid": True},
}


@cases("monai", *LOSSES)
def loss(name: str) -> Example:
    from monai import losses

    module = getattr(losses, name)(**LOSSES[name])
    return Example(lambda x, y: module(x, y), masks, {"x": "batch, _, _, _", "y": "batch, _, _, _"})


@cases("monai", "DiceMetric", "compute_iou", "HausdorffDistanceMetric", "ConfusionMatrixMetric",
       "sliding_window_inference", "Warp", "GaussianFilter")  # fmt: skip
def other(name: str) -> Example:
    from monai import metrics
    from monai.inferers import sliding_window_inference
    from monai.networks import blocks, layers

    sizes = {"x": "batch, _, _, _", "y": "batch, _, _, _"}
    hard = lambda x: (x > 0).float()
    if name == "compute_iou":
        return Example(lambda x, y: metrics.compute_iou(hard(x), y), masks, sizes)
    if name == "sliding_window_inference":
        net = torch.nn.Conv2d(2, 3, 3, padding=1)
        function = lambda x: sliding_window_inference(x, (8, 8), 2, net, overlap=0.5)
        return Example(function, lambda others: (masks(False)[0],))
    if name == "Warp":
        inputs = lambda others: (torch.rand(2, 1, 8, 8), torch.randn(2, 2, 8, 8))
        return Example(blocks.Warp(), inputs)
    if name == "GaussianFilter":
        module = layers.GaussianFilter(2, 1.5)
        return Example(module, lambda others: (torch.rand(2 + others, 1, 8, 8),))
    options = {"metric_name": "sensitivity"} if name.startswith("Confusion") else {}
    metric = getattr(metrics, name)(include_background=True, **options)
    return Example(lambda x, y: metric(hard(x), y), masks, sizes)
