"""The command line: a file per group of verbs, each of which parses, calls and prints.

All are loaded for every `--help`; what takes time to load is imported by the verb that needs it.
"""
