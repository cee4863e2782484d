"""The externs of v1model and TNA in the reference interpreter."""
