"""Scripts that generate files of the repository, and measure it."""
