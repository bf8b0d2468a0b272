"""The flatbuffer codec: tables become bytes and bytes become tables, driven by the models of the schema."""
