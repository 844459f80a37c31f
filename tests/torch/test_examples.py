"""The examples with torch run as they stand, and as torch itself runs them."""

import itertools
import re
import runpy
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

import anyjax

pytestmark = pytest.mark.sample(every=4)

STEPS = 20
SHOWN = {
    "torch_digits": lambda loss, accuracy: loss < 0.1 and accuracy > 90,
    "torch_gan": lambda before, after: after < before / 10,
    "torch_gpt": lambda first, last: last < first - 1.5,
}
# relative; bfloat16 products are rounded at 2**-9, and the errors of steps add up
OFF = {"torch_digits": 2e-4, "torch_gan": 2e-4, "torch_gpt": 2e-2}


def shown(name, capsys):
    runpy.run_path(f"examples/{name}.py", run_name="__main__")
    return map(float, re.findall(r"\d+(?:\.\d+)?", capsys.readouterr().out))


@pytest.mark.parametrize("name", SHOWN)
def test_it_shows_what_it_says(name, capsys):
    if name == "torch_digits":
        pytest.importorskip("sklearn")
    assert SHOWN[name](*shown(name, capsys))
    assert len(Path(f"examples/{name}.py").read_text().splitlines()) < 80


@pytest.mark.parametrize("name", OFF)
def test_steps_are_those_of_torch(name):
    if name == "torch_digits":
        pytest.importorskip("sklearn")
    example = runpy.run_path(f"examples/{name}.py")
    given = [*itertools.islice(example["batches"](), STEPS)]
    model = anyjax.from_torch(example["make_step"]()[0])
    run, state = jax.jit(partial(model.apply, model.params, mutable=True)), model.state
    ours = []
    for batch in given:
        loss, state = run(*batch, state=state)
        ours.append(np.ravel(loss))
    step, _ = example["make_step"]()
    wide = lambda x: x.long() if x.dtype == torch.int32 else x
    theirs = []
    for batch in given:
        loss = step(*(wide(torch.from_numpy(np.asarray(x))) for x in batch))
        loss = torch.stack(loss) if isinstance(loss, tuple) else loss
        theirs.append(loss.detach().numpy().ravel())
    np.testing.assert_allclose(ours, theirs, rtol=OFF[name])
    assert not np.allclose(theirs[0], theirs[-1], rtol=OFF[name])
