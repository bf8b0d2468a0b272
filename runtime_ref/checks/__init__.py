"""Static checks of a program before it runs."""
