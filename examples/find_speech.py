"""Where in a sound is speech? Silero VAD, a recurrent network in a TorchScript file, hears 32
milliseconds at a time; here the whole sound is one lax.scan. Without --wav the sound is made: a
tone, a burst of noise, and a voice of vowels: python examples/find_speech.py --help
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import torch
from pretrained import wheel
from scipy.io import wavfile
from scipy.signal import lfilter

import anyjax

PACKAGE, FILE = "silero-vad==6.2.3", "silero_vad/data/silero_vad"
RATE, CHUNK = 16000, 512  # samples per second, samples that the network takes at a time
FORMANTS = [(730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480)]  # a i u e
SPEECH = (4.0, 6.0)  # seconds


def voice(seconds: float, rng: np.random.Generator) -> np.ndarray:
    """Returns syllables of 0.2 seconds: pulses of a varying pitch through a vowel's resonances."""
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = 120 + 20 * np.sin(2 * np.pi * 0.7 * time) + 6 * np.sin(2 * np.pi * 3 * time)
    pulses = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0)
    syllables = []
    for part in np.split(pulses + rng.normal(0, 0.02, pulses.shape), round(seconds / 0.2)):
        for formant in FORMANTS[rng.integers(len(FORMANTS))]:
            radius = np.exp(-np.pi * 80 / RATE)
            turn = -2 * radius * np.cos(2 * np.pi * formant / RATE)
            part = lfilter([1 - radius], [1, turn, radius**2], part)
        syllables.append(part / np.abs(part).max() / 2 * np.sqrt(np.hanning(len(part))))
    return np.concatenate(syllables)


def scene() -> np.ndarray:
    """Returns 8 seconds: a tone at 1, a burst of noise at 2.5, and a voice from 4 to 6."""
    rng, (begin, end) = np.random.default_rng(0), SPEECH
    sound = rng.normal(0, 0.005, 8 * RATE)
    second = np.arange(RATE) / RATE
    sound[RATE : 2 * RATE] += 0.4 * np.sin(2 * np.pi * 440 * second)
    sound[5 * RATE // 2 : 7 * RATE // 2] += rng.normal(0, 0.15, RATE)
    sound[int(begin * RATE) : int(end * RATE)] += voice(end - begin, rng)
    return sound.astype(np.float32)


def scan(model, chunks: np.ndarray) -> jax.Array:
    """Returns the probability of speech in each chunk of the TorchScript model."""

    def step(state, chunk):
        out, state = model.apply(model.params, chunk[None], RATE, state=state, mutable=True)
        return state, out[0, 0]

    state, first = step(model.state, chunks[0])  # the memory of the network joins its state
    return jax.numpy.append(first, jax.lax.scan(step, state, chunks[1:])[1])


def scan_onnx(model, chunks: np.ndarray) -> jax.Array:
    """Returns the same of the ONNX model, whose memory is an argument and a result."""

    def step(state, chunk):
        out = model.apply(model.params, chunk[None], state, np.asarray(RATE))
        return out["stateN"], out["output"][0, 0]

    past = np.concatenate([np.zeros((1, 64), "f4"), chunks[:-1, -64:]])  # 64 samples of the past
    state = np.zeros((2, 1, 128), "f4")
    return jax.lax.scan(step, state, np.concatenate([past, chunks], 1))[1]


def intervals(probabilities: np.ndarray, threshold: float = 0.5) -> list[tuple[float, float]]:
    """Returns (begin, end) in seconds of what is speech; pauses under 0.2 seconds are filled."""
    places = np.flatnonzero(probabilities > threshold)
    parts = np.split(places, np.flatnonzero(np.diff(places) * CHUNK / RATE > 0.2) + 1)
    return [(x[0] * CHUNK / RATE, (x[-1] + 1) * CHUNK / RATE) for x in parts if len(x)]


def draw(sound: np.ndarray, probabilities: np.ndarray, file: Path) -> None:
    from matplotlib.figure import Figure

    wave, graph = Figure((8, 3.6), layout="constrained").subplots(2, sharex=True)
    edges = sound[: len(sound) // 160 * 160].reshape(-1, 160)
    time = np.arange(len(edges)) * 160 / RATE
    wave.fill_between(time, edges.min(1), edges.max(1), lw=0)
    wave.set(ylabel="sound")
    graph.step(np.arange(len(probabilities)) * CHUNK / RATE, probabilities, where="post")
    for begin, end in intervals(probabilities):
        for axes in (wave, graph):
            axes.axvspan(begin, end, color="tab:green", alpha=0.2, lw=0)
    graph.set(ylabel="probability of speech", xlabel="seconds", ylim=(0, 1), xlim=(0, time[-1]))
    graph.figure.savefig(file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wav", type=Path, help="a sound of one channel, 16000 samples per second")
    parser.add_argument("--out", type=Path, help="file for the picture, .svg or .png")
    args = parser.parse_args()
    rate, sound = wavfile.read(args.wav) if args.wav else (RATE, scene())
    if rate != RATE or sound.ndim != 1:
        parser.error(f"{args.wav} has the shape {sound.shape} and {rate} samples per second")
    if sound.dtype == np.int16:
        sound = sound / np.float32(2**15)
    chunks = sound[: len(sound) // CHUNK * CHUNK].reshape(-1, CHUNK).astype(np.float32)

    files = wheel(PACKAGE)
    module = torch.jit.load(files / f"{FILE}.jit").eval()
    model, onnx = anyjax.from_torch(module), anyjax.from_onnx(files / f"{FILE}.onnx")
    probabilities = np.asarray(scan(model, chunks))
    module.reset_states()
    with torch.no_grad():
        expected = [module(torch.from_numpy(x), RATE).item() for x in chunks]
    print(f"largest difference to PyTorch: {np.abs(probabilities - expected).max():.1e}")
    difference = np.abs(probabilities - scan_onnx(onnx, chunks)).max()
    print(f"largest difference of the ONNX file: {difference:.1e}")
    for begin, end in intervals(probabilities):
        print(f"speech from {begin:.2f} to {end:.2f} seconds")
    if args.out:
        draw(sound, probabilities, args.out)
