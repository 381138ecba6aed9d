"""How a turn looks: the live widget, the saved HTML and the drawn graph."""
