"""Values that only the compiled program knows: conditions, numbers of rows, indices."""
