"""Functions as users of TensorFlow write them, by the part of its API that they use."""
