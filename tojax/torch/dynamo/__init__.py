"""``torch.compile(model, backend="tojax")``: graphs of Dynamo and AOTAutograd as XLA programs."""
