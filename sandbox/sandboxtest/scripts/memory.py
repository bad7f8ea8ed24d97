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
    elif how == "messages":  # queues of messages, which no process holds
        libc = ctypes.CDLL(None, use_errno=True)
        text, taken = ctypes.create_string_buffer(8 + 8192), 0
        ctypes.c_long.from_buffer(text).value = 1
        while taken < size:
            queue = libc.msgget(0, 0o1600)
            if queue < 0:
                raise OSError("msgget")
            while taken < size and libc.msgsnd(queue, text, 8192, 0o4000) == 0:
                taken += 8192
    elif how == "semaphores":
        libc = ctypes.CDLL(None, use_errno=True)
        for taken in range(0, size, 32000 * 64):  # each takes a cache line
            made = libc.semget(0, 32000, 0o1600)
            if made < 0:
                raise OSError("semget")
            libc.semctl(made, 0, 17, b"\1\0" * 32000)  # SETALL: a kernel may make them of nothing
    elif how == "sockets":  # buffers of sockets that nobody reads
        import resource, socket
        taken = 0
        while taken < size:
            pid = os.fork()
            if pid == 0:
                try:
                    pairs, n = [], 0
                    while True:
                        try:
                            pair = socket.socketpair()
                        except OSError:
                            break
                        pairs.append(pair)
                        for s in pair:
                            s.setblocking(False)
                            try:
                                while True:
                                    n += s.send(b"x" * 65536)
                            except OSError:
                                pass
                    os.write(1, b"took %d\n" % n)
                finally:
                    time.sleep(60)
            time.sleep(0.3)
            taken += 256 // 2 * 2 * 200 * 1024
    elif how == "tables":  # page tables of a large mapping of nothing
        step, each = 2 << 20, 64 << 30
        for _ in range(size // 4096 * step // each):
            m = mmap.mmap(-1, each, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
            m.madvise(15)
            for i in range(0, each, step):
                m[i]
            globals().setdefault("kept", []).append(m)
        time.sleep(1)
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
