# Arguments: the pid of a process of the host, and the name of its program.
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
            if what == "fd":
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
        os.kill(1, s)
    except OSError:
        pass
print("done")
