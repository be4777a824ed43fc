"""What the plugin is made of: tests of models, how they are declared, run and reported."""
