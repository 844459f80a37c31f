"""Differentiable computer vision: kornia's filters, colours, geometry, features and losses."""

import torch

from proof.cases import Example, cases

FILTERS = {
    "gaussian_blur2d": lambda k, x: k.filters.gaussian_blur2d(x, (3, 3), (1.5, 1.5)),
    "sobel": lambda k, x: k.filters.sobel(x),
    "canny": lambda k, x: k.filters.canny(x),
    "median_blur": lambda k, x: k.filters.median_blur(x, (3, 3)),
    "bilateral_blur": lambda k, x: k.filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
    "laplacian": lambda k, x: k.filters.laplacian(x, 3),
    "unsharp_mask": lambda k, x: k.filters.unsharp_mask(x, (3, 3), (1.5, 1.5)),
    "rgb_to_hsv": lambda k, x: k.color.rgb_to_hsv(x),
    "rgb_to_lab": lambda k, x: k.color.rgb_to_lab(x),
    "rgb_to_grayscale": lambda k, x: k.color.rgb_to_grayscale(x),
    "equalize_clahe": lambda k, x: k.enhance.equalize_clahe(x, grid_size=(2, 2)),
    "equalize": lambda k, x: k.enhance.equalize(x),
    "histogram": lambda k, x: k.enhance.histogram(
        x.flatten(1), torch.linspace(0, 1, 8), torch.tensor(0.1)
    ),
    "dilation": lambda k, x: k.morphology.dilation(x, torch.ones(3, 3)),
    "resize": lambda k, x: k.geometry.resize(x, (12, 20)),
    "pyrdown": lambda k, x: k.geometry.pyrdown(x),
    "hflip": lambda k, x: k.geometry.hflip(x),
    "harris_response": lambda k, x: k.feature.harris_response(x),
    "spatial_soft_argmax2d": lambda k, x: k.geometry.spatial_soft_argmax2d(x),
    "total_variation": lambda k, x: k.losses.total_variation(x),
    "extract_patches": lambda k, x: k.contrib.extract_tensor_patches(x, 4, stride=4),
}


@cases("kornia", *FILTERS)
def image(name: str) -> Example:
    import kornia

    function = FILTERS[name]
    return Example(
        lambda x: function(kornia, x),
        lambda others: (torch.rand(2 + others, 3, 16, 16),),
        {"x": "batch, _, _, _"},
    )


POINTS = {
    "warp_perspective": lambda k, x, m: k.geometry.warp_perspective(x, m, (12, 12)),
    "homography_warp": lambda k, x, m: k.geometry.homography_warp(x, m, (12, 12)),
    "transform_points": lambda k, x, m: k.geometry.transform_points(m, x[:, 0, :, :2]),
    "angle_axis": lambda k, x, m: k.geometry.rotation_matrix_to_axis_angle(
        k.geometry.axis_angle_to_rotation_matrix(x[:, :, 0, 0])
    ),
    "quaternion": lambda k, x, m: k.geometry.rotation_matrix_to_quaternion(
        k.geometry.axis_angle_to_rotation_matrix(x[:, :, 0, 0])
    ),
    "rotate": lambda k, x, m: k.geometry.rotate(x, x[:, 0, 0, 0] * 90),
    "find_homography_dlt": lambda k, x, m: k.geometry.find_homography_dlt(
        x[:, 0, :8, :2] * 10, x[:, 1, :8, :2] * 10
    ),
}


@cases("kornia", *POINTS, wide=True)
def geometry(name: str) -> Example:
    import kornia

    function = POINTS[name]

    def inputs(others: bool) -> tuple[torch.Tensor, torch.Tensor]:
        rows = 3 if others else 2
        matrix = torch.eye(3).expand(rows, 3, 3) + 0.05 * torch.randn(rows, 3, 3)
        return torch.rand(rows, 3, 16, 16), matrix

    sizes = {"x": "batch, _, _, _", "m": "batch, _, _"}
    return Example(lambda x, m: function(kornia, x, m), inputs, sizes)


@cases("kornia", "HardNet", "SIFTDescriptor", "ssim_loss", "focal_loss", "AugmentationSequential")
def module(name: str) -> Example:
    import kornia

    if name == "AugmentationSequential":
        module = kornia.augmentation.AugmentationSequential(
            kornia.augmentation.RandomHorizontalFlip(p=0.5),
            kornia.augmentation.RandomAffine(10.0, p=1.0),
            kornia.augmentation.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0),
        )
        return Example(module, lambda others: (torch.rand(2, 3, 16, 16),), random=True)
    if name == "ssim_loss":
        return Example(
            lambda x, y: kornia.losses.ssim_loss(x, y, 5),
            lambda others: (torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16)),
        )
    if name == "focal_loss":
        return Example(
            lambda x, y: kornia.losses.focal_loss(x, y, 0.5, 2.0, "mean"),
            lambda others: (torch.randn(2, 4, 6, 6), torch.randint(4, (2, 6, 6))),
        )
    module = (
        kornia.feature.HardNet(False) if name == "HardNet" else kornia.feature.SIFTDescriptor(32)
    )
    return Example(module, lambda others: (torch.rand(2, 1, 32, 32),))
