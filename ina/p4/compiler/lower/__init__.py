"""Tree to intermediate code: everything inlined and flattened."""
