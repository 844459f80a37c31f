"""The ground of all rooms: the wrapper tensor, schemas, one operator's call, dtypes, strides."""
