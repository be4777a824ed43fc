"""Plans: the kernels that an engine runs, compared as a graph, matched, and cut into parts."""
