"""`ina doctor`: is this machine, its links or a deployment fit for a run?"""
