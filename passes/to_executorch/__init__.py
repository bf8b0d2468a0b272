"""Passes from Edge to the ExecuTorch dialect."""
