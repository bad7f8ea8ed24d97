import ctypes, errno, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
buf = ctypes.create_string_buffer(256)
x86 = platform.machine() == "x86_64"
# Numbers from 424 on are the same everywhere; the rest is (x86_64, arm64).
calls = {
    "io_uring_setup": (425, 4, buf), "open_tree": (428, -100, b"/usr", 1), "fsopen": (430, b"tmpfs", 0),
    "clone3": (435, buf, 64), "openat2": (437, -100, b"/usr", buf, 24), "pidfd_getfd": (438, 0, 0, 0),
    "mount_setattr": (442, -100, b"/skill", 0, buf, 32), "memfd_secret": (447, 0),
    "ptrace": ((101, 117), 0, 0, 0, 0), "pivot_root": ((155, 41), b"/tmp", b"/tmp"), "chroot": ((161, 51), b"/tmp"),
    "mount": ((165, 40), b"t", b"/tmp", b"tmpfs", 0, 0), "umount2": ((166, 39), b"/skill", 2),
    "unshare user": ((272, 97), 0x10000000), "setns": ((308, 268), 0, 0), "bpf": ((321, 280), 0, buf, 128),
    "perf_event_open": ((298, 241), buf, 0, -1, -1, 0), "userfaultfd": ((323, 282), 1),
    "add_key": ((248, 217), b"user", b"probe", b"v", 1, -2), "keyctl": ((250, 219), 0, -3, 1),
    "syslog": ((103, 116), 10, 0, 0, 0), "fanotify_init": ((300, 262), 0, 0),
    "process_vm_readv": ((310, 270), os.getpid(), 0, 0, 0, 0, 0),
    "name_to_handle_at": ((303, 264), -100, b"/usr", struct.pack("<Ii", 8, 1) + b"\0" * 8, buf, 0),
    "open_by_handle_at": ((304, 265), os.open("/usr", os.O_RDONLY), struct.pack("<IiII", 8, 1, 2, 0), 0),
    "mknod of a device": ((133, 0), b"/tmp/dev", 0o60600, 0xfe00) if x86 else (33, -100, b"/tmp/dev", 0o60600, 0xfe00),
    "vmsplice": ((278, 75), os.pipe()[1], struct.pack("QQ", 0, 0), 0, 0), "io_setup": ((206, 0), 4, struct.pack("Q", 0)),
    "lease": ((72, 25), os.open("/skill/SKILL.md", os.O_RDONLY), 1024, 0),
    "limits of process 1": ((302, 261), 1, 7, struct.pack("QQ", 8, 8), None),
    "priority of process 1": ((141, 140), 0, 1, 19),
    "inotify_init1": ((294, 26), 0), "notification of a directory": ((72, 25), os.open("/usr/bin", os.O_RDONLY), 1026, 1),
    "lock of an open file": ((72, 25), os.open("/tmp/locked", os.O_RDWR | os.O_CREAT), 37, struct.pack("hhqqi4x", 1, 0, 0, 1, 0)),
    "setxattr": ((188, 5), b"/tmp/locked", b"user.x", b"x", 1, 0), "setxattrat": (463, -100, b"/tmp/locked", 0, b"user.x", struct.pack("QII", 0, 1, 0), 16),
    "huge pages": ((9, 222), 0, 2 << 20, 3, 0x40022, -1, 0), "table of locks": ((157, 167), 78, 1, 1024, 0, 0),
    "processors of process 1": ((203, 122), 1, 1, b"\1"), "priority of input and output of process 1": ((251, 30), 1, 1, 3 << 13),
    "migrate_pages": ((256, 238), 0, 0, 0, 0), "move_pages": ((279, 239), 0, 0, 0, 0, 0, 0),
    "mbind": ((237, 235), 0, 0, 0, 0, 0, 0), "set_mempolicy": ((238, 237), 0, 0, 0),
    "mq_open": ((240, 180), b"probe", 0o102, 0o600, 0), "cachestat": (451, os.open("/skill/SKILL.md", os.O_RDONLY), struct.pack("QQ", 0, 0), buf, 0),
    "clone of a user namespace": ((56, 220), 0x10000000 | 17, 0, 0, 0, 0),
}
if x86:
    calls["x32 getpid"] = (0x40000000 + 39,)
for name, (nr, *args) in calls.items():
    if isinstance(nr, tuple):
        nr = nr[0 if x86 else 1]
    r = libc.syscall(nr, *args)
    if name.startswith("clone of") and r == 0:
        os._exit(0)
    if r >= 0:
        print("BREACH", name)
for family, name in ((1, "unix"), (40, "vsock"), (17, "packet"), (38, "alg"), (31, "bluetooth"), (44, "xdp")):
    fd = libc.socket(family, 3 if family in (17, 31, 44) else 1, 0)
    if fd >= 0:
        print("BREACH socket", name)
for protocol, name in ((9, "audit"), (15, "uevent"), (12, "netfilter"), (4, "sock_diag"), (16, "generic")):
    if libc.socket(16, 3, protocol) >= 0:
        print("BREACH netlink", name)
key = struct.pack("HH124xBBHI80s", 2, 0, 0, 0, 16, 0, b"x" * 16)  # of connections with an IPv4 address
if libc.setsockopt(libc.socket(2, 1, 0), 6, 14, key, len(key)) == 0:
    print("BREACH keys of connections")
for request, name in ((0x5412, "TIOCSTI"), (0x541C, "TIOCLINUX"), (0x100005412, "TIOCSTI, high bits set")):
    ctypes.set_errno(0)
    libc.ioctl(0, ctypes.c_ulong(request), b"x")
    if ctypes.get_errno() != errno.EPERM:
        print("BREACH ioctl", name, ctypes.get_errno())
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
if libc.syscall(317 if x86 else 277, 1, 8, struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow))) >= 0:
    print("BREACH filter with a descriptor")
# What the host makes of a crash must not hold the memory of the process.
try:
    if int(open("/proc/self/coredump_filter").read(), 16) != 0:
        print("BREACH core files hold memory")
    open("/proc/self/coredump_filter", "w").write("33")
    print("BREACH core files can be filled")
except OSError:
    pass
print("done")
