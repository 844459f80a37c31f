"""TensorArrays: sized, growing, of rows and of matrices."""

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import Case, listing

CASES: dict[str, Case] = {}
case = listing(CASES, "tensor_arrays")


@case("f5,3")
def tensor_array(x):
    written = tf.TensorArray(tf.float32, size=5)
    for i in tf.range(5):
        written = written.write(i, tf.sin(x[i]))
    return written.stack()


@case("f5,3")
def tensor_array_grows(x):
    written = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(tf.shape(x)[0]):
        written = written.write(i, x[i] * 2)
    return written.stack()


@case("f5,3")
def tensor_array_unstack_read(x):
    read = tf.TensorArray(tf.float32, 5, clear_after_read=False).unstack(x)
    total = tf.zeros([3])
    for i in tf.range(5):
        total += read.read(i) * read.read(4 - i)
    return total


@case("f6,3")
def tensor_array_gather(x):
    return tf.TensorArray(tf.float32, 6).unstack(x).gather([4, 0, 2])


@case("f4,3")
def tensor_array_concat(x):
    written = tf.TensorArray(tf.float32, size=4, element_shape=[3])
    for i in tf.range(4):
        written = written.write(i, x[3 - i])
    return written.concat() if False else tf.reshape(written.stack(), [-1])


@case("f4,2,3")
def tensor_array_of_matrices_concat(x):
    written = tf.TensorArray(tf.float32, size=4, element_shape=[2, 3], infer_shape=True)
    for i in tf.range(4):
        written = written.write(i, x[i])
    return written.concat()


@case("f6,2")
def tensor_array_split(x):
    return tf.TensorArray(tf.float32, 3, element_shape=[2, 2]).split(x, [2, 2, 2]).stack()


@case("f6,2")
def tensor_array_scatter(x):
    return tf.TensorArray(tf.float32, 6).scatter([5, 0, 1, 2, 4, 3], x).stack()


@case("f4")
def fibonacci_array(x):
    out = tf.TensorArray(tf.float32, size=6, clear_after_read=False)
    out = out.write(0, x).write(1, x * 2)
    for i in tf.range(2, 6):
        out = out.write(i, out.read(i - 1) + out.read(i - 2))
    return out.stack()
