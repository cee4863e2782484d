"""Network interfaces of this machine, as this thread's network namespace has them."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct

SIOCGIFMTU, SIOCGIFADDR = 0x8921, 0x8915  # netdevice(7)
IFNAMSIZ = 16  # bytes of an interface's name with the zero at its end (linux/if.h)


def mtu_of(interface: str) -> int:
    """Returns the MTU of an interface in bytes (netdevice(7), SIOCGIFMTU). Raises OSError; ValueError: none has such a name."""
    return int(struct.unpack("i12x", _asked(interface, SIOCGIFMTU))[0])


def address_of(place: str) -> str:
    """Returns the IPv4 address that ``place`` is, or the first one of the interface of that name, for others to send to. Raises
    OSError: there is none; ValueError: it is not the address of one network interface, or no interface has such a name."""
    try:
        ip = ipaddress.IPv4Address(place)
    except ValueError:
        ip = _first_address(place)
    if ip.is_unspecified or ip.is_multicast or _is_broadcast(ip):
        raise ValueError(f"{place}: others need one address to send to: expected that of one network interface")
    return str(ip)


def _first_address(interface: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(_asked(interface, SIOCGIFADDR)[4:8])
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        raise OSError(error.errno, f"network interface {interface} has no IPv4 address, which workers need") from None


def _is_broadcast(ip: ipaddress.IPv4Address) -> bool:
    """Returns True if this machine broadcasts what it sends to an address: a kernel lets sockets listen there, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(ip), 9))
        except PermissionError:  # SO_BROADCAST is not set (socket(7))
            return True
        except OSError:  # no route: nobody can listen there either
            return False
    return False


def address_towards(host: str) -> str:
    """Returns the IPv4 address from which this machine sends to ``host``, a name or an address. Raises OSError: there is no way
    there over IPv4."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((host, 9))  # any port: nothing is sent
        return str(asking.getsockname()[0])


def source_towards(host: str) -> str:
    """Returns the IP address, of IPv4 or IPv6, from which this machine sends to ``host``, a name or an address. Raises OSError:
    there is no way there."""
    failure: OSError = OSError(errno.EHOSTUNREACH, f"{host} has no address")
    for family, _, _, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.connect(address)  # nothing is sent
                return str(asking.getsockname()[0])
        except OSError as error:
            failure = error
    raise failure


def _asked(interface: str, request: int) -> bytes:
    """Returns the 16 bytes of the answer to a request of netdevice(7). Raises OSError; ValueError: no interface has such a
    name."""
    name = os.fsencode(interface)
    if not 0 < len(name) < IFNAMSIZ or b"\0" in name:  # cut off, it might be another one's
        raise ValueError(f"{interface!r} is no name of a network interface: it has {len(name)} bytes, expected 1 to "
                         f"{IFNAMSIZ - 1} (IFNAMSIZ), and no zero byte")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            return fcntl.ioctl(any_socket, request, struct.pack("16s16x", name))[16:]
        except OSError as error:
            raise OSError(error.errno, f"network interface {interface}: {error.strerror}") from None
