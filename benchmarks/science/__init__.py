"""Does the student surpass its teacher? Six whole runs on seeds never run before, and what else could explain it."""
