"""The command line: each verb parses its words, calls the library and prints what came of it."""
