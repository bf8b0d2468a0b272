"""What a rewrite says: rules as data, their static checks, the matcher and the engine that applies them."""
