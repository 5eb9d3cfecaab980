"""Sample tenants from a seed: each has a knowledge base in the company's terms, and conversations in users' words.

write_sample("fivedoctors", Path("data/fivedoctors"), conversations=1600, seed=0)
"""

from standins.samples.sample_writer import SampleCounts, write_sample
from standins.samples.tenant_content import TENANTS

__all__ = ["TENANTS", "SampleCounts", "write_sample"]
