"""What an agent may do: tools behind one Protocol, with their schema and effect."""
