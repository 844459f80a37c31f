"""Features before and after a model in ``ai.onnx.ml``: scaling, encoding, picking."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.onnx.core.schema import lowers
from anyjax.onnx.ops.ml_scores import floats, no_strings, rows_of
from anyjax.stablehlo.core.static_values import as_jax


@lowers("ai.onnx.ml::Scaler")
def scaler(X, offset, scale):
    shifted = floats(X) - jnp.asarray(offset, np.float32)
    return (shifted * jnp.asarray(scale, np.float32)).astype(np.float32)


@lowers("ai.onnx.ml::Normalizer")
def normalizer(X, norm):
    """A row whose norm is zero stays as it is; MAX divides by the largest value, signed."""
    X = floats(X)
    squared = (X * X).sum(-1, keepdims=True)
    size = {
        "MAX": lambda: X.max(-1, keepdims=True),
        "L1": lambda: jnp.abs(X).sum(-1, keepdims=True),
        "L2": lambda: jnp.sqrt(jnp.where(squared == 0, 1, squared)),
    }[norm]()
    return (X / jnp.where(size == 0, 1, size)).astype(np.float32)


@lowers("ai.onnx.ml::Binarizer")
def binarizer(X, threshold):
    return jnp.greater(X, np.asarray(threshold, X.dtype)).astype(X.dtype)


@lowers("ai.onnx.ml::Imputer")
def imputer(
    X, imputed_value_floats, imputed_value_int64s, replaced_value_float, replaced_value_int64
):
    real = jnp.issubdtype(X.dtype, jnp.floating)
    replaced = replaced_value_float if real else replaced_value_int64
    imputed = np.asarray(imputed_value_floats if real else imputed_value_int64s)
    imputed = imputed if len(imputed) == X.shape[-1] else imputed[:1]
    missing = jnp.isnan(X) if math.isnan(replaced) else jnp.equal(X, np.asarray(replaced, X.dtype))
    return jnp.where(missing, as_jax(imputed).astype(X.dtype), X)


@lowers("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(X, Y):
    features = jnp.take(X, Y.reshape(-1), axis=-1)
    return features[None] if X.ndim == 1 else features


@lowers("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(X, inputdimensions):
    """Features that a row has more than the attribute says are left out, missing ones are zero."""
    columns = []
    for x, size in zip(X, inputdimensions):
        x = rows_of(x).reshape(-1 if x.ndim > 1 else 1, math.prod(x.shape[1:] or x.shape))[:, :size]
        columns.append(jnp.pad(x, [(0, 0), (0, size - x.shape[1])]))
    return jnp.concatenate(columns, 1)


@lowers("ai.onnx.ml::OneHotEncoder")
def one_hot_encoder(X, cats_int64s, cats_strings, zeros):
    no_strings(cats_strings, "OneHotEncoder")
    if not zeros:
        raise Unsupported(
            "OneHotEncoder with zeros=0",
            why="it fails at categories that it does not know, which are known when it runs",
            do="set zeros=1: then unknown categories are rows of zeros",
        )
    categories = as_jax(np.asarray(cats_int64s, np.int64))
    return (X.astype(categories.dtype)[..., None] == categories).astype(np.float32)


@lowers("ai.onnx.ml::LabelEncoder")
def label_encoder(
    X, default_float, default_int64, default_string, default_tensor, keys_floats, keys_int64s,
    keys_strings, keys_tensor, values_floats, values_int64s, values_strings, values_tensor,
):  # fmt: skip
    """The first of equal keys counts, and NaN is a key."""
    no_strings(keys_strings or values_strings, "LabelEncoder")
    keys = attribute(keys_tensor, keys_floats, keys_int64s)
    values = attribute(values_tensor, values_floats, values_int64s)
    no_strings([x for x in (keys, values) if x.dtype == object], "LabelEncoder")
    default = default_float if values.dtype.kind == "f" else default_int64
    if default_tensor is not None and np.size(default_tensor):
        default = np.asarray(default_tensor).reshape(-1)[0]
    order = np.argsort(keys, kind="stable")
    keys, values = as_jax(keys[order]), as_jax(values[order])
    place = jnp.searchsorted(keys, X).clip(0, len(keys) - 1)
    near = keys[place]
    same = (near == X) | (jnp.isnan(near) & jnp.isnan(X))
    return jnp.where(same, values[place], as_jax(np.asarray(default, values.dtype)))


def attribute(tensor, floats_, integers):
    """Returns the attribute that is there, as an array."""
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    return np.asarray(floats_, np.float32) if floats_ else np.asarray(integers, np.int64)


@lowers("ai.onnx.ml::ZipMap")
def zip_map(X, classlabels_int64s, classlabels_strings):
    """A dict of columns, label -> ``X[:, i]``, in the place of a dict for each row."""
    return {label: X[..., i] for i, label in enumerate(classlabels_strings or classlabels_int64s)}


def refused(what, why):
    """Raises Unsupported for an operator of strings or maps."""
    raise Unsupported(
        what, why=why, do="compute it before the model, and leave this operator out of it"
    )


@lowers("ai.onnx.ml::CategoryMapper")
def category_mapper(X, cats_int64s, cats_strings, default_int64, default_string):
    refused("CategoryMapper", "it maps strings, and JAX has arrays of numbers only")


@lowers("ai.onnx.ml::CastMap")
def cast_map(X, cast_to, map_form, max_map):
    refused("CastMap", "its input is a map, and JAX computes with arrays")


@lowers("ai.onnx.ml::DictVectorizer")
def dict_vectorizer(X, int64_vocabulary, string_vocabulary):
    refused("DictVectorizer", "its input is a map, and JAX computes with arrays")
