"""Ground: paths, the compiled part, the C compiler and its cache, documents, settings, tokens."""
