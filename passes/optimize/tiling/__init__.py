"""Computing parts of a program band by band, so that less memory is needed at once."""
