#!/usr/bin/env python3
#@ id: S160
#@ title: a run has a user of the host that nothing else has
#@ runtime: python
#@ tries: find the host's user in uid_map and gid_map; signal and read every process number, and a process of nobody that the setup starts
#@ must: the user is neither root nor nobody, and no process but the run's own is found
#@ setup: bg setpriv --reuid 65534 --regid 65534 --clear-groups sleep 600
#@ host: kill -0 $(cat $CASE_TMP/pids | head -n 1)
import os

for kind in "uid", "gid":
    for line in open(f"/proc/self/{kind}_map"):
        inside, host, count = map(int, line.split())
        if count == 1 and host in (0, 65534):
            print(f"BREACH the host's {kind} is {host}")
mine = {os.getpid(), os.getppid(), 1}
for pid in set(range(1, 5000)) - mine:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        continue
    except PermissionError:
        pass
    if any(os.path.isdir(f"/proc/{p}/task/{pid}") for p in mine):
        continue
    print(f"BREACH finds {pid}")
    for name in "environ", "mem", "maps":
        try:
            open(f"/proc/{pid}/{name}", "rb").read(1)
            print(f"BREACH reads {name} of {pid}")
        except OSError:
            pass
print("done")
