"""Many programs, on many processes, with results that are kept."""
