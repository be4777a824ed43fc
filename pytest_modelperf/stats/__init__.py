"""Numbers in, intervals and decisions out. The only room that knows scipy."""
