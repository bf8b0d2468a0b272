"""The memory sanitizer: an interpreter that checks every access to planned memory."""
