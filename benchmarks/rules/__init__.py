"""What it costs to check, prove and load rules, and which wrong ones are found."""
