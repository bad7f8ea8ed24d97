# Arguments: a TCP port of the host's loopback, a unix socket's path, an abstract socket's name.
import os, socket, sys
def t(name, attempt):
    try:
        attempt()
        print("BREACH", name)
    except OSError:
        pass
def tcp(family, host, port):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        s.connect((host, port))
def unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
port = int(sys.argv[1])
t("loopback", lambda: tcp(socket.AF_INET, "127.0.0.1", port))
t("metadata address", lambda: tcp(socket.AF_INET, "169.254.169.254", 80))
t("an address of the internet", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 53)))
t("unix socket", lambda: unix(sys.argv[2]))
t("abstract socket", lambda: unix("\0" + sys.argv[3]))
t("name lookup", lambda: socket.getaddrinfo("example.com", 80))
for line in open("/proc/net/dev").readlines()[2:]:
    name = line.split(":")[0].strip()
    if name != "lo":
        print("BREACH interface", name)
if len(open("/proc/net/tcp").readlines()) > 1:
    print("BREACH sockets of the host")
if socket.gethostname() != "sandbox":
    print("BREACH name of the machine")
# What stays possible: servers of the script's own, and pairs.
a, b = socket.socketpair()
a.send(b"x")
assert b.recv(1) == b"x"
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    s.listen(1)
    socket.create_connection(s.getsockname(), 2).close()
print("done")
