"""Run a command where the loopback is the only network: below ``unshare -rn``.

unshare -rn python3 tests/support/loopback.py COMMAND...
"""

import fcntl
import os
import socket
import struct
import sys

SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1


def main() -> None:
    """Switch the loopback on, which is off in a new network, and become the command."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
