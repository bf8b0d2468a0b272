"""Memory policies: which memories there are and what lies in which, declared as data."""
