"""An adapter of PEFT is trained in JAX and goes back: python examples/peft_both_ways.py x.svg"""

import sys
import tempfile

import optax
import peft
import torch
from matplotlib import pyplot as plt
from transformers import AutoModelForCausalLM, AutoTokenizer

import anyjax

LLAMA, folder = "examples/tiny-llama", tempfile.mkdtemp()
texts = [f'def {x}(self):\n    """Returns {x}."""\n' for x in ("size", "name", "path", "text")]
batch = AutoTokenizer.from_pretrained(LLAMA)(texts, return_tensors="pt")  # of one length
batch["labels"] = batch.input_ids


@torch.no_grad()
def loss_in_peft():
    module = AutoModelForCausalLM.from_pretrained(LLAMA)
    return float(peft.PeftModel.from_pretrained(module, folder).eval()(**batch).loss)


config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"])
peft.get_peft_model(AutoModelForCausalLM.from_pretrained(LLAMA), config).save_pretrained(folder)
model, tx = anyjax.train.load_adapter(anyjax.from_pretrained(LLAMA), folder), optax.adam(1e-2)
step = anyjax.train.make_step(anyjax.train.model_loss, tx)
state, losses, before = anyjax.train.TrainState.create(model, tx), [], loss_in_peft()
for _ in range(30):
    state, metrics = step(state, batch)
    losses.append(float(metrics["loss"]))
anyjax.train.save_adapter(state.model, folder)
after, last = loss_in_peft(), float(state.model(**batch).loss)
print(f"PEFT {before:.4f}, JAX {losses[0]:.4f}; 30 steps in JAX: {last:.4f}, PEFT {after:.4f}")
plt.plot([*losses, last], label="in JAX")
plt.plot([0, 30], [before, after], "o", label="in PEFT")
plt.legend()
plt.savefig(sys.argv[1] if sys.argv[1:] else "peft_both_ways.svg")
