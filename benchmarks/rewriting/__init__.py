"""The same rules applied by five engines to the same programs."""
