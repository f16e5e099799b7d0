"""What the gateway counts: over all its workers, exactly, and kept when one of them dies."""
