"""Running cases on other machines, through dask.distributed."""
