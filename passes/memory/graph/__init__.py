"""Planning of the graphs of one method."""
