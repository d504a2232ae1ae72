"""MoE facts that several model types share, a module for each family."""
