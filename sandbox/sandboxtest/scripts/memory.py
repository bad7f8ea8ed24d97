# Arguments: how to take 512 MiB, and for how many seconds.
import ctypes, mmap, os, sys, time
size, page = 512 << 20, 4096
late = int(sys.argv[2])  # who looks now and then may be late
kept = []
def touch(m):
    kept.append(m)
    for i in range(0, size, page):
        m[i] = 1
how = sys.argv[1]
print("start", flush=True)
try:
    if how == "anonymous":
        touch(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    elif how == "shared":
        touch(mmap.mmap(-1, size))
    elif how in ("zapped", "unmapped", "devzero", "named"):  # shared memory that is in no page table
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        each = 4 << 20
        fd = os.open("/dev/zero", os.O_RDWR) if how == "devzero" else -1
        for _ in range(0, size, each):
            at = libc.mmap(None, each, 3, 1 if fd >= 0 else 0x21, fd, 0)
            if at == ctypes.c_void_p(-1).value:
                raise OSError("mmap")
            ctypes.memset(at, 1, each)
            if how == "named":
                libc.prctl(0x53564d41, 0, ctypes.c_void_p(at), ctypes.c_size_t(each), b"x")
            if how == "zapped":
                libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(each), 4)
            else:
                libc.munmap(ctypes.c_void_p(at + page), ctypes.c_size_t(each - page))
    elif how == "leader":  # the process's first thread ends, another takes
        import platform, threading
        def take():
            time.sleep(0.3)
            b = bytearray(size)
            b[::page] = b"x" * len(b[::page])
            time.sleep(40)
            print("BREACH", how, flush=True)
            os._exit(0)
        threading.Thread(target=take).start()
        ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
    elif how == "mappings":  # what the kernel keeps for each; a fork makes all of them again
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        at = libc.mmap(None, ctypes.c_size_t(60000 * page), 1, 0x4022, -1, ctypes.c_long(0))
        for i in range(0, 60000, 2):
            libc.mprotect(ctypes.c_void_p(at + i * page), ctypes.c_size_t(page), 0)
        for _ in range(40):
            if os.fork() == 0:
                time.sleep(late + 20)
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
                    time.sleep(late + 20)
            time.sleep(0.3)
            taken += 256 // 2 * 2 * 200 * 1024
    elif how == "connections":  # a few, whose buffers grow unless a backend bounds them
        import socket
        listener = socket.create_server(("127.0.0.1", 0))
        taken = 0
        for _ in range(60):
            end = socket.create_connection(listener.getsockname())
            kept.extend([end, listener.accept()[0]])
            end.setblocking(False)
            try:
                while True:
                    taken += end.send(b"x" * 65536)
            except BlockingIOError:
                pass
        if taken < 64 << 20:
            raise OSError("only %d bytes" % taken)
    elif how == "datagrams":  # that nobody receives: some kernels charge them to no process
        import socket
        for _ in range(16):
            pid = os.fork()
            if pid == 0:
                out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                held = []
                try:
                    while True:
                        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                        s.bind(("127.0.0.1", 0))
                        for _ in range(8):
                            out.sendto(b"x" * 60000, s.getsockname())
                        held.append(s)
                except OSError:
                    pass
                time.sleep(late + 20)
        time.sleep(late + 20)
    elif how == "pipes":  # that nobody reads
        for _ in range(12):
            if os.fork() == 0:
                held = []
                try:
                    while True:
                        r, w = os.pipe()
                        os.set_blocking(w, False)
                        held.append(os.write(w, b"x" * 65536))
                except OSError:
                    pass
                time.sleep(late + 20)
    elif how == "watches":  # of files under numbers that have long been others'
        import select
        for _ in range(4):
            if os.fork() == 0:
                pipes = [fd for _ in range(40) for fd in os.pipe()]
                for _ in range(60):
                    watcher = select.epoll()
                    kept.append(watcher)
                    for number in range(160, 250):
                        for fd in pipes:
                            os.dup2(fd, number)
                            watcher.register(number, select.EPOLLET)
                time.sleep(late + 20)
    elif how == "tables":  # page tables of a large mapping of nothing
        step, each = 2 << 20, 64 << 30
        for _ in range(size // 4096 * step // each):
            m = mmap.mmap(-1, each, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
            m.madvise(15)
            for i in range(0, each, step):
                m[i]
            kept.append(m)
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
                time.sleep(late + 20)
        os.close(w)
        for _ in range(8):
            if os.read(r, 1) != b"x":
                raise OSError("killed")
    time.sleep(late)
    print("BREACH", how)
except (OSError, MemoryError) as e:
    print("refused", e)
