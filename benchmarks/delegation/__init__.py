"""Models lowered to XNNPACK by both chains, side by side."""
