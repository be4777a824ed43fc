"""A graph of kernels as a picture: its boxes, their places, and how both are drawn."""
