"""Fourier transforms, which JAX has under torch's names."""

from tojax.flax.codegen.python.templates import Call, writes

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]


@writes(*(f"fft_{name}" for name in ONE + MANY))
def transform(call: Call):
    name = str(call.node.target).split(".")[1].removeprefix("fft_")
    size, dim = ("n", "dim") if name in ONE else ("s", "dim")
    arguments = ["self"] + [f"{size}={size}"] * (call.args.get(size) is not None)
    if call.args.get(dim) not in (None, -1, [-2, -1] if name.endswith("2") else None):
        arguments.append("axis=dim" if name in ONE else "axes=dim")
    arguments += ["norm=norm"] * (call.args.get("norm") not in (None, "backward"))
    return call.write(f"jnp.fft.{name}({', '.join(arguments)})")


@writes("fft_fftshift", "fft_ifftshift")
def shifted(call: Call):
    name = str(call.node.target).split(".")[1].removeprefix("fft_")
    return call.write(f"jnp.fft.{name}(self{', axes=dim' * (call.args.get('dim') is not None)})")
