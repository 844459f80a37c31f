"""Fourier transforms."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.tensorflow.core.schema import table
from tests.tensorflow.agree import assert_agrees
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

R = tf.raw_ops
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 5, 6)).astype(np.float32)
Z = (X + 1j * RNG.standard_normal(X.shape)).astype(np.complex64)


@pytest.mark.parametrize("name", ["FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D"])
def test_complex(name):
    assert_agrees(lambda x: getattr(R, name)(input=x), Z)


def test_old_names():
    """They stand in graphs of old; this TensorFlow makes none."""
    assert table["BatchIFFT2D"].lowering is table["IFFT2D"].lowering


LENGTHS = [(None, 1), ([6], 1), ([5], 1), ([4], 1), ([9], 1), (None, 2), ([4, 6], 2), ([7, 7], 2)]
RFFT = {1: tf.signal.rfft, 2: tf.signal.rfft2d, 3: tf.signal.rfft3d}
IRFFT = {1: tf.signal.irfft, 2: tf.signal.irfft2d, 3: tf.signal.irfft3d}


@pytest.mark.parametrize(("length", "rank"), [*LENGTHS, (None, 3), ([4, 5, 7], 3)])
def test_real(length, rank):
    assert_agrees(lambda x: RFFT[rank](x, length), X, grad=rank < 3 and length is None)


@pytest.mark.parametrize(("length", "rank"), [*LENGTHS, (None, 3), ([4, 5, 7], 3)])
def test_back_to_real(length, rank):
    assert_agrees(lambda x: IRFFT[rank](x, length), Z, grad=rank < 3 and length is None)


NAMED = {"FFTND": (np.fft.fftn, Z), "IFFTND": (np.fft.ifftn, Z), "RFFTND": (np.fft.rfftn, X)}


@pytest.mark.parametrize("name", [*NAMED, "IRFFTND"])
def test_named_axes(name):
    """TensorFlow has no kernel for them on a CPU."""
    function, x = NAMED.get(name, (np.fft.irfftn, Z))
    inputs = {"input": x, "fft_length": [4, 6], "axes": [1, 3]}
    got = anyjax.from_tensorflow(lambda: getattr(R, name)(**inputs))()
    assert_close(got, function(x, [4, 6], [1, 3]), rtol=1e-5)


SOUND = RNG.standard_normal((2, 64)).astype(np.float32)
SIGNALS = {
    "frame": lambda x: tf.signal.frame(x, 8, 3),
    "frame_pad_end": lambda x: tf.signal.frame(x, 8, 5, pad_end=True),
    "overlap_and_add": lambda x: tf.signal.overlap_and_add(tf.reshape(x, [2, 8, 8]), 3),
    "stft": lambda x: tf.abs(tf.signal.stft(x, 16, 4, 32)),
    "istft": lambda x: tf.signal.inverse_stft(tf.signal.stft(x, 16, 4), 16, 4),
    "mfcc": lambda x: tf.signal.mfccs_from_log_mel_spectrograms(x)[..., :5],
    "dct2": lambda x: tf.signal.dct(x, norm="ortho"),
    "dct1": lambda x: tf.signal.dct(x, 1),
    "dct3": lambda x: tf.signal.dct(x, 3),
    "idct": lambda x: tf.signal.idct(x, norm="ortho"),
    "mdct": lambda x: tf.signal.mdct(x, 16),
    "hilbert-like": lambda x: tf.math.real(tf.signal.ifft(tf.signal.fft(tf.cast(x, tf.complex64)))),
    "fftshift": lambda x: tf.signal.fftshift(x),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_signals(name):
    assert_agrees(SIGNALS[name], SOUND, depth=256)
