"""The self-check of a written file: ``python model.py WEIGHTS EXAMPLE.npz``."""

CHECK = '''

def check(weights, example):
    """How far outputs are from those in an .npz file, relative to the largest value of each.

    The file has the inputs by their names, and the outputs as output_0, output_1, ...
    """
    given = {name: jnp.asarray(array) for name, array in jnp.load(example).items()}
    count = sum(name.startswith("output_") for name in given)
    wanted = [given.pop(f"output_{i}") for i in range(count)]
    REPLACED
    return max(
        float(abs(mine - want).max() / max(abs(want).max(), 1e-6))
        for mine, want in zip(leaves(found), wanted, strict=True)
    )


def leaves(value):
    """The arrays of floats in an output, in its order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value] if jnp.issubdtype(value.dtype, jnp.floating) else []


if __name__ == "__main__":
    weights, example = sys.argv[1:]
    off = check(weights, example)
    print(f"outputs differ from those in {example} by {off:.1e} of their largest value")
    sys.exit(off > 1e-3)
'''
NNX = """\
model = load_params({name}(rngs=nnx.Rngs(0)), weights)
    model.eval()
    found = model(**given)"""
LINEN = "found = {name}().apply(load_params(weights), **given)"


def check_of(name: str, call: str) -> str:
    """Returns the text for a file whose outermost class has this name."""
    return CHECK.replace("REPLACED", call.format(name=name))
