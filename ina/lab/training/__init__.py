"""Training with torch: data, ranks, what is measured and recorded of them."""
