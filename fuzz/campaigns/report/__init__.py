"""A campaign in numbers, texts and plots."""
