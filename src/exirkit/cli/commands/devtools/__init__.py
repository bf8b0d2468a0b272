"""The commands of developer tools: looking at a lowering and at runs of its program, and bundles."""
