"""How much noise quantization adds to a model, call by call, and which modules to leave in float."""
