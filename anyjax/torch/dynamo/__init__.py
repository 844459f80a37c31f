"""``torch.compile(model, backend="anyjax")``: graphs of Dynamo and AOTAutograd as XLA programs."""
