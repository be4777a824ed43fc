"""The parts of the plugin: how tests of models are declared, run and reported."""
