"""What every stage and server stands on; it knows neither KFP nor KServe."""

__version__ = "0.1.0"
