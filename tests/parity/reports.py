"""Reports for the tests of their page: of real models, and of comparisons that are written down."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

import anyjax
from anyjax.compare.differences import Error
from anyjax.compare.judge import Comparison, Passes
from anyjax.compare.side import Passed
from anyjax.parity import Report

X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
HOSTILE = "</script><img src=x onerror=alert(1)>"


def healthy():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8))
    return anyjax.from_torch(module)


def faulty():
    model = healthy()
    model.source.module[1].eps = 1e-2
    return anyjax.verify(model, X, gradients=True)


def comparison(path, added=1e-8, fault="", kind="Linear", **options):
    error = lambda x: Error(x, x, 1.0, 1.0, x)
    figures = {"total": error(2 * added), "added": error(added), "rounding": 1e-8, "wide": 0.0}
    x = Comparison(path, kind, (2, 3), "float32", **figures, scale=1.0, fault=fault)
    return dataclasses.replace(x, **options)


def report(modules, **options):
    return Report("net", "torch", "float32", [*modules], **options)


def wide_report(count, **options):
    """A report of many modules, with a fault in the middle."""
    paths = [f"blocks.{i // 4}.layer_with_a_long_name.{i % 4}" for i in range(count - 1)]
    modules = [comparison(path, added=10.0 ** -(3 + i % 9)) for i, path in enumerate(paths)]
    modules[count // 2] = dataclasses.replace(modules[count // 2], fault="is 1 off", wide=0.1)
    return report([*modules, comparison("")], **options)


def passes(values, others, path=""):
    one, two = Passed({path: [values]}), Passed({path: [others]})
    return Passes(one, two, two, None, None)
