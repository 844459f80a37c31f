"""Networks of images: torchvision's classifiers, segmenters and detectors, timm's families, smp."""

import torch

from proof.cases import Arguments, Example, cases

OPEN = {"x": "batch, _, _, _"}
# The side of the smallest image that a network takes, where that is not 32.
SIDES = {"inception_v3": 75, "alexnet": 64, "vgg11": 32, "googlenet": 32, "squeezenet1_1": 32}
CLASSIFIERS = (
    "alexnet",
    "efficientnet_b0",
    "googlenet",
    "maxvit_t",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "resnext50_32x4d",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "swin_t",
    "swin_v2_t",
    "vgg11",
    "vit_b_32",
)


def images(side: int, channels: int = 3):
    """Returns what draws two images, or three."""
    return lambda others: (torch.rand(3 if others else 2, channels, side, side),)


@cases("torchvision", *CLASSIFIERS)
def classifier(name: str) -> Example:
    from torchvision import models

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    side = SIDES.get(name, 32)
    if name == "maxvit_t":
        side, options = 64, {"input_size": (64, 64), "partition_size": 2}
        module = models.maxvit.MaxVit(
            stem_channels=16, block_channels=[16, 32], block_layers=[1, 1], head_dim=8,
            stochastic_depth_prob=0.2, num_classes=5, **options
        )  # fmt: skip
    elif name == "vit_b_32":
        module = models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5)
    else:
        module = models.get_model(name, weights=None, num_classes=5, **options)
    return Example(module, images(side), OPEN)


@cases("torchvision", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50")
def segmenter(name: str) -> Example:
    from torchvision import models

    module = models.get_model(name, weights=None, weights_backbone=None, num_classes=3)
    return Example(module, images(64), OPEN)


@cases("torchvision", "r3d_18", "raft_small")
def motion(name: str) -> Example:
    from torchvision import models

    if name == "r3d_18":
        module = models.get_model(name, weights=None, num_classes=5)
        return Example(module, lambda others: (torch.rand(1 + others, 3, 4, 32, 32),), OPEN)
    module = models.get_model(name, weights=None).eval()
    return Example(
        lambda x, y: module(x, y, num_flow_updates=2)[-1],
        lambda others: (torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)),
    )


DETECTORS = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": {
        "rpn_pre_nms_top_n_test": 40,
        "rpn_post_nms_top_n_test": 20,
        "box_score_thresh": 0.0,
    },
    "fcos_resnet50_fpn": {"score_thresh": 0.0, "topk_candidates": 20},
    "retinanet_resnet50_fpn": {"score_thresh": 0.0, "topk_candidates": 20},
    "ssdlite320_mobilenet_v3_large": {"score_thresh": 0.0, "topk_candidates": 20},
    "maskrcnn_resnet50_fpn": {"rpn_pre_nms_top_n_test": 40, "rpn_post_nms_top_n_test": 20},
}


@cases("torchvision", *DETECTORS)
def detector(name: str) -> Example:
    from torchvision import models

    sizes = {} if "ssd" in name else {"min_size": 64, "max_size": 96}
    module = models.get_model(
        name, weights=None, weights_backbone=None, num_classes=3, **sizes, **DETECTORS[name]
    )

    for parameter in module.parameters():  # else all scores are the same, and any box the best
        parameter.data.add_(0.5 * torch.randn_like(parameter) * (parameter.dim() < 2))
    for parameter in module.parameters() if "ssd" in name else ():  # its boxes see the same else
        parameter.data.mul_(2.5 if parameter.dim() > 1 else 1)

    class Detector(torch.nn.Module):
        """Takes a batch where the detectors take a list."""

        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor) -> list[dict[str, torch.Tensor]]:
            return self.module([*x])

    return Example(Detector(), lambda others: (torch.rand(1, 3, 64, 80),))


