"""Which nodes a job may have, why not the others, and what is free on them: one answer for every command."""
