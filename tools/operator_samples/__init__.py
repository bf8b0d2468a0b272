"""Records calls of operators for generated programs: `python -m tools.operator_samples`."""
