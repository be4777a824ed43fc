"""Functions that operating systems offer in different ways, each behind one interface."""
