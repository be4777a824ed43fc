"""Cases carried out by other machines, through dask.distributed."""
