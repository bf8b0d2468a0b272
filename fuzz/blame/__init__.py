"""Who is guilty of a failure, and the smallest program that shows it."""
