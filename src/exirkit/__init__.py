"""Lower PyTorch models to ExecuTorch programs, with passes written as data and checked by machine."""

__version__ = "0.1.0"
