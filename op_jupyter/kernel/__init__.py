"""The kernel "Python 3 (OpenProgram)": ipykernel with the extension loaded."""
