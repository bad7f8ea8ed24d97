# Arguments: the pid of a process of the host, the name of its program, and the differences that are
# tolerated: process 1 of a guest kernel may be ended from inside, and the guest with it.
import glob, os, signal, sys
pids = [p for p in os.listdir("/proc") if p.isdigit()]
if len(pids) > 8:
    print("BREACH sees", len(pids), "processes")
for p in pids:
    try:
        if sys.argv[2].encode() in open(f"/proc/{p}/cmdline", "rb").read().split(b"\0")[0]:
            print("BREACH sees the host's process")
    except OSError:
        pass
for p in {1, os.getppid()} - {os.getpid(), 0}:
    for what in ("exe", "mem", "environ", "maps", "fd", "root", "cwd", "ns/mnt", "auxv", "syscall", "io"):
        path = f"/proc/{p}/{what}"
        try:
            if what == "fd" and "kernel" in sys.argv[3]:
                names = os.listdir(path) # shown to everyone, but nothing behind them may open
                path += "/" + names[0]
                for name in names:
                    os.close(os.open(f"/proc/{p}/fd/{name}", os.O_RDWR))
            elif what == "fd":
                os.listdir(path)
            elif what in ("root", "cwd"):
                os.listdir(path + "/")
            else:
                os.read(os.open(path, os.O_RDONLY), 1)
            print("BREACH reads", path)
        except OSError:
            pass
    try:
        os.open(f"/proc/{p}/exe", os.O_WRONLY)
        print("BREACH writes exe of", p)
    except OSError:
        pass
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGSTOP, signal.SIGKILL, signal.SIGQUIT):
    try:
        os.kill(1, 0 if "kernel" in sys.argv[3] else s)
    except OSError:
        pass
print("done")
