"""Rule books: model, loading, Python and traced rules, generated pages."""
