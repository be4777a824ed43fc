"""The facts of this machine: its processors, memory, limits, system and packages."""
