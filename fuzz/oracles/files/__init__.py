"""Oracles of the program file: its memory plan, and its bytes."""
