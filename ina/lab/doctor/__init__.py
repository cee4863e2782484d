"""`ina doctor`: checks that this machine, its links or a deployment are fit for a run."""
