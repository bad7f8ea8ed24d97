import os
d = os.environ["SKILL_DIR"]
f = d + "/SKILL.md"
def t(name, attempt):
    try:
        attempt()
        print("BREACH", name)
    except OSError:
        pass
t("write", lambda: open(f, "w").write("x"))
t("append", lambda: open(f, "a").write("x"))
t("truncate", lambda: os.truncate(f, 1))
t("chmod", lambda: os.chmod(f, 0o777))
t("chmod of the directory", lambda: os.chmod(d, 0o777))
t("create", lambda: open(d + "/planted", "w"))
t("mkdir", lambda: os.mkdir(d + "/planted.d"))
t("symlink", lambda: os.symlink("/etc", d + "/planted.l"))
t("rename", lambda: os.rename(f, d + "/x"))
t("link", lambda: os.link(f, d + "/y"))
t("unlink", lambda: os.unlink(d + "/scripts/files.sh"))
t("utime", lambda: os.utime(f))
t("setxattr", lambda: os.setxattr(f, "user.x", b"x"))
t("write by descriptor", lambda: open("/proc/self/fd/%d" % os.open(f, os.O_RDONLY), "w").write("x"))
if open(f).read() != "the tree's own bytes\n":
    print("BREACH other bytes")
print("done")
