"""python -m benchmarks.rehearse [PROFILE ...]: the time of each step of a rehearsal (`make rehearse`).

The last line is JSON: profile, stage, the image whose lock made the environment, seconds.
"""

from tests.rehearsal.__main__ import main

if __name__ == "__main__":
    main()
