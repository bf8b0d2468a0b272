"""Rules that no person wrote: small graphs are enumerated, and equal ones of different cost become rules."""
