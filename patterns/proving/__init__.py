"""Proofs of rules for all sizes: symbolic tensors, the semantics of operators, and what a solver says of both sides."""
