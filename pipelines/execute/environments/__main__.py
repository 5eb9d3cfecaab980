"""`python -m pipelines.execute.environments NAME [--cpu]` makes an image's environment and prints its interpreter."""

from pipelines.execute.environments.environments import main

main()
