"""The operators that programs are made of, as data (`*.yaml`), and one module for each family of calls."""
