"""Stored classifiers in formats that need no ratecli: JSON, scikit-learn and ONNX."""
