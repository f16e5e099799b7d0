"""How long tests wait. Nothing fails because the machine is busy, and what never comes is missed all the same."""

SOON_S = 30.0
"""For what must come, and of which no more is promised."""
MOMENT_S = 5.0
"""What a busy machine may need on top of a time that is promised; what would come by itself comes much later."""
