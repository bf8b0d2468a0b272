"""The program file: header, flatbuffer and segments."""
