"""Unit model, rendering and the two service managers that run units: systemd and the embedded supervisor."""
