"""`ExportPass`: passes that rewrite a graph operator by operator, with the documented hooks."""
