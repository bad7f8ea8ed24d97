# Argument: how to take 512 MiB.
import ctypes, mmap, os, sys, time
size, page = 512 << 20, 4096
def touch(m):
    for i in range(0, size, page):
        m[i] = 1
how = sys.argv[1]
print("start", flush=True)
try:
    if how == "anonymous":
        touch(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    elif how == "shared":
        touch(mmap.mmap(-1, size))
    elif how == "memfd":
        fd = os.memfd_create("x")
        for _ in range(size >> 20):
            os.write(fd, b"x" * (1 << 20))
    elif how == "sysv":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        seg = libc.shmget(0, size, 0o1600)
        if seg < 0:
            raise OSError("shmget")
        at = libc.shmat(seg, None, 0)
        for i in range(0, size, page):
            ctypes.memset(at + i, 1, 1)
    elif how == "tmpfs":
        for d in ("/tmp", "/dev/shm", "/out"):
            n = 0
            try:
                for i in range(16):
                    with open(f"{d}/{i}", "wb", 0) as f:
                        for _ in range(32):
                            n += f.write(b"x" * (1 << 20))
            except OSError:
                pass
            if n >= size:
                print("BREACH", d)
        raise OSError("full")
    elif how == "processes":
        r, w = os.pipe()
        for _ in range(8):
            if os.fork() == 0:
                os.close(r)
                b = bytearray(64 << 20)
                b[::page] = b"x" * len(b[::page])
                os.write(w, b"x")
                time.sleep(60)
        os.close(w)
        for _ in range(8):
            if os.read(r, 1) != b"x":
                raise OSError("killed")
        time.sleep(3)
    print("BREACH", how)
except (OSError, MemoryError) as e:
    print("refused", e)
