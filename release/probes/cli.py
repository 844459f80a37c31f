"""The command line on a saved model, without PyTorch."""

import json
import subprocess
import sys
from pathlib import Path

saved = Path(sys.argv[1], "saved")
command = Path(sys.executable).with_name("anyjax")


def output(*arguments):
    done = subprocess.run([command, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout


assert "doctor" in output("--help")
assert json.loads(output("inspect", saved, "--json"))
assert json.loads(output("run", saved, "--json"))
assert json.loads(output("doctor", "--json"))
assert output("explain", "MissingRng").startswith("# MissingRng")
refused = subprocess.run([command, "run", "nowhere/model"], capture_output=True, text=True)
assert refused.returncode == 1 and 'pip install "anyjax[hf]"' in refused.stderr, refused
print("ok: help, inspect, run, doctor, explain; the missing extra is named")
