"""The processes that do the work of a campaign."""
