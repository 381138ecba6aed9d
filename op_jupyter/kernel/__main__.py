"""Start the kernel: `python -m op_jupyter.kernel -f CONNECTION_FILE`."""

from op_jupyter.kernel.app import OpenProgramKernelApp

if __name__ == "__main__":
    OpenProgramKernelApp.launch_instance()
