"""Every operation that a module can hold has a row, but for those that need a host."""

from anyjax.stablehlo.core.schema import _classes, read, table

ENGINE = {"stablehlo.composite", "stablehlo.constant", "stablehlo.custom_call", "stablehlo.return"}
HOSTS = ("infeed", "outfeed", "send", "recv", "async_start", "async_done")
HOST = {f"stablehlo.{x}" for x in HOSTS}
QUANTIZED = {"stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"}


def test_rows():
    names = {x for x in _classes() if not x.startswith("sdy.")}
    missing = names - {*table} - ENGINE - HOST - QUANTIZED
    assert missing == {"chlo._asin_acos_kernel"}  # a step of the expansion of asin, never written


def test_regions_come_last():
    assert read("stablehlo.scatter").kept[-1] == "update_computation"
    assert read("stablehlo.while").kept == ["result", "operand", "cond", "body"]
