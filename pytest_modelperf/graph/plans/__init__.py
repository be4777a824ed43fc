"""Plans of engines: graphs of kernels that are compared, matched, and cut into parts."""
