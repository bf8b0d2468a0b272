"""The language of rules: text to terms, expressions and programs, with places for diagnostics."""