@cases("torchvision", "nms", "roi_align", "deform_conv2d", "generalized_box_iou")
def operator(name: str) -> Example:
    from torchvision import ops

    def boxes(rows: int) -> torch.Tensor:
        corner = torch.rand(rows, 2) * 8
        return torch.cat([corner, corner + torch.rand(rows, 2) * 8 + 0.1], 1)

    if name == "nms":
        return Example(
            lambda x, scores: ops.nms(x, scores, 0.5),
            lambda others: (boxes(8), torch.rand(8)),
        )
    if name == "roi_align":
        return Example(
            lambda x, boxes: ops.roi_align(x, [boxes], 3, sampling_ratio=2),
            lambda others: (torch.rand(1, 2, 16, 16), boxes(4)),
        )
    if name == "deform_conv2d":
        return Example(
            lambda x, offset, weight: ops.deform_conv2d(x, offset, weight),
            lambda others: (
                torch.rand(1, 2, 8, 8),
                torch.randn(1, 18, 6, 6),
                torch.randn(3, 2, 3, 3),
            ),
        )
    return Example(ops.generalized_box_iou, lambda others: (boxes(4), boxes(5)))


FAMILIES = (
    "coat_tiny",
    "convnextv2_atto",
    "crossvit_tiny_240",
    "davit_tiny",
    "deit_tiny_patch16_224",
    "edgenext_xx_small",
    "efficientformerv2_s0",
    "efficientvit_b0",
    "eva02_tiny_patch14_224",
    "fastvit_t8",
    "gcvit_xxtiny",
    "ghostnet_100",
    "hardcorenas_a",
    "hgnetv2_b0",
    "levit_128s",
    "mobilenetv4_conv_small",
    "mobilevit_xxs",
    "mvitv2_tiny",
    "pit_ti_224",
    "poolformer_s12",
    "pvt_v2_b0",
    "regnetx_002",
    "repvgg_a0",
    "resmlp_12_224",
    "rexnet_100",
    "swin_tiny_patch4_window7_224",
    "tiny_vit_5m_224",
    "visformer_tiny",
    "vit_tiny_patch16_224",
    "xcit_nano_12_p16_224",
)


@cases("timm", *FAMILIES)
def family(name: str) -> Example:
    import timm

    side = timm.get_pretrained_cfg(name).input_size[-1]
    for smaller in (64, 96, side):
        try:
            options = {"img_size": smaller} if smaller != side else {}
            module = timm.create_model(name, num_classes=5, **options).eval()
        except (TypeError, AssertionError, RuntimeError, ValueError):
            try:
                module = timm.create_model(name, num_classes=5).eval()
                smaller = smaller if smaller != side else side
                module(torch.rand(1, 3, smaller, smaller))
            except (AssertionError, RuntimeError, ValueError):
                continue
        try:
            module(torch.rand(1, 3, smaller, smaller))
            break
        except (AssertionError, RuntimeError, ValueError):
            continue
    return Example(module, images(smaller), OPEN)


SEGMENTERS = ("Unet", "UnetPlusPlus", "FPN", "PSPNet", "DeepLabV3Plus", "Linknet", "MAnet", "PAN")


@cases("segmentation-models-pytorch", *SEGMENTERS, "Segformer", "UPerNet")
def smp(name: str) -> Example:
    import segmentation_models_pytorch as smp

    module = getattr(smp, name)("resnet18", encoder_weights=None, classes=2)
    return Example(module, images(128 if name == "PAN" else 64), OPEN)


@cases("segmentation-models-pytorch", "DiceLoss", "FocalLoss", "LovaszLoss", "TverskyLoss")
def loss(name: str) -> Example:
    from segmentation_models_pytorch import losses

    def inputs(others: bool) -> Arguments:
        rows = 3 if others else 2
        return torch.randn(rows, 4, 6, 6), torch.randint(4, (rows, 6, 6))

    open_sizes = {"y_pred": "batch, _, _, _", "y_true": "batch, _, _"}
    return Example(getattr(losses, name)("multiclass"), inputs, open_sizes)
