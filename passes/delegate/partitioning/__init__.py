"""Partitioning as data: which calls a backend takes, stated as rules in a YAML file that gives a partitioner."""
