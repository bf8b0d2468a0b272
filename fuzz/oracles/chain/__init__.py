"""Oracles of the chain: what its passes say and leave behind, dialect by dialect."""
