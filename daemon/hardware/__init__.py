"""What this machine is made of and how it is doing: read, judged, and told. The daemon's sampler, and the doctor."""
