"""How many sites of well-known building blocks the shipped rules find in real models: `python -m benchmarks.firing`."""
