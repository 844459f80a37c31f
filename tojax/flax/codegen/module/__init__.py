"""One module as a class: its layers, its body, its loops."""
