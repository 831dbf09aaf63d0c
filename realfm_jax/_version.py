"""The version, read by the package, by its records and by the build."""

__version__ = "0.1.0"
