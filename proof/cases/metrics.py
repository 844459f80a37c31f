"""Metrics: functionals of torchmetrics, of integers and of floats."""

import torch

from proof.cases import Arguments, Example, cases

CLASSES = 4


def labels(others: bool) -> Arguments:
    rows = 14 if others else 11
    return torch.randn(rows, CLASSES).softmax(1), torch.randint(CLASSES, (rows,))


CLASSIFICATION = {
    "accuracy": {},
    "f1_score": {"average": "macro"},
    "precision": {"average": "macro"},
    "recall": {"average": "weighted"},
    "specificity": {},
    "confusion_matrix": {},
    "jaccard_index": {},
    "matthews_corrcoef": {},
    "cohen_kappa": {},
    "auroc": {"thresholds": 5},
    "average_precision": {"thresholds": 5},
    "calibration_error": {"n_bins": 5},
    "hinge_loss": {},
}


@cases("torchmetrics", *CLASSIFICATION, "auroc exact")
def classification(name: str) -> Example:
    from torchmetrics.functional import classification

    kind = name.split()[0]
    function = getattr(classification, f"multiclass_{kind}")
    options = CLASSIFICATION[kind] if kind == name else {}
    return Example(
        lambda x, y: function(x, y, num_classes=CLASSES, validate_args=False, **options),
        labels,
        {"x": "rows, _", "y": "rows"},
    )


@cases("torchmetrics", "accuracy with its checks")
def validated(name: str) -> Example:
    from torchmetrics.functional import accuracy

    function = lambda x, y: accuracy(x, y, task="multiclass", num_classes=CLASSES)
    return Example(function, labels, {"x": "rows, _", "y": "rows"})


REGRESSION = (
    "mean_squared_error",
    "mean_absolute_error",
    "r2_score",
    "pearson_corrcoef",
    "spearman_corrcoef",
    "explained_variance",
    "cosine_similarity",
    "kendall_rank_corrcoef",
    "concordance_corrcoef",
)


@cases("torchmetrics", *REGRESSION)
def regression(name: str) -> Example:
    from torchmetrics import functional

    function = getattr(functional, name)

    def inputs(others: bool) -> Arguments:
        shape = (10 + others, 3) if name == "cosine_similarity" else (10 + others,)
        return torch.randn(shape), torch.randn(shape)

    sizes = "rows, ..." if name == "cosine_similarity" else "rows"
    return Example(lambda x, y: function(x, y), inputs, {"x": sizes, "y": sizes})


@cases("torchmetrics", "structural_similarity", "peak_signal_noise_ratio", "total_variation")
def image(name: str) -> Example:
    from torchmetrics.functional import image

    def inputs(others: bool) -> Arguments:
        x, y = torch.rand(2, 2 + others, 3, 24, 24)
        return (x,) if name == "total_variation" else (x, y)

    sizes = "batch, _, _, _"
    if name == "total_variation":
        return Example(lambda x: image.total_variation(x), inputs, {"x": sizes})
    options = {"data_range": 1.0}
    function = {
        "structural_similarity": image.structural_similarity_index_measure,
        "peak_signal_noise_ratio": image.peak_signal_noise_ratio,
    }[name]
    return Example(lambda x, y: function(x, y, **options), inputs, {"x": sizes, "y": sizes})


@cases("torchmetrics", "retrieval_normalized_dcg", "retrieval_average_precision")
def retrieval(name: str) -> Example:
    from torchmetrics.functional import retrieval

    function = getattr(retrieval, name)

    def inputs(others: bool) -> Arguments:
        return torch.rand(8 + others), torch.randint(2, (8 + others,))

    return Example(lambda x, y: function(x, y), inputs, {"x": "rows", "y": "rows"})


@cases("torchmetrics", "scale_invariant_signal_distortion_ratio", "perplexity", "kl_divergence")
def other(name: str) -> Example:
    from torchmetrics import functional
    from torchmetrics.functional import audio, text

    if name == "perplexity":
        return Example(
            lambda x, y: text.perplexity(x, y),
            lambda others: (torch.randn(2 + others, 5, 6), torch.randint(6, (2 + others, 5))),
            {"x": "batch, _, _", "y": "batch, _"},
        )
    if name == "kl_divergence":
        return Example(
            lambda x, y: functional.kl_divergence(x, y),
            lambda others: (
                torch.randn(3 + others, 5).softmax(1),
                torch.randn(3 + others, 5).softmax(1),
            ),
            {"x": "rows, _", "y": "rows, _"},
        )
    return Example(
        lambda x, y: audio.scale_invariant_signal_distortion_ratio(x, y),
        lambda others: (torch.randn(2 + others, 64), torch.randn(2 + others, 64)),
        {"x": "rows, _", "y": "rows, _"},
    )
