"""The controller: jobs, their slots and lives, at every switch of their trees; and the process that it runs in."""
