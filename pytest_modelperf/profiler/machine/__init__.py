"""What machine this is: its processors, memory, limits, system and packages."""
