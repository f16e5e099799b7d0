"""One runtime's life: what it should be, the unit that it becomes, and its states."""
