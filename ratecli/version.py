"""The version of ratecli, apart from the package so that any module can import it."""

__version__ = "0.1.0"
