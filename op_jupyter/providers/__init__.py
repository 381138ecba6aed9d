"""Models behind one Protocol: each file adapts one way to reach a model."""
