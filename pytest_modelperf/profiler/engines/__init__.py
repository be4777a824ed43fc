"""The engines that run a model. Each module is self-contained: its source is sent to a worker."""
