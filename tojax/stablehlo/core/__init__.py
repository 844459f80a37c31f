"""What every part of the frontend builds on: schemas, types, attributes, known values."""
