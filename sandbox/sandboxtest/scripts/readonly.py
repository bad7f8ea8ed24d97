# Tries to change, below /workspace, the directories that are named as arguments, or to put others in
# their place. What lies around them is writable.
import ctypes, os, shutil, sys

libc = ctypes.CDLL(None, use_errno=True)
top, tried = "/workspace", 0


def attempt(what, f, *args, **more):
    global tried
    tried += 1
    try:
        f(*args, **more)
    except OSError:
        return
    print("BREACH", what, *args)


def call(f, *args):
    if f(*args) < 0:
        raise OSError(ctypes.get_errno(), "")


def write(path, mode="w"):
    with open(path, mode) as f:
        f.write("evil")


def exchange(a, b):
    call(libc.renameat2, -100, a.encode(), -100, b.encode(), 2)


def handle(path):
    buf = (ctypes.c_char * 136)()
    ctypes.c_uint.from_buffer(buf).value = 128
    mount = ctypes.c_int()
    call(libc.name_to_handle_at, -100, path.encode(), buf, ctypes.byref(mount), 0)
    at = os.open(top, os.O_RDONLY)
    call(libc.open_by_handle_at, at, buf, os.O_RDWR)


write(top + "/free")
os.makedirs(top + "/spare/demo", exist_ok=True)
for root in sys.argv[1:]:
    root, steps = top + "/" + root, root.split("/")
    file, dir = root + "/demo/SKILL.md", root + "/demo"
    fd = os.open(dir, os.O_RDONLY)
    if not os.path.exists(top + "/link"):
        os.symlink(root, top + "/link")
    for path in (file, "/proc/self/fd/%d/SKILL.md" % fd, "/proc/1/root" + file, top + "/link/demo/SKILL.md",
                 top + "/./" + file[len(top):]):
        attempt("write", write, path)
        attempt("append", write, path, "a")
        attempt("truncate", os.truncate, path, 0)
        attempt("chmod", os.chmod, path, 0o777)
        attempt("chown", os.chown, path, os.getuid(), -1)
        attempt("utime", os.utime, path)
        attempt("unlink", os.unlink, path)
    attempt("create", write, dir + "/new")
    attempt("mkdir", os.mkdir, root + "/new")
    attempt("mkfifo", os.mkfifo, root + "/fifo")
    attempt("symlink", os.symlink, "/tmp", root + "/symlink")
    attempt("chmod", os.chmod, root, 0o777)
    attempt("setxattr", os.setxattr, file, "user.x", b"x")
    attempt("fchmod", os.fchmod, fd, 0o777)
    attempt("link out", os.link, file, top + "/hard")
    attempt("link in", os.link, top + "/free", dir + "/free")
    attempt("move out", os.rename, dir, top + "/moved")
    attempt("move in", os.rename, top + "/spare/demo", root + "/moved")
    attempt("replace", os.replace, top + "/free", file)
    attempt("handle", handle, file)
    attempt("rmdir", os.rmdir, root)
    attempt("rmtree", shutil.rmtree, root)
    # Whoever moves a directory on the way takes the root away from its name.
    for n in range(len(steps), 0, -1):
        at = top + "/" + "/".join(steps[:n])
        attempt("move", os.rename, at, top + "/moved")
        attempt("move over", os.rename, top + "/spare", at)
        attempt("exchange", exchange, at, top + "/spare")
        attempt("mount", call, libc.mount, b"none", at.encode(), b"tmpfs", 0, None)
        attempt("bind", call, libc.mount, top.encode(), at.encode(), None, 4096, None)
        attempt("remount", call, libc.mount, None, at.encode(), None, 32 | 4096, None)
        attempt("move mount", call, libc.mount, at.encode(), (top + "/spare").encode(), None, 8192, None)
        attempt("unmount", call, libc.umount2, at.encode(), 2)
        attempt("pivot", call, libc.syscall, 155, at.encode(), at.encode())
    if os.path.exists(top + "/moved"):
        print("BREACH moved", root)
    os.close(fd)
attempt("user namespace", call, libc.unshare, 0x10000000 | 0x20000)
for way in ("/a", "/a/b"):
    write(top + way + "/new")
os.unlink(top + "/link")
if tried < 50:
    print("BREACH nothing was tried")
print("done")
