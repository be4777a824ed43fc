"""Two sides run in turn, judged, and explained."""
