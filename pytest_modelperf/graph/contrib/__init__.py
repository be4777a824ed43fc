"""The shape rules of ONNX Runtime's own operators, by what they do."""
