"""What happens: sessions, turns, functions, runtimes.  (``op_jupyter.agent`` is a function.)"""
