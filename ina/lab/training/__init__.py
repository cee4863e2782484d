"""Training with torch: data, ranks, measurements and recordings."""
