"""Results: the folder of a run, its report, comparisons, figures, and why a run was as fast as it was."""
