"""Leaving bough: ONNX with all tasks in one graph, and transformers' format."""
