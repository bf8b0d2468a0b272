"""Certificates beside program files: what made a file, what is known of the rules, and checking that later."""
