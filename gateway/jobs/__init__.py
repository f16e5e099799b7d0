"""Long work: requests that are answered at once with an id, wait for their turn, and keep their result for a while."""
