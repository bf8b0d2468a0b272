"""Delegation: what backends implement, which nodes they take, and the calls that remain."""
