"""Commands of developer tools: what a lowering did, what runs of its program take, and bundles."""
