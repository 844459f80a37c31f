"""What every other room uses: the wrapper tensor, schemas, one operator's call, dtypes, strides."""
