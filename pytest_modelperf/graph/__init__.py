"""Everything about an ONNX file: read without its weights, bound, twinned, rewritten."""
