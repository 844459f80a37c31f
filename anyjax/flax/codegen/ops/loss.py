"""Losses, in optax's terms where it has them."""

from __future__ import annotations

import ast

from anyjax.flax.codegen.python.templates import Call, writes

NONE, MEAN, SUM = range(3)  # torch's numbers of reductions
LOSSES = {
    "mse_loss": "(self - target) ** 2",
    "l1_loss": "jnp.abs(self - target)",
    "huber_loss": "optax.huber_loss(self, target, delta=delta)",
    "smooth_l1_loss": "optax.huber_loss(self, target, delta=beta) / beta",
    "soft_margin_loss": "nnx.softplus(-target * self)",
}
DEFAULTS = {"delta": 1.0, "beta": 1.0}
IGNORED = -100  # of labels, by torch's default
LOGS = "jnp.maximum(jnp.log({}), -100)"  # torch's bound


def reduced(call: Call, losses: str, where: str = "", **values: object) -> ast.expr:
    """Returns the mean or the sum of losses, or each one; ``where`` says which count."""
    reduction = call.args.get("reduction", MEAN)
    if reduction == NONE:
        return call.write(f"jnp.where({where}, {losses}, 0)" if where else losses, **values)
    name = "mean" if reduction == MEAN else "sum"
    return call.write(f"({losses}).{name}({f'where={where}' if where else ''})", **values)


@writes(*LOSSES)
def of_differences(call: Call) -> ast.expr:
    if call.args.get("beta") == 0:
        return reduced(call, LOSSES["l1_loss"])
    options = {name: call.args.get(name, value) for name, value in DEFAULTS.items()}
    return reduced(call, LOSSES[call.name], **options)


@writes("kl_div")
def kl_div(call: Call) -> ast.expr:
    if call.args.get("log_target"):
        return reduced(call, "jnp.exp(target) * (target - self)")
    return reduced(call, "jax.scipy.special.xlogy(target, target) - target * self")


@writes("binary_cross_entropy")
def binary(call: Call) -> ast.expr:
    yes, no = LOGS.format("self"), LOGS.format("1 - self")
    return reduced(call, weighted(call, f"-(target * {yes} + (1 - target) * {no})"))


@writes("binary_cross_entropy_with_logits")
def binary_of_logits(call: Call) -> ast.expr:
    losses = "optax.sigmoid_binary_cross_entropy(self, target)"
    if call.args.get("pos_weight") is not None:
        yes, no = "nnx.log_sigmoid(self)", "nnx.log_sigmoid(-self)"
        losses = f"-(pos_weight * target * {yes} + (1 - target) * {no})"
    return reduced(call, weighted(call, losses))


def weighted(call: Call, losses: str) -> str:
    return f"({losses}) * weight" if call.args.get("weight") is not None else losses


@writes("cross_entropy_loss")
def cross_entropy(call: Call) -> ast.expr:
    """Writes the loss of classes, whose axis is the second, or of their probabilities."""
    logits, smoothing = call.fake("self"), call.args.get("label_smoothing") or 0
    if call.args.get("weight") is not None:
        raise NotImplementedError("cross entropy with weights of classes")
    axis = min(1, logits.ndim - 1)
    along = ", axis=axis" * (axis != logits.ndim - 1)
    values = {"axis": axis, "smoothing": smoothing, "classes": call.size(logits.shape[axis])}
    if not call.fake("target").is_floating_point():
        return of_classes(call, along, **values)
    if smoothing:
        raise NotImplementedError("cross entropy of probabilities that are smoothed")
    return reduced(call, f"optax.softmax_cross_entropy(self, target{along})", **values)


def of_classes(call: Call, along: str, **values: object) -> ast.expr:
    """Returns the cross entropy of labels."""
    losses = f"optax.softmax_cross_entropy_with_integer_labels(self, target{along})"
    if values["smoothing"]:
        labels = f"(1 - smoothing) * nnx.one_hot(target, classes{along}) + smoothing / classes"
        losses = f"optax.softmax_cross_entropy(self, {labels}{along})"
    elif call.args.get("reduction", MEAN) == MEAN:
        ignored = call.args.get("ignore_index", IGNORED)
        along = ", ignored=ignored" * (ignored != IGNORED) + along
        return call.write(f"mean_cross_entropy(self, target{along})", ignored=ignored, **values)
    return of_labels(call, losses, **values)


@writes("nll_loss_nd", "nll_loss", "nll_loss2d")
def of_log_probabilities(call: Call) -> ast.expr:
    if call.args.get("weight") is not None:
        raise NotImplementedError("nll_loss with weights of classes")
    axis = min(1, call.fake("self").ndim - 1)
    places = "jnp.expand_dims(target, axis)"
    losses = f"-jnp.take_along_axis(self, {places}, axis=axis).squeeze(axis)"
    return of_labels(call, losses, axis=axis)


def of_labels(call: Call, losses: str, **values: object) -> ast.expr:
    """Returns the losses of labels that are not the ignored one."""
    ignored = call.args.get("ignore_index", IGNORED)
    return reduced(call, losses, "target != ignored", ignored=ignored, **values)


@writes("cosine_similarity")
def cosine_similarity(call: Call) -> ast.expr:
    lengths = [f"optax.safe_norm({x}, eps, axis=dim)" for x in ("x1", "x2")]
    options = {"dim": call.args.get("dim", 1), "eps": call.args.get("eps", 1e-8)}
    return call.write(f"(x1 * x2).sum(axis=dim) / ({' * '.join(lengths)})", **options)
