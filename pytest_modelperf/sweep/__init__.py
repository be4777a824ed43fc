"""One model or two at many configurations."""
