"""Counterparts that no room has: the forms in which the official package offers what rooms do in another form."""
