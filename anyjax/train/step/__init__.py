"""One step of training: state, loss, gradients, update."""
