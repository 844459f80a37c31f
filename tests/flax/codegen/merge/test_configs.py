"""Configurations of a file: dataclasses, each after those that it is made of."""

from types import SimpleNamespace

from anyjax.flax.codegen.merge.configs import Configs, Nested


class Inner(SimpleNamespace):
    pass


class Outer(SimpleNamespace):
    pass


def test_inner_ones_come_first_whenever_they_were_recorded():
    inner = Inner(sizes=[2, 3])
    outer, configs = Outer(inner=inner, width=4), Configs()
    configs.record(outer, {"width": 4})
    configs.record(outer, {"inner": Nested(inner, {"sizes": [2, 3]})})
    namespace: dict = {}
    for text in ["import dataclasses", *configs.texts()]:
        exec(text, namespace)
    assert namespace["Outer"]().inner.sizes == (2, 3) and namespace["Outer"]().width == 4
