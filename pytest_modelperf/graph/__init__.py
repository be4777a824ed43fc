"""Reading an ONNX file without its weights, and binding its shapes."""
