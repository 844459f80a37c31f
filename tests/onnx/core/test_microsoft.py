"""The schemas of onnxruntime's own operators, against those of the package onnxruntime."""

import onnx
import pytest
from onnx import helper

from anyjax.onnx.core import microsoft
from anyjax.onnx.core.schema import op_of, plain, table
from anyjax.table import REQUIRED, Param

state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
DOMAINS = ("", "com.microsoft")
SCHEMAS = {x.name: x for x in state.get_all_operator_schema() if x.domain in DOMAINS}


def default_of(attribute):
    if attribute.required or not attribute._default_value:
        return REQUIRED if attribute.required else None
    value = onnx.AttributeProto.FromString(attribute._default_value)
    value = plain(helper.get_attribute_value(value))
    return pytest.approx(value) if isinstance(value, float) else value


def params_of(schema):
    option = lambda x: str(x.option).rpartition(".")[-1].partition(":")[0]
    yield from (
        Param(
            x.name,
            "arrays" if option(x) == "Variadic" else "array",
            None if option(x) == "Optional" else REQUIRED,
        )
        for x in schema.inputs
    )
    for name, attribute in sorted(schema.attributes.items()):
        yield Param(name, "value", default_of(attribute))


@pytest.mark.parametrize("name", microsoft.OPERATORS)
def test_schemas_are_those_of_onnxruntime(name):
    want = [(x.name, x.kind, x.default) for x in params_of(SCHEMAS[name])]
    assert [(x.name, x.kind, x.default) for x in microsoft.params(name)] == want


def test_every_schema_has_a_lowering():
    rows = {op.name for op in table if op.domain == "com.microsoft"}
    assert rows == microsoft.OPERATORS.keys()


def test_what_the_optimizer_writes_into_the_domain_of_onnx():
    assert op_of("", "LayerNormalization", 11) == op_of("", "LayerNormalization", 17)
    assert op_of("", "SimplifiedLayerNormalization", 11).domain == "com.microsoft"
