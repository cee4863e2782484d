"""Parts of the reference interpreter: run-time values, packets, tables, hashes, expressions and statements."""
