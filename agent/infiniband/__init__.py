"""InfiniBand neighbors: directed-route SMPs over libibumad."""
