"""The network: a box has a loopback of its own and nothing else."""

from __future__ import annotations

import errno
import os
import socket
import struct

from kit import CONFIG, REFUSALS, attempt, blocked, describe, escaped, read_text, refused

NO_ROUTE = REFUSALS | {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN}


def has_route(address: str, port: int = 53) -> None:
    """Connects a datagram socket: the kernel looks for a route, and no packet is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.connect((address, port))
            escaped(f"there is a route to {address} from {sender.getsockname()[0]}")
    except OSError as error:
        if error.errno in NO_ROUTE:
            return
        raise


@attempt("network", "connect to a service on the host's loopback", promise="D1", weak="host")
def host_loopback() -> None:
    try:
        with socket.create_connection(("127.0.0.1", CONFIG["tcp_port"]), timeout=5) as connection:
            escaped(f"the service says {connection.recv(100)!r}")
    except OSError as error:
        if error.errno in NO_ROUTE | {errno.ECONNREFUSED}:
            blocked(f"connect: {describe(error)}")
        raise


@attempt("network", "connect to a service on the host's IPv6 loopback", promise="D1", weak="host")
def host_loopback6() -> None:
    if not CONFIG["tcp6_port"]:
        has_route("2001:db8::1")
        blocked("the host has no IPv6 loopback, and there is no route")
    try:
        with socket.create_connection(("::1", CONFIG["tcp6_port"]), timeout=5) as connection:
            escaped(f"the service says {connection.recv(100)!r}")
    except OSError as error:
        if error.errno in NO_ROUTE | {errno.ECONNREFUSED}:
            blocked(f"connect: {describe(error)}")
        raise


@attempt("network", "connect to every loopback address of the host", promise="D1", weak="host")
def other_loopbacks() -> None:
    for address in ("127.0.0.1", "127.0.0.2", "127.1.2.3", "0.0.0.0", "localhost"):
        try:
            socket.create_connection((address, CONFIG["tcp_any_port"]), timeout=5).close()
        except OSError:
            continue
        escaped(f"{address} answers")
    blocked("none answers")


@attempt("network", "talk to a datagram service on the host", promise="D1", weak="host")
def host_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0.5)
        try:
            sender.sendto(b"hello", ("127.0.0.1", CONFIG["udp_port"]))
            sender.sendto(b"hello", ("127.0.0.1", CONFIG["udp_port"]))
            answer = sender.recv(100)
        except OSError as error:
            blocked(f"no answer: {error}")
    escaped(f"the service says {answer!r}")


@attempt("network", "connect to an abstract socket of the host", promise="R21", weak="host")
def abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect("\0" + CONFIG["abstract_name"])
        except OSError as error:
            if error.errno in REFUSALS | {errno.ECONNREFUSED}:
                blocked(f"connect: {describe(error)}")
            raise
        escaped(f"it says {client.recv(100)!r}")


@attempt("network", "connect to a UNIX socket of the host by its path", promise="D4", weak="host")
def unix_socket() -> None:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(CONFIG["unix_path"])
        except OSError as error:
            if error.errno in REFUSALS | {errno.ENOENT, errno.ECONNREFUSED}:
                blocked(f"connect: {describe(error)}")
            raise
        escaped(f"it says {client.recv(100)!r}")


@attempt("network", "find any UNIX socket in the file system", promise="D4", weak="host", seconds=60)
def any_unix_socket() -> None:
    import stat

    for top in ("/run", "/var/run", "/tmp", "/var", "/dev", "/opt", "/workspace", "/data", "/srv", "/etc"):
        for directory, _, names in os.walk(top):
            for name in names:
                path = os.path.join(directory, name)
                try:
                    if stat.S_ISSOCK(os.lstat(path).st_mode):
                        escaped(f"{path} is a socket")
                except OSError:
                    continue
    blocked("none")


@attempt("network", "reach the metadata service", promise="R27", weak="host")
def metadata_service() -> None:
    for address in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254"):
        has_route(address, 80)
    blocked("no route to the metadata addresses")


@attempt("network", "reach the internet", promise="D1", weak="host")
def internet() -> None:
    for address in ("192.0.2.1", "1.1.1.1", "8.8.8.8", "2001:db8::1"):
        has_route(address)
    blocked("no route out")


@attempt("network", "reach the neighbours of the host", promise="D1", weak="host")
def neighbours() -> None:
    for address in ("10.0.0.1", "172.17.0.1", "192.168.0.1", *CONFIG["host_addresses"]):
        has_route(address)
    blocked("no route to private networks or to the host's own address")


@attempt("network", "reach the host's name servers", promise="D1", weak="host")
def name_servers() -> None:
    for address in CONFIG["name_servers"]:
        if not address.startswith("127."):
            has_route(address)
    try:
        text = read_text("/etc/resolv.conf")
    except OSError:
        text = ""
    for address in CONFIG["name_servers"]:
        if address in text.split():
            escaped(f"resolv.conf names {address}")
    blocked("no route, and not named")


@attempt("network", "broadcast and multicast", promise="D1", weak="host")
def multicast() -> None:
    for address in ("224.0.0.251", "255.255.255.255"):
        try:
            has_route(address, 5353)
        except PermissionError as error:  # a broadcast without SO_BROADCAST: there is a route
            escaped(f"{address}: {describe(error)}")
    blocked("no route to groups")


@attempt("network", "find another interface than loopback", promise="D1", weak="host")
def interfaces() -> None:
    names = [name for _, name in socket.if_nameindex()]
    # Some kernels put silent tunnel devices into each namespace; they are down and have no address.
    silent = {"tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}
    others = set(names) - silent - {"lo"}
    if others:
        escaped(f"interfaces {sorted(others)}")
    blocked(f"interfaces {names}")


@attempt("network", "read the host's connections in proc", promise="R46", weak="host")
def connection_tables() -> None:
    port = f":{CONFIG['tcp_port']:04X} "
    for name, needle in (("tcp", port), ("unix", CONFIG["abstract_name"]), ("unix", CONFIG["unix_path"])):
        for path in (f"/proc/net/{name}", f"/proc/self/net/{name}", f"/proc/1/net/{name}"):
            try:
                text = read_text(path)
            except OSError:
                continue
            if needle in text:
                escaped(f"{path} shows {needle.strip()}")
    blocked("the tables are the box's own")


@attempt("network", "add an interface", promise="R15", weak="userns")
def add_interface() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        name = b"escape0\0"
        attribute = struct.pack("=HH", 4 + len(name), 3) + name
        kind = struct.pack("=HH", 9, 1) + b"veth\0" + b"\0" * 3
        nested = struct.pack("=HH", 4 + len(kind), 18) + kind
        body = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + attribute + nested
        header = struct.pack("=IHHII", 16 + len(body), 16, 0x605, 1, 0)  # RTM_NEWLINK, create, exclusive
        link.settimeout(5)
        link.send(header + body)
        answer = link.recv(4096)
    code = -struct.unpack_from("=i", answer, 16)[0]
    if code in (errno.EPERM, errno.EACCES):
        blocked(f"RTM_NEWLINK: {errno.errorcode[code]}")
    escaped(f"RTM_NEWLINK was reached: {errno.errorcode.get(code, 'it worked')}")


@attempt("network", "give the loopback another address", promise="R15", weak="userns")
def add_address() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("127.9.9.9"))
        blocked(refused(lambda: fcntl.ioctl(control, 0x8916, request), "SIOCSIFADDR"))


@attempt("network", "take the loopback down", promise="R15", weak="userns")
def loopback_down() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = fcntl.ioctl(control, 0x8913, struct.pack("16sH14x", b"lo", 0))
        blocked(refused(lambda: fcntl.ioctl(control, 0x8914, flags), "SIOCSIFFLAGS"))  # the same flags


@attempt("network", "mark packets", promise="R15", weak="userns")
def mark_packets() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        blocked(refused(lambda: sender.setsockopt(socket.SOL_SOCKET, 36, 1), "SO_MARK"))


@attempt("network", "bind to a foreign address", promise="R15", weak="userns")
def foreign_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        blocked(refused(lambda: sender.setsockopt(socket.SOL_IP, 19, 1), "IP_TRANSPARENT"))


@attempt("network", "use another internet protocol than TCP and UDP", promise="R15", weak="host")
def other_protocols() -> None:
    for name, kind, protocol in (("MPTCP", socket.SOCK_STREAM, 262), ("SCTP", socket.SOCK_STREAM, 132),
                                 ("UDP-Lite", socket.SOCK_DGRAM, 136), ("ping", socket.SOCK_DGRAM, 1)):  # fmt: skip
        try:
            socket.socket(socket.AF_INET, kind, protocol).close()
        except OSError as error:
            if error.errno in REFUSALS | {errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT}:
                continue
            raise
        escaped(f"{name} can be spoken")
    blocked("none")
