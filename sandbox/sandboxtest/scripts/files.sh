# $1 is a file of the host that everyone may read, $2 a directory of the host, $3 the differences that
# are tolerated: a kernel of the guest's own has a /sys.
case $3 in *kernel*) sys=sys ;; *) sys=none ;; esac
for f in "$1" /etc/shadow /etc/gshadow /etc/sudoers /etc/machine-id /root/.bashrc /root/.profile; do
	head -c 1 "$f" >/dev/null 2>&1 && echo "BREACH read $f"
done
[ "$(wc -l </etc/passwd)" -gt 3 ] && echo "BREACH /etc/passwd is the host's"
for d in /root /home /var /srv /opt /run /sys /mnt /boot "$2"; do
	[ "$d" = "/$sys" ] && continue
	ls -A "$d" 2>/dev/null | grep -q . && echo "BREACH lists $d"
done
for p in /proc/[0-9]*; do
	cat "$p/root$1" >/dev/null 2>&1 && echo "BREACH by $p/root"
	cat "$p/cwd$1" >/dev/null 2>&1 && echo "BREACH by $p/cwd"
done
ls -A / | grep -vxE "bin|dev|etc|lib|lib32|lib64|libx32|out|proc|sbin|skill|tmp|usr|workspace|$sys" | sed 's/^/BREACH root shows /'
echo done
