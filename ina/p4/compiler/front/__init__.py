"""Text to tree: preprocessor, lexer, parser."""
